package novadb

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strings"
	"syscall"

	"github.com/go-sql-driver/mysql"

	"gpustack/host"
)

// Numbers of errors with which a server refuses a connection (as above).
const (
	errorTooMany        = 1040 // ER_CON_COUNT_ERROR
	errorNoDatabase     = 1044 // ER_DBACCESS_DENIED_ERROR
	errorDenied         = 1045 // ER_ACCESS_DENIED_ERROR
	errorUnknown        = 1049 // ER_BAD_DB_ERROR
	errorHostBlocked    = 1129 // ER_HOST_IS_BLOCKED
	errorHostNotAllowed = 1130 // ER_HOST_NOT_PRIVILEGED
	errorNoTable        = 1142 // ER_TABLEACCESS_DENIED_ERROR
	errorTooManyOfUser  = 1203 // ER_TOO_MANY_USER_CONNECTIONS
	errorLimitOfUser    = 1226 // ER_USER_LIMIT_REACHED
	errorDeniedNoPass   = 1698 // ER_ACCESS_DENIED_NO_PASSWORD_ERROR, of MariaDB's unix_socket plugin too
	errorInsecure       = 3159 // ER_SECURE_TRANSPORT_REQUIRED
)

// hinted returns the error of a connection with what to do about it. what is the name of the
// database in messages, as in Open.
func hinted(what string, target *Target, err error) error {
	var other interface{ Hint() string }
	if err == nil || errors.Is(err, context.Canceled) || errors.As(err, &other) {
		return err
	}
	return host.WithHint(err, advice(source(what), target, err))
}

// hintedURL returns the error of a URL with the form that it should have.
func hintedURL(what string, err error) error {
	var other interface{ Hint() string }
	if errors.As(err, &other) || errors.Is(err, fs.ErrPermission) { // the operator sees the hint to be root
		return err
	}
	return host.WithHint(err, source(what)+" should be mysql+pymysql://USER:PASSWORD@HOST/DATABASE, with the special characters of USER and PASSWORD percent-encoded")
}

// source returns where the URL of a database comes from.
func source(what string) string {
	switch {
	case what == "api_database":
		return "the URL of nova_api (--api-database, or [api_database] connection in nova.conf)"
	case strings.HasPrefix(what, "cell "):
		return "the URL of the cell ('nova-manage cell_v2 list_cells --verbose')"
	}
	return "the URL of --database"
}

// advice returns what to do about an error of a connection.
func advice(url string, target *Target, err error) string {
	server, _, splitErr := net.SplitHostPort(target.Addr)
	if splitErr != nil {
		server = target.Addr
	}
	var noName *net.DNSError
	var dial *net.OpError
	switch {
	case errors.As(err, &noName):
		return fmt.Sprintf("check the host name in %s, and how this machine resolves it: getent hosts %s", url, noName.Name)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Sprintf("check that the database runs and listens on %s, and the address in %s", target.Addr, url)
	case target.Net == "unix" && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission)):
		return fmt.Sprintf("check that the database runs on this machine and has the socket %s, or name its host in %s", target.Addr, url)
	case errors.As(err, &dial) && dial.Op == "dial":
		return fmt.Sprintf("check the address in %s, the network and the firewalls: ip route get %s", url, server)
	}
	if text := adviceTLS(url, server, err); text != "" {
		return text
	}
	if text := adviceNumber(url, target, errorNumber(err)); text != "" {
		return text
	}
	switch {
	case errors.Is(err, mysql.ErrUnknownPlugin), errors.Is(err, mysql.ErrOldPassword), errors.Is(err, mysql.ErrCleartextPassword),
		errors.Is(err, mysql.ErrNativePassword), errors.Is(err, mysql.ErrOldProtocol):
		return "use an account whose authentication plugin is mysql_native_password, caching_sha2_password or ed25519"
	case errorNumber(err) != 0:
		return "see the log of the server at " + target.Addr
	}
	return fmt.Sprintf("check that %s, in %s, is that of a MySQL or MariaDB server, and see its log; a proxy without a server behind it answers so too",
		target.Addr, url)
}

// adviceTLS returns what to do about an error of TLS, or "".
func adviceTLS(url, server string, err error) string {
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	var alert tls.AlertError
	switch {
	case errors.Is(err, mysql.ErrNoTLS):
		return "enable TLS on the server, or remove the arguments of TLS (ssl_mode, ssl_ca and others) from " + url
	case errors.As(err, &unknown):
		return "name the certificate of the authority that has signed the server's with ssl_ca=FILE in " + url
	case errors.As(err, &name):
		return fmt.Sprintf("use a host name of the certificate in %s, not %s: openssl s_client -starttls mysql -connect %s:PORT shows its names", url, server, server)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "renew the certificate of the server, and check the time of this machine: date"
	case errors.As(err, &invalid):
		return "replace the certificate of the server, or that of ssl_ca in " + url
	case errors.As(err, &alert):
		return "see the log of the server: it may require a certificate of the client, ssl_cert and ssl_key in " + url
	}
	return ""
}

// adviceNumber returns what to do about an error that the server has sent, or "".
func adviceNumber(url string, target *Target, number uint16) string {
	switch number {
	case errorDenied, errorDeniedNoPass:
		return fmt.Sprintf("check user and password in %s: mysql --host=HOST --user=%s --password", url, target.User)
	case errorNoDatabase, errorNoTable:
		return fmt.Sprintf("grant the user the rights on the database, or use Nova's own user in %s; on the server: SHOW GRANTS FOR '%s'@'%%'", url, target.User)
	case errorUnknown:
		return fmt.Sprintf("check the name of the database in %s; on the server: SHOW DATABASES", url)
	case errorHostNotAllowed:
		return "run gpustack on a controller, from which the server accepts connections, or permit this machine's address there with CREATE USER and GRANT"
	case errorHostBlocked:
		return "on the server: FLUSH HOSTS, and look for what breaks connections from this machine"
	case errorTooMany, errorTooManyOfUser, errorLimitOfUser:
		return "wait and try again, or raise max_connections; on the server: SHOW PROCESSLIST"
	case errorInsecure:
		return "add ssl_ca=FILE, with the certificate of the server's authority, to " + url
	}
	return ""
}
