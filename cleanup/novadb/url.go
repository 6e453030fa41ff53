package novadb

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"gpustack/host"
)

// sqlalchemyURL is SQLAlchemy's own pattern, of 1.4 and 2.0 (sqlalchemy/engine/url.py,
// _parse_url).
var sqlalchemyURL = host.LazyRegexp(`^([\w+]+)://(?:([^:/]*)(?::([^@]*))?@)?(?:(?:\[([^/?]+)\]|([^/:?]+))?(?::([^/?]*))?)?(?:/([^?]*))?(?:\?(.*))?$`)

// Target is the server and the database that a URL names, with the credentials and the
// local address to use. Its timeouts are those of the URL, which are meant for Nova's own
// connections: Limits has those that apply here.
type Target struct {
	*mysql.Config
	Bind string // host name or address of this machine to connect from; "" is any
}

// dial connects to the server.
func (t *Target) dial(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	if t.Bind != "" && network != "unix" {
		found, err := net.DefaultResolver.LookupHost(ctx, t.Bind)
		if err != nil {
			return nil, fmt.Errorf("bind address: %w", err)
		}
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(found[0])}
	}
	return d.DialContext(ctx, network, address)
}

// ParseURL reads a database URL with the arguments that the drivers share which Nova uses with MySQL
// and MariaDB (PyMySQL, mysqlclient and the connector of MariaDB): user and password are
// percent-encoded, and values that the URL lacks come from read_default_file. Certificates, keys and
// option files are read below the root; a socket is an address, and is used as it is. An argument
// that is not known is refused by name: it may mean another user, another server, or TLS. Errors do
// not quote the URL, because it contains a password. A URL is refused if a part of a password that is
// not percent-encoded can stand where SQLAlchemy looks for the host, the database or an argument
// (sqlalchemy/engine/url.py, _parse_url).
func ParseURL(root host.Root, text string) (*Target, error) {
	parts := sqlalchemyURL().FindStringSubmatch(text)
	if parts == nil {
		return nil, errors.New("not a database URL")
	}
	dialect, driver, _ := strings.Cut(parts[1], "+")
	if dialect != "mysql" && dialect != "mariadb" {
		return nil, fmt.Errorf("a database of kind %s is not supported: only MySQL and MariaDB are", dialect)
	}
	if strings.Contains(strings.Join(parts[4:], ""), "@") {
		return nil, errors.New("the URL has an @ that is not percent-encoded: write each @ of the password as %40")
	}
	a := arguments{root: root, pymysql: driver == "pymysql", flags: map[string]bool{}}
	var err, err2, err3 error
	a.user, err = url.PathUnescape(parts[2])
	a.password, err2 = url.PathUnescape(parts[3])
	values, err3 := url.ParseQuery(parts[8])
	if errors.Join(err, err2, err3) != nil { // whose text may have a part of the password
		return nil, errors.New("user, password or arguments are not percent-encoded")
	}
	a.host, a.port, a.database = parts[4]+parts[5], parts[6], parts[7]
	if a.port != "" && !isPort(a.port) {
		// This may be a part of a password that is not encoded, so the error has no text of it.
		return nil, errors.New("the port is not a number from 1 to 65535")
	}
	if err := errors.Join(a.apply(values)...); err != nil {
		return nil, err
	}
	if err := a.readDefaults(); err != nil {
		return nil, err
	}
	return a.target()
}

// isPort returns whether the text is the number of a port.
func isPort(text string) bool {
	n, err := strconv.Atoi(text)
	return err == nil && n >= 1 && n <= 65535
}

// hostName has the characters of host names, underscores included, and of IPv4 addresses.
var hostName = host.LazyRegexp(`^[A-Za-z0-9._-]+$`)

// checkHost returns an error unless the text can be a host name or is an IP address. The
// error does not quote the text, because it may be a part of a password.
func checkHost(text string) error {
	if address, err := netip.ParseAddr(text); err == nil && address.Zone() != "" {
		text = address.Zone()
	} else if err == nil {
		return nil
	}
	if !hostName().MatchString(text) {
		return errors.New("the host is not a host name or an IP address: the password may have characters that must be percent-encoded, such as @ as %40")
	}
	return nil
}

