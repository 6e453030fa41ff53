package db

import (
	"bytes"
	"crypto/x509"
	_ "embed"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpustack/cleanup/novadb"
	"gpustack/host"
	"gpustack/host/hosttest"
)

//go:embed python/url.py
var readURLs string

// driven is what the driver connects with.
type driven struct {
	User, Password, Host string
	Port                 int
	Database             string
	Socket               string  `json:"unix_socket"`
	Bind                 string  `json:"bind_address"`
	ReadTimeout          float64 `json:"read_timeout"`
	Verifies             string  `json:"verifies"` // none: no TLS; nothing, authority, or name of the server
}

// ask has SQLAlchemy read URLs, and their drivers its arguments.
func ask(t *testing.T, urls []string) (read []*driven) {
	t.Helper()
	text, err := json.Marshal(urls)
	hosttest.NoError(t, err)
	var talk bytes.Buffer
	cmd := exec.Command("/usr/bin/python3", "-c", readURLs)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(text), &talk
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, talk.String())
	}
	hosttest.NoError(t, json.Unmarshal(out, &read))
	return read
}

// ours is what gpustack reads.
func ours(t *testing.T, url string, want *driven) (*driven, error) {
	t.Helper()
	target, err := novadb.ParseURL(slash(t), url)
	if err != nil {
		return nil, err
	}
	got := &driven{
		User: target.User, Password: target.Passwd, Database: target.DBName, ReadTimeout: target.ReadTimeout.Seconds(),
		Bind: target.Bind, Verifies: "nothing",
	}
	if target.Net == "unix" {
		// PyMySQL connects to the socket whatever the host is.
		got.Socket, got.Host, got.Port = target.Addr, want.Host, want.Port
	} else {
		name, port, err := net.SplitHostPort(target.Addr)
		hosttest.NoError(t, err)
		got.Host = name
		fmt.Sscan(port, &got.Port)
	}
	switch c := target.TLS; {
	case c == nil:
		got.Verifies = "none"
	case !c.InsecureSkipVerify:
		got.Verifies = "name"
	case c.VerifyConnection != nil:
		got.Verifies = "authority"
	}
	return got, nil
}

// agree compares what gpustack and the driver read. It returns whether they refuse.
func agree(t *testing.T, url string, want *driven) (refused bool) {
	t.Helper()
	got, err := ours(t, url, want)
	if err != nil || want == nil {
		if (err == nil) != (want != nil) {
			t.Errorf("%s: %v, but SQLAlchemy and the driver read %+v", url, err, want)
		}
		return true
	}
	hosttest.EqualIn(t, url, want, got)
	return false
}

