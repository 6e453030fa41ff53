package db

import (
	"crypto/rand"
	_ "embed"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

//go:embed conf/nova.conf
var novaConf string

// URL returns the address of a database as in Nova's configuration: an SQLAlchemy URL with the
// password of User in it, where a dollar sign stands for itself.
func (db *DB) URL(database string) string {
	return db.url(db.Server.Address, database, nil)
}

func (db *DB) url(host, database string, query url.Values) string {
	if query == nil {
		query = url.Values{}
	}
	query.Set("charset", "utf8")
	u := url.URL{
		Scheme:   "mysql+pymysql",
		User:     url.UserPassword(User, db.Password),
		Host:     host,
		Path:     "/" + database,
		RawQuery: query.Encode(),
	}
	return u.String()
}

// Conf is the file that Nova's programs are started with.
func (db *DB) Conf() string {
	return filepath.Join(db.Root, "etc/nova/nova.conf")
}

// writeConf writes a nova.conf for each way to the server.
func (db *DB) writeConf() error {
	parsed, err := template.New("nova.conf").Option("missingkey=error").Parse(novaConf)
	if err != nil {
		return err
	}
	rabbit := rand.Text()
	write := func(root string, address func(database string) string) error {
		dir := filepath.Join(root, "etc/nova")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		out, err := os.OpenFile(filepath.Join(dir, "nova.conf"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		// $ begins the name of another option in oslo.config; $$ is one $.
		value := func(database string) string { return strings.ReplaceAll(address(database), "$", "$$") }
		return errors.Join(parsed.Execute(out, map[string]string{
			"API": value(apiDatabase), "Cell": value(cell1Database), "RabbitPassword": rabbit,
		}), out.Close())
	}
	return errors.Join(
		write(db.Root, db.URL),
		write(db.SocketRoot, func(database string) string {
			return db.url("localhost", database, url.Values{"unix_socket": {db.Server.Socket}})
		}))
}