// arguments are the values of a connection, from a URL and from its option file.
type arguments struct {
	root    host.Root
	pymysql bool // the driver is PyMySQL, which reads one group of an option file

	user, password, host, port, database, socket, bind string
	connect, read, write                               time.Duration
	file, group                                        string // read_default_file, read_default_group

	ca, cert, key, mode string          // of TLS
	flags               map[string]bool // ssl_verify_cert, and ssl of the option file, as far as they are given
}

// ignored are arguments that make no difference here: character sets, autocommit and the SQL mode,
// which every connection sets (sessionSettings), settings of Nova's own connections, and plugins of
// SQLAlchemy, such as devstack's dbcounter.
var ignored = []string{"charset", "collation", "use_unicode", "binary_prefix", "local_infile", "sql_mode", "autocommit",
	"program_name", "max_allowed_packet", "compress", "plugin"}

// apply applies the arguments of a URL. SQLAlchemy drops those without a value.
func (a *arguments) apply(values url.Values) (errs []error) {
	texts := map[string]*string{"unix_socket": &a.socket, "read_default_file": &a.file, "read_default_group": &a.group,
		"ssl_ca": &a.ca, "ssl_cert": &a.cert, "ssl_key": &a.key, "ssl_mode": &a.mode}
	times := map[string]*time.Duration{"connect_timeout": &a.connect, "read_timeout": &a.read, "write_timeout": &a.write}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		value := values[key][0]
		fail := func(want string) { errs = append(errs, fmt.Errorf("argument %s: %q is not %s", key, value, want)) }
		switch {
		case len(values[key]) > 1:
			errs = append(errs, fmt.Errorf("argument %s is given twice", key))
		case value == "" || slices.Contains(ignored, key):
		case texts[key] != nil:
			*texts[key] = value
		case times[key] != nil:
			n, err := strconv.ParseFloat(value, 64)
			if err != nil || !(n >= 0 && n <= 365*24*3600) {
				fail("a number of seconds")
			}
			*times[key] = time.Duration(n * float64(time.Second))
		case key == "ssl_verify_cert":
			on, known := truths[strings.ToLower(value)]
			if !known {
				fail("true or false")
			}
			a.flags[key] = on
		default:
			errs = append(errs, fmt.Errorf("argument %s is not supported", key))
		}
	}
	if a.mode = strings.ToUpper(a.mode); a.mode != "" && !slices.Contains(tlsModes, a.mode) {
		errs = append(errs, fmt.Errorf("argument ssl_mode: %q is not one of %s", a.mode, strings.Join(tlsModes, ", ")))
	}
	return errs
}

// truths are booleans as SQLAlchemy reads them (sqlalchemy/util/langhelpers.py, asbool).
var truths = map[string]bool{"true": true, "yes": true, "on": true, "y": true, "t": true, "1": true,
	"false": false, "no": false, "off": false, "n": false, "f": false, "0": false}

// target returns the configuration of the driver for the arguments.
func (a *arguments) target() (*Target, error) {
	server, port := cmp.Or(a.host, "localhost"), cmp.Or(a.port, "3306")
	if err := checkHost(server); err != nil {
		return nil, err
	}
	c := mysql.NewConfig()
	c.User, c.Passwd, c.DBName = a.user, a.password, a.database
	if c.DBName == "" {
		return nil, errors.New("no database is named")
	}
	c.Net, c.Addr = "tcp", net.JoinHostPort(server, port)
	// mysqlclient connects to a socket only for the host localhost.
	if a.socket != "" && (a.pymysql || server == "localhost") {
		c.Net, c.Addr = "unix", a.socket
	}
	c.ParseTime, c.Loc = true, time.UTC
	c.Collation = collation
	c.Timeout, c.ReadTimeout, c.WriteTimeout = a.connect, a.read, a.write
	c.Logger = &mysql.NopLogger{} // the default one prints errors that are returned anyway
	// An UPDATE returns the number of rows found, not only of those changed.
	c.ClientFoundRows = true
	var err error
	if c.TLS, err = a.tls(server); err != nil && !errors.Is(err, fs.ErrPermission) {
		err = host.WithHint(err, "check the files that ssl_ca, ssl_cert and ssl_key name")
	}
	return &Target{Config: c, Bind: a.bind}, err
}