// TestURLIsSQLAlchemys: what nova.conf and cell_mappings hold is read as SQLAlchemy and
// PyMySQL read it, or refused.
func TestURLIsSQLAlchemys(t *testing.T) {
	dir := t.TempDir()
	ca := filepath.Join(dir, "ca.pem")
	hosttest.NoError(t, os.WriteFile(ca, sign(t, "db").authority, 0o600))
	urls := []string{
		"mysql+pymysql://nova:secret@db/nova",
		"mysql+pymysql://nova:secret@db:3307/nova?charset=utf8",
		"mysql+pymysql://nova@db/nova",
		"mysql+pymysql://nova:@db/nova",
		"mysql+pymysql://db/nova",
		"mysql+pymysql:///nova",
		"mysql+pymysql://nova:p%40ss%2Fword%25@db/nova",
		"mysql+pymysql://nova:a:b@db/nova",
		"mysql+pymysql://no%20va:x@db/nova",
		"mysql+pymysql://nova:x@[fd00::1]:3306/nova",
		"mysql+pymysql://nova:x@[fd00::1]/nova",
		"mysql+pymysql://nova:x@10.0.0.1/nova?read_timeout=60&charset=utf8mb4",
		"mysql+pymysql://nova:x@/nova?unix_socket=/run/mysqld/mysqld.sock",
		"mysql+pymysql://nova:x@localhost/nova?unix_socket=%2Frun%2Fmysqld%2Fmysqld.sock",
		"mysql://nova:x+y@db/nova",
		"mysql+pymysql://nova:x@db/nova?ssl_ca=" + ca,
		"mysql+pymysql://nova:x@db/nova?ssl_verify_cert=true&ssl_ca=" + ca,
		"mysql+pymysql://nova:x@db/nova?ssl_verify_cert=true",
		"mysql+pymysql://nova:x@db/nova?ssl_verify_cert=false&ssl_ca=" + ca,
		"mysql+pymysql://nova:x@db/nova?charset=&sql_mode=ANSI",
		"mysql+pymysql://nova:x@db/nova?autocommit=1&program_name=n&local_infile=0&binary_prefix=1",
		"mysql+pymysql://nova:x@db/nova?passw=y",
		"mariadb+pymysql://nova:x@db/nova",
		"nova:x@db/nova",
	}
	random := rand.New(rand.NewPCG(1, 2))
	word := func() string {
		const letters = "abcZ09 @:/?#[]%+&=$!'()*,;\"\\^`{|}~äß"
		var b strings.Builder
		for range 1 + random.IntN(12) {
			runes := []rune(letters)
			b.WriteRune(runes[random.IntN(len(runes))])
		}
		return url.PathEscape(b.String())
	}
	for range 300 {
		// As Python's quote does, a slash is encoded too.
		user, password := strings.ReplaceAll(word(), ":", "%3A"), word()
		urls = append(urls, fmt.Sprintf("mysql+pymysql://%s:%s@db%d/nova", strings.ReplaceAll(user, "@", "%40"), strings.ReplaceAll(password, "@", "%40"), random.IntN(9)))
	}
	refused := 0
	for i, want := range ask(t, urls) {
		if agree(t, urls[i], want) {
			refused++
		}
	}
	if refused > 5 {
		t.Errorf("%d of %d are refused", refused, len(urls))
	}

	// SQLAlchemy takes a part of these passwords for the host, the database or an argument.
	urls = []string{"mysql+pymysql://nova:a@hunter2@db/nova", "mysql+pymysql://nova:a@b/hunter2@db/nova", "mysql+pymysql://nova:a@hunter2!/nova"}
	for i, want := range ask(t, urls) {
		if want == nil || !strings.Contains(want.Host+want.Database, "hunter2") {
			t.Errorf("%s: SQLAlchemy reads %+v", urls[i], want)
		}
		if _, err := novadb.ParseURL(slash(t), urls[i]); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", urls[i], err)
		}
	}
}

//go:embed python/connect.py
var connectURLs string

// What a driver does with a server that offers TLS.
const (
	refuses   = "refuses the URL"
	plaintext = "signs in without TLS"
	encrypted = "asks for TLS"
)

// tlsOf has the drivers of URLs connect, in which SERVER stands for the server, and returns
// what each does. The server offers TLS, and closes the connection after its client's answer.
func tlsOf(t *testing.T, urls []string) []string {
	t.Helper()
	var mutex sync.Mutex
	does, at := make([]string, len(urls)), make([]string, len(urls))
	for i := range urls {
		does[i] = refuses
		at[i] = strings.ReplaceAll(urls[i], "SERVER", listen(t, func(client net.Conn) {
			client.Write(greet(t))
			request, err := readPacket(client)
			mutex.Lock()
			defer mutex.Unlock()
			switch {
			case err != nil || len(request) < 6:
			case request[5]&(clientSSL>>8) != 0:
				does[i] = encrypted
			default:
				does[i] = plaintext
			}
		}))
	}
	text, err := json.Marshal(at)
	hosttest.NoError(t, err)
	cmd := exec.Command("/usr/bin/python3", "-c", connectURLs)
	cmd.Stdin = bytes.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	mutex.Lock()
	defer mutex.Unlock()
	return slices.Clone(does)
}

