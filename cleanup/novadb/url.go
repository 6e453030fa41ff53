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
	"path"
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
	Init string // statement that each new connection runs first; "" is none
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

// ParseURL reads a database URL as SQLAlchemy and the drivers that Nova uses with
// MySQL and MariaDB do (sqlalchemy/engine/url.py, _parse_rfc1738_args;
// sqlalchemy/dialects/mysql/mysqldb.py, create_connect_args; pymysql/connections.py,
// Connection.__init__; MySQLdb/connections.py): user and password are percent-encoded,
// each query argument is an argument of the driver, and values that the URL lacks come
// from read_default_file. Certificates, keys and option files are read below the root; a
// socket is an address, and is used as it is. Errors do not quote the URL, because it
// contains a password. A URL is refused if a part of a password that is not percent-encoded
// can stand where the drivers look for the host, the database or an argument.
func ParseURL(root host.Root, text string) (*Target, error) {
	parts := sqlalchemyURL().FindStringSubmatch(text)
	if parts == nil {
		return nil, errors.New("not a database URL")
	}
	dialect, driver, _ := strings.Cut(parts[1], "+")
	if dialect != "mysql" && dialect != "mariadb" {
		return nil, fmt.Errorf("a database of kind %s is not supported: only MySQL and MariaDB are", dialect)
	}
	if strings.Contains(strings.Join(parts[4:8], ""), "@") || hasUnencodedAt(parts[8]) {
		return nil, errors.New("the URL has an @ that is not percent-encoded: write each @ of the password as %40")
	}
	a := arguments{root: root, mysqldb: driver == "" || driver == "mysqldb"}
	var err, err2 error
	a.user, err = url.PathUnescape(parts[2])
	a.password, err2 = url.PathUnescape(parts[3])
	if err != nil || err2 != nil {
		return nil, errors.New("user or password are not percent-encoded")
	}
	a.host, a.port, a.database = parts[4]+parts[5], parts[6], parts[7]
	if a.port != "" {
		if err := checkPort(a.port); err != nil {
			// This may be a part of a password that is not encoded, so the error has no text of it.
			return nil, errors.New("the port is not a number from 1 to 65535")
		}
	}
	errs := a.apply(queryArguments(parts[8]))
	if len(errs) == 0 {
		errs = append(errs, a.readDefaults())
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return a.target()
}

// checkPort returns an error unless the text is the number of a port.
func checkPort(text string) error {
	if n, err := strconv.Atoi(text); err != nil || n < 1 || n > 65535 {
		return fmt.Errorf("%q is not a port", text)
	}
	return nil
}

// hasUnencodedAt returns whether the query of a URL has an @ in a place where no valid URL has
// one: in a name, or in a value that is a number, a file, a host or a setting.
func hasUnencodedAt(query string) bool {
	for part := range strings.SplitSeq(query, "&") {
		key, _, _ := strings.Cut(part, "=")
		if strings.Contains(part, "@") && !slices.Contains([]string{"user", "password", "passwd", "init_command"}, key) {
			return true
		}
	}
	return false
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

// clientSSL is the flag by which a client asks for TLS (dev.mysql.com/doc, "Capabilities
// Flags"). The drivers set it themselves: given as an argument, it does not turn on TLS.
const clientSSL = 0x800

// queryArguments parses the query of a URL as SQLAlchemy does, with Python's parse_qsl:
// arguments without a value are dropped. Repeated arguments keep all their values.
func queryArguments(query string) map[string][]string {
	values := map[string][]string{}
	for part := range strings.SplitSeq(query, "&") {
		if key, value, _ := strings.Cut(part, "="); value != "" {
			values[unquote(key)] = append(values[unquote(key)], unquote(value))
		}
	}
	return values
}

// unquote decodes a key or a value of a query as Python's parse_qsl does, which leaves a
// percent sign unchanged that does not begin a code.
func unquote(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '+':
			c = ' '
		case c == '%' && i+2 < len(text):
			if code, err := strconv.ParseUint(text[i+1:i+3], 16, 8); err == nil {
				c = byte(code)
				i += 2
			}
		}
		b.WriteByte(c)
	}
	return b.String()
}

// arguments are the values of a connection, from a URL and from its option file.
type arguments struct {
	root    host.Root
	mysqldb bool // the driver is mysqlclient; the arguments of all others are PyMySQL's

	user, password, host, port, database, socket string
	bind, init                                   string
	connect, read, write                         time.Duration
	file, group                                  string // read_default_file, read_default_group
	tls                                          tlsArguments
}