// tlsModes are the values of ssl_mode. PREFERRED is not among them: it is plaintext as soon as someone
// in between wants it.
var tlsModes = []string{"DISABLED", "REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY"}

// verifies returns whether to verify that an authority has signed the server's certificate, and that
// the certificate has the server's name. By default both are, as PyMySQL does; without ssl_ca the
// authorities of the machine that gpustack runs on count. Of several arguments the strictest counts.
func (a *arguments) verifies() (chain, identity bool) {
	verify, given := a.flags["ssl_verify_cert"]
	switch {
	case a.mode == "VERIFY_IDENTITY":
		return true, true
	case a.mode == "REQUIRED":
		return verify || a.ca != "", false
	case a.mode == "VERIFY_CA", given:
		return verify || a.mode != "", false
	}
	return true, true
}

// tls returns the TLS configuration, nil for a connection without TLS: any argument of TLS switches
// it on, but ssl_mode=DISABLED. PyMySQL 1.2 also uses TLS where nothing asks for it but the server
// offers it, without verifying the certificate; gpustack does not.
func (a *arguments) tls(server string) (*tls.Config, error) {
	others := a.ca+a.cert+a.key != "" || len(a.flags) > 0
	switch {
	case a.mode == "DISABLED" && others:
		return nil, errors.New("ssl_mode DISABLED conflicts with other TLS arguments, of the URL or of the option file")
	case a.mode == "DISABLED", a.mode == "" && !others:
		return nil, nil
	}
	c := &tls.Config{ServerName: server, MinVersion: tls.VersionTLS12}
	if a.ca != "" {
		pem, err := a.root.ReadFile(a.ca)
		if err != nil {
			return nil, err
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s: has no certificate", a.ca)
		}
	}
	if a.cert != "" {
		cert, err := a.root.ReadFile(a.cert)
		key, keyErr := a.root.ReadFile(cmp.Or(a.key, a.cert)) // as Python's load_cert_chain
		if err := errors.Join(err, keyErr); err != nil {
			return nil, err
		}
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", a.cert, err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	chain, identity := a.verifies()
	c.InsecureSkipVerify = !identity
	if chain && !identity {
		c.VerifyConnection = func(state tls.ConnectionState) error {
			options := x509.VerifyOptions{Roots: c.RootCAs, Intermediates: x509.NewCertPool()}
			for _, certificate := range state.PeerCertificates[1:] {
				options.Intermediates.AddCert(certificate)
			}
			_, err := state.PeerCertificates[0].Verify(options)
			return err
		}
	}
	return c, nil
}

// withArguments adds arguments to the query of a URL.
func withArguments(url, arguments string) string {
	switch {
	case arguments == "":
		return url
	case strings.Contains(url, "?"):
		return url + "&" + arguments
	}
	return url + "?" + arguments
}

// fillTemplate replaces the placeholders that a URL of nova_api.cell_mappings may have with the
// parts of the local connection (nova/objects/cell_mapping.py, _parse_netloc and
// format_db_url): parts stay percent-encoded as they are.
func fillTemplate(template, local string) (string, error) {
	if !strings.Contains(template, "{") {
		return template, nil
	}
	if local == "" {
		return "", errors.New("the cell's URL is a template, but there is no local connection to fill it in from")
	}
	rest, fragment, _ := strings.Cut(local, "#")
	parts := sqlalchemyURL().FindStringSubmatch(rest)
	if parts == nil {
		return "", errors.New("the local connection is not a database URL")
	}
	port := cmp.Or(parts[6], "None") // Python's text for a missing port
	filled := strings.NewReplacer("{scheme}", parts[1], "{username}", parts[2], "{password}", parts[3], "{hostname}", strings.ToLower(parts[4]+parts[5]),
		"{port}", port, "{path}", parts[7], "{query}", parts[8], "{fragment}", fragment, "{{", "{", "}}", "}").Replace(template)
	return filled, nil
}