// greet returns a greeting of the tests' server that offers TLS.
func greet(t *testing.T) []byte {
	server, err := net.Dial("tcp", database.Server.Address)
	if err != nil {
		t.Error(err)
		return nil
	}
	defer server.Close()
	greeting, err := readPacket(server)
	if err != nil {
		t.Error(err)
		return nil
	}
	offerTLS(greeting)
	return greeting
}

// TestDriversTLS: where an argument or an option makes a driver ask for TLS, gpustack does
// so too, without a way back to plaintext, or refuses the URL.
func TestDriversTLS(t *testing.T) {
	dir := t.TempDir()
	ca, authorities := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "authorities")
	authority := sign(t, "db").authority
	hosttest.NoError(t, errors.Join(
		os.WriteFile(ca, authority, 0o600),
		os.Mkdir(authorities, 0o700), os.WriteFile(filepath.Join(authorities, "0123abcd.0"), authority, 0o600)))
	pair := writePair(t, dir)
	arguments := []string{
		"charset=utf8", "ssl_ca=" + ca, "ssl_capath=" + authorities, "ssl_cert=" + pair, "ssl_key=" + pair, "ssl_cipher=HIGH", "ssl_check_hostname=true", "ssl_check_hostname=false",
		"ssl_verify_cert=true", "ssl_verify_cert=false", "ssl_verify_identity=true", "ssl_verify_identity=false", "ssl_mode=REQUIRED", "ssl_disabled=true", "ssl=1", "ssl_key_password=x",
		"client_flag=2", "client_flag=2048", "compress=1", "program_name=x",
	}
	options := []string{
		"ssl", "ssl=1", "ssl-ca=" + ca, "ssl-capath=" + authorities, "ssl-cert=" + pair, "ssl-key=" + pair, "ssl-cipher=HIGH", "ssl_cipher=HIGH", "ssl-cipher=", "ssl-mode=REQUIRED",
		"ssl-mode=DISABLED\nssl-ca=" + ca, "ssl-verify-server-cert=1", "ssl-enforce=1", "ssl-fp=AA", "ssl-fp-list=/x", "ssl-fplist=/x", "ssl-crl=" + ca, "ssl-password=x", "tls-ca=" + ca, "tls-capath=" + authorities,
		"tls-cert=" + pair, "tls-key=" + pair, "tls-cipher=HIGH", "tls-enforce=1", "tls-verify-peer=1", "tls-fp=AA", "tls-fplist=/x", "tls-version=TLSv1.2",
	}
	for i, option := range options {
		file := filepath.Join(dir, fmt.Sprint(i))
		hosttest.NoError(t, os.WriteFile(file, []byte("[client]\n"+option+"\n"), 0o600))
		arguments = append(arguments, "read_default_file="+file)
	}
	var urls []string
	for _, argument := range arguments {
		urls = append(urls, "mysql+pymysql://nova:x@SERVER/nova?"+argument, "mysql+mysqldb://nova:x@SERVER/nova?"+argument)
	}
	counts := map[string]int{}
	for i, does := range tlsOf(t, urls) {
		counts[does]++
		target, err := novadb.ParseURL(slash(t), strings.ReplaceAll(urls[i], "SERVER", "db"))
		if does == encrypted && err == nil && (target.TLS == nil || target.AllowFallbackToPlaintext) {
			name := urls[i]
			if i/2 >= len(arguments)-len(options) {
				name += " (" + options[i/2-len(arguments)+len(options)] + ")"
			}
			t.Errorf("%s: the driver %s, and gpustack may connect without", name, does)
		}
	}
	t.Logf("%v", counts)
	if counts[encrypted] < 30 || counts[plaintext] < 20 {
		t.Errorf("%v", counts)
	}
}

// writePair writes a certificate and its key to a file, and returns its name.
func writePair(t *testing.T, dir string) string {
	t.Helper()
	pair := sign(t, "client")
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	hosttest.NoError(t, err)
	text := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate.Certificate[0]}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})...)
	file := filepath.Join(dir, "pair.pem")
	hosttest.NoError(t, os.WriteFile(file, text, 0o600))
	return file
}