// apply applies the arguments of a URL. It ignores those that make no difference here:
// character sets, autocommit and the SQL mode, which every connection sets (sessionSettings);
// and settings of Nova's own connections. An unknown argument is an
// error: it may mean another user, another server, or TLS.
func (a *arguments) apply(values map[string][]string) (errs []error) {
	named := map[string]string{} // the password and the database, which have two names each
	texts := a.texts()
	for _, key := range slices.Sorted(maps.Keys(values)) {
		v := argument{key: key, value: values[key][0]}
		if len(values[key]) > 1 {
			errs = append(errs, fmt.Errorf("argument %s is given twice", key))
			continue
		}
		if into, ok := texts[key]; ok {
			*into = v.value
			continue
		}
		switch key {
		case "charset", "collation", "use_unicode", "binary_prefix", "plugin", "plugin_options", "local_infile",
			"sql_mode", "autocommit", "program_name", "max_allowed_packet", "compress", "auth_plugin":
		case "client_flag":
			if n, err := strconv.ParseUint(v.value, 10, 32); err != nil || n&clientSSL != 0 {
				v.fail(fmt.Sprintf("a number without CLIENT_SSL (%d)", clientSSL))
			}
		case "connect_timeout":
			a.connect = v.seconds()
		case "read_timeout":
			a.read = v.seconds()
		case "write_timeout":
			a.write = v.seconds()
		case "port":
			if err := checkPort(v.value); err != nil {
				v.fail("a port")
			}
			a.port = v.value
		case "password", "database", "passwd", "db":
			named[key] = v.value
		default:
			if !a.tls.apply(&v) {
				errs = append(errs, fmt.Errorf("argument %s is not supported", key))
			}
		}
		errs = append(errs, v.errs...)
	}
	a.resolveNames(named)
	return errs
}

// texts returns where arguments go whose value can be any text.
func (a *arguments) texts() map[string]*string {
	return map[string]*string{
		"user": &a.user, "host": &a.host, "unix_socket": &a.socket, "bind_address": &a.bind, "init_command": &a.init,
		"read_default_file": &a.file, "read_default_group": &a.group,
		"ssl_ca": &a.tls.ca, "ssl_capath": &a.tls.capath, "ssl_cert": &a.tls.cert, "ssl_key": &a.tls.key, "ssl_cipher": &a.tls.cipher,
	}
}

// apply applies an argument, if it is one of TLS.
func (t *tlsArguments) apply(v *argument) bool {
	switch v.key {
	case "ssl_check_hostname", "ssl_verify_identity":
		if on := v.truth(); t.identity == nil || *on {
			t.identity = on
		}
	case "ssl_verify_cert":
		t.chain = v.truth()
	case "ssl_disabled":
		// PyMySQL treats any value that is not empty as true.
		if t.disabled = *v.truth(); !t.disabled {
			v.fail("true, and PyMySQL disables TLS for any value")
		}
	case "ssl_mode", "ssl-mode":
		if t.mode = strings.ToUpper(v.value); !slices.Contains(tlsModes, t.mode) {
			v.fail("one of " + strings.Join(tlsModes, ", "))
		}
	default:
		return false
	}
	return true
}

// argument is one of the arguments of a URL, with what is wrong with its value.
type argument struct {
	key, value string
	errs       []error
}

func (v *argument) fail(want string) {
	v.errs = append(v.errs, fmt.Errorf("argument %s: %q is not %s", v.key, v.value, want))
}

func (v *argument) seconds() time.Duration {
	n, err := strconv.ParseFloat(v.value, 64)
	if err != nil || !(n >= 0 && n <= 365*24*3600) {
		v.fail("a number of seconds")
	}
	return time.Duration(n * float64(time.Second))
}

func (v *argument) truth() *bool {
	on, err := parseTruth(v.value)
	if err != nil {
		v.fail("true or false")
	}
	return &on
}

// resolveNames chooses between password and passwd, and between database and db. PyMySQL
// prefers password and database, also those before the query of the URL; mysqlclient
// prefers arguments of either name.
func (a *arguments) resolveNames(given map[string]string) {
	if a.mysqldb {
		a.password = cmp.Or(given["password"], given["passwd"], a.password)
		a.database = cmp.Or(given["database"], given["db"], a.database)
		return
	}
	a.password = cmp.Or(given["password"], a.password, given["passwd"])
	a.database = cmp.Or(given["database"], a.database, given["db"])
}

