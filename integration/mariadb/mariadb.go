package mariadb

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"gpustack/integration/service"
)

// A Server is a MariaDB server: a Service, so that it can be stopped or killed, and
// started again on the same data.
type Server struct {
	*service.Service
	Socket   string // where root comes in without a password
	Address  string // where User comes in with Password
	User     string // may do everything
	Password string
}

// Start makes a server with its files in a new folder, whose name must be short for
// the socket in it, and starts it. The Server's own Start starts it again.
func Start(ctx context.Context, dir, log string) (*Server, error) {
	ports, err := service.Ports(1)
	if err != nil {
		return nil, err
	}
	data, tmp := filepath.Join(dir, "data"), filepath.Join(dir, "tmp")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Mkdir(data, 0o700), os.Mkdir(tmp, 0o700)); err != nil {
		return nil, err
	}
	program := service.Program{
		Name: "mariadb",
		Argv: []string{"/usr/bin/mariadb-install-db", "--no-defaults", "--user=root", "--datadir=" + data, "--skip-test-db", "--skip-name-resolve", "--auth-root-authentication-method=socket", "--innodb-log-file-size=16M"},
		Env:  []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "HOME=" + dir, "TMPDIR=" + tmp},
		Log:  log,
	}
	if err := program.Run(ctx); err != nil {
		return nil, err
	}
	s := &Server{
		Socket:   filepath.Join(dir, "socket"),
		Address:  net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[0])),
		User:     "lab",
		Password: "db" + rand.Text(),
	}
	program.Argv = []string{
		"/usr/sbin/mariadbd", "--no-defaults", "--user=root", "--datadir=" + data, "--socket=" + s.Socket,
		"--bind-address=127.0.0.1", "--port=" + strconv.Itoa(ports[0]), "--skip-name-resolve",
		"--disable-ssl", // since 11.4 a server without a certificate makes one
		// What Debian's own settings would say; Nova wants three bytes a character.
		"--character-set-server=utf8mb3", "--collation-server=utf8mb3_general_ci",
		"--max-connections=500",
		// The operating system keeps what a killed server wrote: no need to sync.
		"--innodb-flush-log-at-trx-commit=2", "--innodb-flush-method=nosync", "--skip-innodb-doublewrite",
		"--innodb-log-file-size=16M", "--innodb-buffer-pool-size=64M",
	}
	s.Service = &service.Service{Program: program, Ready: func(ctx context.Context) error {
		_, err := s.Query(ctx, "SELECT 1")
		return err
	}}
	if err := s.Start(ctx); err != nil {
		return nil, err
	}
	_, err = s.Query(ctx, fmt.Sprintf("GRANT ALL ON *.* TO '%s'@'127.0.0.1' IDENTIFIED BY '%s'", s.User, s.Password))
	if err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// URL is the address of a database as SQLAlchemy takes it.
func (s *Server) URL(database string) string {
	return fmt.Sprintf("mysql+pymysql://%s:%s@%s/%s?charset=utf8", s.User, s.Password, s.Address, database)
}

// Query runs SQL statements as root and returns the rows, where NULL is "NULL". Tables
// are named with their database.
func (s *Server) Query(ctx context.Context, statements string) ([][]string, error) {
	cmd := exec.CommandContext(ctx, "mariadb", "--no-defaults", "--skip-ssl", "--user=root", "--socket="+s.Socket, "--batch", "--skip-column-names", "--default-character-set=utf8mb4")
	var out, talk bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(statements), &out, &talk
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("mariadb: %w: %s", err, bytes.TrimSpace(talk.Bytes()))
	}
	var rows [][]string
	for line := range strings.Lines(out.String()) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		for i := range fields {
			fields[i] = unescape.Replace(fields[i])
		}
		rows = append(rows, fields)
	}
	return rows, nil
}

// unescape undoes the escapes of --batch for white space in a value.
var unescape = strings.NewReplacer(`\n`, "\n", `\t`, "\t", `\0`, "\x00", `\\`, `\`)