// TestOptionFileIsPyMySQLs: read_default_file and read_default_group are read as PyMySQL
// reads them, or refused, whatever the file looks like.
func TestOptionFileIsPyMySQLs(t *testing.T) {
	dir := t.TempDir()
	ca := filepath.Join(dir, "ca.pem")
	hosttest.NoError(t, os.WriteFile(ca, sign(t, "db").authority, 0o600))
	random := rand.New(rand.NewPCG(3, 4))
	pick := func(from ...string) string { return from[random.IntN(len(from))] }
	line := func() string {
		switch random.IntN(10) {
		case 0:
			return pick("[client]", "[tripleo]", "[DEFAULT]", "[ client ]", "[client] # x", "[mysqld]", "[mysqld]", "[mysqld]")
		case 1:
			return pick("", "# comment", "; comment", "!includedir /etc/my.cnf.d", "  # comment", "= x", "[client", "\t")
		}
		key := pick("user", "password", "host", "port", "database", "socket", "bind-address", "ssl-ca", "User", "ssl_ca", "bind_address", "password ", "max_allowed_packet")
		value := pick("a", "'b'", "\"c d\"", "e # f", "g;h", "", "'i", "\\n", "j=k", "l:m", "''")
		switch strings.ToLower(key) {
		case "port":
			value = pick("3307", "'1'", "x", "", "0", " 4 ")
		case "ssl-ca":
			value = pick(ca, "", "'"+ca+"'")
		}
		return pick("", "", "", "", "", "  ") + key + pick("=", " = ", ":", "= ") + value + pick("", "", " ", "\r")
	}
	var urls []string
	for i := range 400 {
		text := pick("[client]\n", "[tripleo]\n", "[client]\n", "")
		for range random.IntN(8) {
			text += line() + "\n"
		}
		file := filepath.Join(dir, fmt.Sprint(i))
		hosttest.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		urls = append(urls, "mysql+pymysql://"+pick("", "nova:x@", "nova@db", "db:3308")+"/nova?read_default_file="+file+pick("", "&read_default_group=tripleo", "&read_default_group=DEFAULT"))
	}
	read, refused := 0, 0
	for i, want := range ask(t, urls) {
		text, _ := os.ReadFile(filepath.Join(dir, fmt.Sprint(i)))
		got, err := ours(t, urls[i], want)
		switch {
		case err != nil && want != nil:
			refused++
		case err != nil:
		case want == nil: // Nova does not start with it
		default:
			read++
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: %q (-PyMySQL +gpustack):\n%s", urls[i], text, diff)
			}
		}
	}
	t.Logf("%d of %d are read, and %d that PyMySQL reads are refused", read, len(urls), refused)
	if read < 60 {
		t.Error("too few are read")
	}
}

