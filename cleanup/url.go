package cleanup

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

// sqlalchemyURL is SQLAlchemy's own pattern, of 1.4 and 2.0 (sqlalchemy/engine/url.py,
// _parse_url).
var sqlalchemyURL = regexp.MustCompile(`^([\w+]+)://(?:([^:/]*)(?::([^@]*))?@)?(?:(?:\[([^/?]+)\]|([^/:?]+))?(?::([^/?]*))?)?(?:/([^?]*))?(?:\?(.*))?$`)

// ParseURL reads a database URL as SQLAlchemy and the drivers that Nova uses with
// MySQL and MariaDB do (sqlalchemy/engine/url.py, _parse_rfc1738_args;
// sqlalchemy/dialects/mysql, create_connect_args; PyMySQL's connect): user and
// password are percent-encoded, each query argument is an argument of the driver. Its
// errors do not quote the URL, which has a password in it.
func ParseURL(text string) (*mysql.Config, error) {
	parts := sqlalchemyURL.FindStringSubmatch(text)
	if parts == nil {
		return nil, errors.New("not a database URL")
	}
	dialect, _, _ := strings.Cut(parts[1], "+")
	if dialect != "mysql" && dialect != "mariadb" {
		return nil, fmt.Errorf("a database of kind %s is not supported: only MySQL and MariaDB are", dialect)
	}
	c := mysql.NewConfig()
	var err, err2 error
	c.User, err = url.PathUnescape(parts[2])
	c.Passwd, err2 = url.PathUnescape(parts[3])
	if err != nil || err2 != nil {
		return nil, errors.New("user or password are not percent-encoded")
	}
	host, port, path, query := parts[4]+parts[5], parts[6], parts[7], parts[8]
	if host == "" {
		host = "localhost"
	}
	if port == "" {
		port = "3306"
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		// Where a password is not encoded, a part of it may stand here.
		return nil, errors.New("what stands for the port is not a port")
	}
	c.Net, c.Addr = "tcp", net.JoinHostPort(host, port)
	c.DBName = path
	if c.DBName == "" {
		return nil, errors.New("no database is named")
	}
	// What is read must be times, in UTC, whatever the server's own zone is.
	c.ParseTime, c.Loc = true, time.UTC
	c.Params = map[string]string{"time_zone": "'+00:00'"}
	c.Collation = "utf8mb4_general_ci"
	c.Timeout = 10 * time.Second
	c.Logger = &mysql.NopLogger{} // it would print; its errors are returned too
	// Of an UPDATE, the rows that it found, not only those that it changed.
	c.ClientFoundRows = true
	return c, arguments(c, host, query)
}

// arguments applies the arguments of a URL. Those that make no difference here are
// passed over: character sets, since nothing that is read has other letters than
// ASCII's, and what the pool of Nova's own connections is like.
func arguments(c *mysql.Config, host, query string) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		return errors.New("its arguments are malformed")
	}
	var errs []error
	var ssl sslArguments
	for _, key := range slices.Sorted(func(yield func(string) bool) {
		for k := range values {
			if !yield(k) {
				return
			}
		}
	}) {
		value := values.Get(key)
		seconds := func() time.Duration {
			n, err := strconv.ParseFloat(value, 64)
			if err != nil || n < 0 {
				errs = append(errs, fmt.Errorf("argument %s: %q is not a number of seconds", key, value))
			}
			return time.Duration(n * float64(time.Second))
		}
		switch key {
		case "charset", "use_unicode", "binary_prefix", "client_flag", "plugin", "plugin_options", "local_infile":
		case "unix_socket":
			c.Net, c.Addr = "unix", value
		case "connect_timeout":
			c.Timeout = seconds()
		case "read_timeout":
			c.ReadTimeout = seconds()
		case "write_timeout":
			c.WriteTimeout = seconds()
		case "ssl_ca":
			ssl.ca = value
		case "ssl_cert":
			ssl.cert = value
		case "ssl_key":
			ssl.key = value
		case "ssl_check_hostname", "ssl_verify_identity":
			on, err := strconv.ParseBool(value)
			if err != nil {
				errs = append(errs, fmt.Errorf("argument %s: %q is neither true nor false", key, value))
			}
			ssl.anyName = !on
			ssl.named = true
		case "ssl_verify_cert":
			ssl.named = true
		default:
			// Another user, another server: not to be passed over.
			errs = append(errs, fmt.Errorf("argument %s is not supported", key))
		}
	}
	if ssl != (sslArguments{}) {
		c.TLS, err = ssl.config(host)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// sslArguments are what SQLAlchemy collects into the driver's ssl.
type sslArguments struct {
	ca, cert, key  string
	anyName, named bool
}

func (s sslArguments) config(host string) (*tls.Config, error) {
	c := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	var roots *x509.CertPool
	if s.ca != "" {
		pem, err := os.ReadFile(s.ca)
		if err != nil {
			return nil, err
		}
		roots = x509.NewCertPool()
		if !roots.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s: has no certificate", s.ca)
		}
		c.RootCAs = roots
	}
	if s.cert != "" {
		pair, err := tls.LoadX509KeyPair(s.cert, s.key)
		if err != nil {
			return nil, err
		}
		c.Certificates = []tls.Certificate{pair}
	}
	if s.anyName {
		// The authority counts, the name does not.
		c.InsecureSkipVerify = true
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

// FillTemplate fills the places that a URL of nova_api.cell_mappings may have with the
// parts of the local connection (nova/objects/cell_mapping.py, _parse_netloc and
// format_db_url): parts stay percent-encoded as they are.
func FillTemplate(template, local string) (string, error) {
	if !strings.Contains(template, "{") {
		return template, nil
	}
	if local == "" {
		return "", errors.New("the cell's URL is a template, and there is no local connection to fill it from")
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
	host, port := authority, "None" // as Python writes one that is not there
	if i := strings.LastIndex(authority, ":"); i >= 0 && !strings.HasSuffix(authority, "]") {
		host, port = authority[:i], authority[i+1:]
	}
	filled := strings.NewReplacer(
		"{scheme}", scheme, "{username}", user, "{password}", password, "{hostname}", strings.Trim(strings.ToLower(host), "[]"),
		"{port}", port, "{path}", path, "{query}", query, "{fragment}", fragment, "{{", "{", "}}", "}",
	).Replace(template)
	return filled, nil
}