// readDefaults reads values that the URL lacks from read_default_file.
func (a *arguments) readDefaults() error {
	options, err := a.options()
	if err != nil || options == nil {
		return err
	}
	for key, into := range map[string]*string{
		"user": &a.user, "password": &a.password, "host": &a.host, "port": &a.port, "database": &a.database, "socket": &a.socket, "bind-address": &a.bind,
		"ssl-ca": &a.tls.ca, "ssl-capath": &a.tls.capath, "ssl-cert": &a.tls.cert, "ssl-key": &a.tls.key, "ssl-cipher": &a.tls.cipher,
	} {
		*into = cmp.Or(*into, options[key])
	}
	var errs []error
	fail := func(key string, err error) {
		errs = append(errs, fmt.Errorf("%s: %s: %w", a.file, key, err))
	}
	if _, there := options["port"]; there || a.port != "" {
		if err := checkPort(a.port); err != nil {
			fail("port", err)
		}
	}
	if !a.mysqldb { // PyMySQL reads no other option, neither ssl nor ssl-mode
		if options["ssl-password"] != "" { // switches TLS on in PyMySQL 1.1
			errs = append(errs, fmt.Errorf("%s: ssl-password is not supported", a.file))
		}
		return errors.Join(errs...)
	}
	a.init = cmp.Or(a.init, options["init-command"])
	truth := func(key string) bool {
		value, there := options[key]
		if !there {
			return false
		}
		on, err := parseTruth(cmp.Or(value, "1")) // an option without a value is switched on
		if err != nil {
			fail(key, err)
		}
		return on
	}
	mode := strings.ToUpper(options["ssl-mode"])
	if truth("ssl") {
		mode = cmp.Or(mode, "REQUIRED")
	}
	if mode != "" && !slices.Contains(tlsModes, mode) {
		fail("ssl-mode", fmt.Errorf("%q is not one of %s", mode, strings.Join(tlsModes, ", ")))
	}
	a.tls.mode = cmp.Or(a.tls.mode, mode)
	if on := truth("ssl-verify-server-cert"); on && a.tls.identity == nil {
		a.tls.identity = &on
	}
	return errors.Join(errs...)
}

// target returns the configuration of the driver for the arguments.
func (a *arguments) target() (*Target, error) {
	server, port := cmp.Or(a.host, "localhost"), cmp.Or(a.port, "3306")
	if err := errors.Join(checkHost(server), a.tls.check(a.mysqldb)); err != nil {
		return nil, err
	}
	c := mysql.NewConfig()
	c.User, c.Passwd, c.DBName = a.user, a.password, a.database
	if c.DBName == "" {
		return nil, errors.New("no database is named")
	}
	c.Net, c.Addr = "tcp", net.JoinHostPort(server, port)
	// mysqlclient connects to a socket only for the host localhost.
	if a.socket != "" && (!a.mysqldb || server == "localhost") {
		c.Net, c.Addr = "unix", a.socket
	}
	c.ParseTime, c.Loc = true, time.UTC
	c.Collation = collation
	c.Timeout, c.ReadTimeout, c.WriteTimeout = a.connect, a.read, a.write
	c.Logger = &mysql.NopLogger{} // the default one prints errors that are returned anyway
	// An UPDATE returns the number of rows found, not only of those changed.
	c.ClientFoundRows = true
	var err error
	if c.TLS, err = a.tls.config(a.root, server, a.mysqldb); err != nil && !errors.Is(err, fs.ErrPermission) {
		err = host.WithHint(err, "check the files that ssl_ca, ssl_capath, ssl_cert and ssl_key of the URL name")
	}
	c.AllowFallbackToPlaintext = a.tls == tlsArguments{mode: "PREFERRED"} // and no other argument
	return &Target{Config: c, Bind: a.bind, Init: a.init}, err
}

// parseTruth reads a boolean as SQLAlchemy does (sqlalchemy/util/langhelpers.py, asbool).
func parseTruth(text string) (bool, error) {
	switch strings.ToLower(strings.TrimSpace(text)) {
	case "true", "yes", "on", "y", "t", "1":
		return true, nil
	case "false", "no", "off", "n", "f", "0":
		return false, nil
	}
	return false, fmt.Errorf("%q is not true or false", text)
}

// tlsModes are the values of ssl_mode (MySQLdb/_mysql.c, _get_ssl_mode_num).
var tlsModes = []string{"DISABLED", "PREFERRED", "REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY"}

// tlsArguments are the arguments of TLS, which SQLAlchemy collects into the driver's ssl.
type tlsArguments struct {
	ca, capath, cert, key string
	cipher                string // switches TLS on; the ciphers are those of Go
	mode                  string // one of tlsModes, "" if not given
	chain, identity       *bool  // whether to verify the authority, and the name; nil if not given
	disabled              bool
}

// check returns an error for arguments with which some drivers and libraries use TLS and
// others do not.
func (t tlsArguments) check(mysqldb bool) error {
	others := t
	others.mode, others.disabled = "", false
	switch {
	case t.disabled && mysqldb:
		return errors.New("argument ssl_disabled is not supported by mysqlclient: use ssl_mode=DISABLED")
	case t.disabled && t.mode != "" && t.mode != "DISABLED":
		return fmt.Errorf("ssl_disabled conflicts with ssl_mode %s", t.mode)
	case t.mode == "DISABLED" && !t.disabled && others != tlsArguments{}:
		// mysqlclient has TLS with the library of MariaDB, which has no ssl_mode
		// (MySQLdb/_mysql.c, _mysql_ConnectionObject_Initialize).
		return errors.New("ssl_mode DISABLED conflicts with other TLS arguments, of the URL or of the option file")
	}
	return nil
}