// TestReadDefaultFile: nova.conf as TripleO and RHOSO write it: the option file is looked
// up below the root, in nova.conf and in the URLs of cells that are filled from it.
func TestReadDefaultFile(t *testing.T) {
	reset(t)
	database.Cell1.Card(t, database.Cell1.Compute(t, "gpu1", LastSeen(time.Hour)), first, "allocated", UUID(1))
	query := "read_default_file=/etc/my.cnf.d/tripleo.cnf&read_default_group=tripleo"
	if _, err := database.SQL.ExecContext(t.Context(), "UPDATE nova_api.cell_mappings SET database_connection = '{scheme}://{username}:{password}@{hostname}/nova_cell1?{query}' WHERE name = 'cell1'"); err != nil {
		t.Fatal(err)
	}
	root := machine(t)
	name, port, _ := strings.Cut(database.Server.Address, ":")
	credentials := (&url.URL{User: url.UserPassword(User, database.Password), Host: name}).String()
	conf := fmt.Sprintf("[api_database]\nconnection = mysql+pymysql:///nova_api?%s\n[database]\nconnection = mysql+pymysql:%s/nova_cell0?%s\n", query, strings.ReplaceAll(credentials, "$", "$$"), query)
	option := fmt.Sprintf("[client]\nport=1\n[tripleo]\nbind-address=127.0.0.1\nssl=0\nuser=%s\npassword='%s'\nhost=%s\nport=%s\n", User, database.Password, name, port)
	file := filepath.Join(root, "etc/my.cnf.d/tripleo.cnf")
	hosttest.NoError(t, errors.Join(
		os.WriteFile(filepath.Join(root, "etc/nova/nova.conf"), []byte(conf), 0o640),
		os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(option), 0o640)))
	if got, _ := findings(t, root); !cmp.Equal(got, []string{"gpu1 " + first + " A stale offline"}) {
		t.Errorf("%q", got)
	}

	// The same by connection_parameters, which Nova adds to the URLs of all cells.
	conf = strings.ReplaceAll(strings.ReplaceAll(conf, "?"+query, "\nconnection_parameters = "+query), "mysql+pymysql:///", "mysql+pymysql://"+name+"/")
	hosttest.NoError(t, os.WriteFile(filepath.Join(root, "etc/nova/nova.conf"), []byte(conf), 0o640))
	if got, _ := findings(t, root); !cmp.Equal(got, []string{"gpu1 " + first + " A stale offline"}) {
		t.Errorf("connection_parameters: %q", got)
	}
	hosttest.NoError(t, os.Remove(file))
	if _, stderr, status := repairMigration(t, root); status != 1 ||
		!strings.Contains(stderr, "error: api_database: read_default_file: "+strings.TrimPrefix(file, root)+": no such file or directory") {
		t.Errorf("exit status %d, %s", status, stderr)
	}
}

// TestMysqlclient: MySQLdb connects as the same user to the same database as gpustack,
// with what the URL says and with what an option file says.
func TestMysqlclient(t *testing.T) {
	reset(t)
	dir := t.TempDir()
	name, port, _ := strings.Cut(database.Server.Address, ":")
	file := filepath.Join(dir, "my.cnf")
	option := fmt.Sprintf("[mysqld]\nuser=nobody\n[tripleo]\nhost=%s\nport = %s\nuser=%s\npassword='%s'\ndatabase=nova_cell0\n", name, port, User, database.Password)
	hosttest.NoError(t, os.WriteFile(file, []byte(option), 0o600))
	user := url.UserPassword(User, database.Password).String()
	for _, u := range []string{
		fmt.Sprintf("mysql+mysqldb://%s@%s/nova_cell1?charset=utf8", user, database.Server.Address),
		fmt.Sprintf("mysql://%s@localhost/nova_cell1?unix_socket=%s&compress=1", user, database.Server.Socket),
		fmt.Sprintf("mysql:///nova_cell1?read_default_file=%s&read_default_group=tripleo", file),
		fmt.Sprintf("mysql+mysqldb:///?read_default_file=%s&read_default_group=tripleo", file),
	} {
		const script = "import sys\nfrom sqlalchemy import create_engine, text\nwith create_engine(sys.argv[1]).connect() as c:\n    print(*c.execute(text('SELECT CURRENT_USER(), DATABASE()')).one())"
		out, err := exec.Command("/usr/bin/python3", "-c", script, u).CombinedOutput()
		if err != nil {
			lines := strings.Split(strings.TrimSpace(string(out)), "\n")
			t.Errorf("%s: %v, %s", u, err, lines[len(lines)-1])
			continue
		}
		databases, err := novadb.Open(t.Context(), novadb.Where{Root: slash(t), Database: u})
		if err != nil {
			t.Errorf("%s: %v", u, err)
			continue
		}
		var who, where string
		err = databases.Cells[0].DB.QueryRowContext(t.Context(), "SELECT CURRENT_USER(), DATABASE()").Scan(&who, &where)
		if err != nil || who+" "+where != strings.TrimSpace(string(out)) {
			t.Errorf("%s: %s %s, %v; MySQLdb has %s", u, who, where, err, out)
		}
		if err := databases.Close(); err != nil {
			t.Error(err)
		}
	}
}

// slash is the root of this machine.
func slash(t *testing.T) host.Root {
	t.Helper()
	return hosttest.Root(t, "/")
}