// verifies returns whether to verify that an authority has signed the server's
// certificate, and that the certificate has the server's name. It is at least what the
// driver verifies, and the strictest that an argument demands. If PyMySQL verifies nothing because
// no authority is given, the authorities of the machine that gpustack runs on are used. An
// argument that is false limits what PyMySQL verifies by default; mysqlclient ignores or refuses
// such an argument.
func (t tlsArguments) verifies(mysqldb bool) (chain, identity bool) {
	switch {
	case t.mode != "":
		identity = t.mode == "VERIFY_IDENTITY"
		chain = t.mode == "VERIFY_CA" || t.ca != "" || t.capath != ""
	case mysqldb:
		chain = true
	case t.chain == nil: // PyMySQL verifies no name by default where ssl_verify_cert is given
		chain, identity = true, t.identity == nil
	}
	identity = identity || t.identity != nil && *t.identity
	chain = chain || identity || t.chain != nil && *t.chain
	return chain, identity
}

// config returns the TLS configuration, nil for a connection without TLS.
func (t tlsArguments) config(root host.Root, server string, mysqldb bool) (*tls.Config, error) {
	if t == (tlsArguments{}) || t.disabled || t.mode == "DISABLED" {
		return nil, nil
	}
	roots, err := t.authorities(root)
	if err != nil {
		return nil, err
	}
	c := &tls.Config{ServerName: server, MinVersion: tls.VersionTLS12, RootCAs: roots}
	if t.cert != "" {
		cert, err := root.ReadFile(t.cert)
		key, keyErr := root.ReadFile(cmp.Or(t.key, t.cert)) // as Python's load_cert_chain
		if err := errors.Join(err, keyErr); err != nil {
			return nil, err
		}
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.cert, err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	chain, identity := t.verifies(mysqldb)
	c.InsecureSkipVerify = !identity
	if chain && !identity {
		c.VerifyConnection = func(state tls.ConnectionState) error {
			options := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
			for _, certificate := range state.PeerCertificates[1:] {
				options.Intermediates.AddCert(certificate)
			}
			_, err := state.PeerCertificates[0].Verify(options)
			return err
		}
	}
	return c, nil
}

// hashed are the names by which OpenSSL finds authorities in a directory.
var hashed = host.LazyRegexp(`^[0-9a-f]{8}\.[0-9]+$`)

// authorities reads ssl_ca and ssl_capath. It returns nil if neither is given.
func (t tlsArguments) authorities(root host.Root) (*x509.CertPool, error) {
	if t.ca == "" && t.capath == "" {
		return nil, nil
	}
	roots, found := x509.NewCertPool(), false
	var files []string
	if t.ca != "" {
		files = append(files, t.ca)
	}
	if t.capath != "" {
		names, err := root.ReadDir(t.capath)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if hashed().MatchString(name) {
				files = append(files, path.Join(t.capath, name))
			}
		}
	}
	for _, file := range files {
		pem, err := root.ReadFile(file)
		if err != nil {
			return nil, err
		}
		found = roots.AppendCertsFromPEM(pem) || found
	}
	if !found {
		return nil, fmt.Errorf("%s: has no certificate", cmp.Or(t.ca, t.capath))
	}
	return roots, nil
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
	scheme, rest, ok := strings.Cut(local, "://")
	if !ok {
		return "", errors.New("the local connection is not a database URL")
	}
	rest, fragment, _ := strings.Cut(rest, "#")
	rest, query, _ := strings.Cut(rest, "?")
	authority, path, _ := strings.Cut(rest, "/")
	user, password := "", ""
	if at := strings.LastIndex(authority, "@"); at >= 0 {
		user, password, _ = strings.Cut(authority[:at], ":")
		authority = authority[at+1:]
	}
	host, port := authority, "None" // Python's text for a missing port
	if i := strings.LastIndex(authority, ":"); i >= 0 && !strings.HasSuffix(authority, "]") {
		host, port = authority[:i], authority[i+1:]
	}
	filled := strings.NewReplacer(
		"{scheme}", scheme, "{username}", user, "{password}", password, "{hostname}", strings.Trim(strings.ToLower(host), "[]"),
		"{port}", port, "{path}", path, "{query}", query, "{fragment}", fragment, "{{", "{", "}}", "}",
	).Replace(template)
	return filled, nil
}
