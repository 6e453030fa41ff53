package novadb

import (
	"crypto/tls"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gpustack/host"
	"gpustack/host/hosttest"
)

// machine is a root with some files.
func machine(t testing.TB, files map[string]string) host.Root {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		file := filepath.Join(dir, name)
		hosttest.NoError(t, errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o600)))
	}
	return hosttest.Root(t, dir)
}

func TestParseURL(t *testing.T) {
	root := machine(t, nil)
	for text, want := range map[string]string{
		"mysql+pymysql://nova:secret@db/nova":                          "nova secret tcp db:3306 nova",
		"mysql+pymysql://nova:p%40s%2Fs%25@10.0.0.1:3307/nova_api":     "nova p@s/s% tcp 10.0.0.1:3307 nova_api",
		"mysql://nova:a:b@db/nova":                                     "nova a:b tcp db:3306 nova",
		"mariadb+mariadbconnector://nova@[fd00::1]:3306/nova":          "nova  tcp [fd00::1]:3306 nova",
		"mysql+pymysql://nova:x@/nova?unix_socket=/run/mysqld.sock":    "nova x unix /run/mysqld.sock nova",
		"mysql+pymysql://nova:x@db/nova?charset=utf8&read_timeout=5":   "nova x tcp db:3306 nova",
		"mysql+pymysql://nova:x@db/nova?charset=utf8&plugin=dbcounter": "nova x tcp db:3306 nova", // devstack
		"mysql+pymysql://db/nova":                                      " " + " tcp db:3306 nova",
		"postgresql://nova:secret@db/nova":                             "a database of kind postgresql is not supported",
		"sqlite:////var/lib/nova/nova.sqlite":                          "a database of kind sqlite is not supported",
		"nova:secret@db":                                               "not a database URL",
		"mysql+pymysql://nova:secret@db":                               "no database is named",
		"mysql+pymysql://nova:secret@db:port/nova":                     "the port is not a number from 1 to 65535",
		"mysql+pymysql://nova:%zz@db/nova":                             "user, password or arguments are not percent-encoded",
		"mysql+pymysql://nova:p@secret@db/nova":                        "the URL has an @ that is not percent-encoded: write each @ of the password as %40",
		"mysql+pymysql://nova:p@s/secret@db/nova":                      "the URL has an @ that is not percent-encoded: write each @ of the password as %40",
		"mysql+pymysql://nova:p@s/s?secret@db/nova":                    "the URL has an @ that is not percent-encoded: write each @ of the password as %40",
		"mysql+pymysql://nova:p@s/s?secret=1&x@db/nova":                "the URL has an @ that is not percent-encoded: write each @ of the password as %40",
		"mysql+pymysql://nova:p@s/s?read_timeout=secret@db/nova":       "the URL has an @ that is not percent-encoded: write each @ of the password as %40",
		"mysql+pymysql://nova:p@secret!/nova":                          "the host is not a host name or an IP address: the password may have characters that must be percent-encoded, such as @ as %40",
		"mysql+pymysql://nova:p@[secret$]/nova":                        "the host is not a host name or an IP address",
		"mysql+pymysql://nova:x@db_1.Example-2.org/nova":               "nova x tcp db_1.Example-2.org:3306 nova",
		"mysql+pymysql://nova:x@[fe80::1%eth0.5]:3306/nova":            "nova x tcp [fe80::1%eth0.5]:3306 nova",
		"mysql+pymysql://nova:x@db/nova?ssl_ca=/no%40where":            "/no@where: no such file or directory",
		"mysql+pymysql://nova:x@db/nova?client_flag=2048":              "argument client_flag is not supported",
		"mysql+pymysql://nova:secret@db/nova?cursorclass=x":            "argument cursorclass is not supported",
		"mysql+pymysql://nova:secret@db/nova?ssl_mode=required&x=1":    "argument x is not supported",
		"mysql+pymysql://nova:secret@db/nova?ssl_mode=always":          `argument ssl_mode: "ALWAYS" is not one of DISABLED, REQUIRED`,
		"mysql+pymysql://nova:secret@db/nova?ssl_ca=/a&ssl_ca=/b":      "argument ssl_ca is given twice",
		"mysql+pymysql://nova:x@db/nova?passwd=secret":                 "argument passwd is not supported",
		"mysql+pymysql://nova:x@db/nova?init_command=SET":              "argument init_command is not supported",
		"mysql+pymysql://nova:x@db/nova?a=%zz":                         "user, password or arguments are not percent-encoded",
		"mysql+pymysql://nova:secret@db/nova?read_timeout=":            "nova secret tcp db:3306 nova",
		"mysql://nova:x@db/nova?unix_socket=/run/mysqld.sock":          "nova x tcp db:3306 nova",
		"mysql://nova:x@localhost/nova?unix_socket=/run/s":             "nova x unix /run/s nova",
		"mysql+pymysql://nova:secret@db/nova?read_timeout=x":           `argument read_timeout: "x" is not a number of seconds`,
		"mysql+pymysql://nova:secret@db/nova?write_timeout=-1":         `argument write_timeout: "-1" is not a number of seconds`,
		"mysql+pymysql://nova:secret@db/nova?port=3307":                "argument port is not supported",
		"mysql+pymysql://nova:secret@db/nova?ssl_verify_cert=maybe":    `argument ssl_verify_cert: "maybe" is not true or false`,
		"mysql+pymysql://nova:secret@db/nova?ssl_ca=/no/ca.pem":        "/no/ca.pem: no such file or directory",
	} {
		c, err := ParseURL(root, text)
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = strings.Join([]string{c.User, c.Passwd, c.Net, c.Addr, c.DBName}, " ")
		}
		if !strings.HasPrefix(got, want) || err != nil && strings.Contains(got, "secret") {
			t.Errorf("%s: %s\nwant %s", text, got, want)
		}
	}
	if c, err := ParseURL(root, "mysql+pymysql://n:x@db/nova?read_timeout=1.5&connect_timeout=3"); err != nil ||
		c.ReadTimeout != 1500*time.Millisecond || c.Timeout != 3*time.Second || !c.ParseTime {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err := ParseURL(root, "mysql+pymysql://n:x@db/nova?ssl_mode=VERIFY_IDENTITY"); err != nil || c.TLS == nil ||
		c.TLS.ServerName != "db" || c.TLS.InsecureSkipVerify {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestReadDefaults: what the option file says counts where the URL does not. What the drivers read
// differently is refused.
func TestReadDefaults(t *testing.T) {
	const pymysql, mysqldb = "mysql+pymysql://", "mysql://"
	const tripleo = "/nova?read_default_file=/etc/my.cnf.d/tripleo.cnf&read_default_group=tripleo"
	const at = "/etc/my.cnf.d/tripleo.cnf:"
	for name, test := range map[string]struct {
		file, url, want string
	}{
		"as TripleO has it":        {"[tripleo]\nbind-address=172.16.2.10\nssl=0\n", pymysql + "nova:x@db" + tripleo, "nova x db:3306 172.16.2.10"},
		"the URL counts first":     {"[tripleo]\nuser=a\npassword=b\nhost=c\nport=1\n", pymysql + "nova:x@db:2" + tripleo, "nova x db:2 "},
		"what the URL lacks":       {"[tripleo]\nuser = a\npassword = 'b # c'\nhost=c\nport=1\n", pymysql + tripleo, "a b # c c:1 "},
		"no host":                  {"[tripleo]\nhost=secret@db\n", pymysql + tripleo, "the host is not a host name or an IP address"},
		"no port":                  {"[tripleo]\nport=secret\n", pymysql + tripleo, at + " the port is not a number"},
		"an encrypted key":         {"[tripleo]\nssl-password=secret\n", pymysql + tripleo, at + " ssl-password is not supported"},
		"other TLS":                {"[tripleo]\nssl_enforce=1\n", mysqldb + tripleo, at + " ssl-enforce is not supported"},
		"of no consequence":        {"[tripleo]\ndefault-character-set=utf8\ntls-version=TLSv1.2\nhost=c\n[mysqld]\nssl-crl=/x\n", mysqldb + tripleo, "  c:3306 "},
		"another group":            {"[client]\nhost=c\n", pymysql + tripleo, "  localhost:3306 "},
		"another group, of both":   {"[client]\nhost=c\n", mysqldb + tripleo, at + "1: the drivers differ in whether they read the group client"},
		"[DEFAULT]":                {"[DEFAULT]\nhost=c\n", pymysql + tripleo, at + "1: the drivers differ in whether they read the group DEFAULT"},
		"client by default":        {"[client]\nhost=c\n", pymysql + "/nova?read_default_file=/etc/my.cnf.d/tripleo.cnf", "  c:3306 "},
		"a socket":                 {"[tripleo]\nsocket=/run/s\n", pymysql + "db" + tripleo, "  /run/s "},
		"a group twice":            {"[tripleo]\n[tripleo]\n", pymysql + tripleo, at + "2: a group is there twice"},
		"an option twice":          {"[tripleo]\nuser=secret\nuser=secret\n", pymysql + tripleo, at + "3: user is there twice"},
		"in no group":              {"b=secret\n", pymysql + tripleo, at + "1: an option before the first group"},
		"continued":                {"[tripleo]\npassword=\n secret\n", pymysql + tripleo, at + "3: an indented line"},
		"a colon":                  {"[tripleo]\npassword : secret\n", pymysql + tripleo, at + "2: not an option"},
		"capitals":                 {"[tripleo]\nUser=secret\n", pymysql + tripleo, at + "2: not an option"},
		"a backslash":              {"[tripleo]\npassword=\"secret\\s\"\n", mysqldb + tripleo, at + "2: the drivers differ in a value with a backslash"},
		"a comment or not":         {"[tripleo]\npassword=secret #x\n", mysqldb + tripleo, at + "2: the drivers differ in a value with a backslash, or with a #"},
		"a directive":              {"[tripleo]\n!include /etc/more.d/a.cnf\n", mysqldb + tripleo, at + "2: an option before the first group, or a directive"},
		"a relative path":          {"", pymysql + "db/nova?read_default_file=my.cnf", `argument read_default_file: "my.cnf" is not an absolute path`},
		"only a group":             {"", pymysql + "/nova?read_default_group=etc", `argument read_default_file: "" is not an absolute path`},
		"a file that is not there": {"", pymysql + "nova:secret@db/nova?read_default_file=/etc/none.cnf", "read_default_file: /etc/none.cnf: no such file or directory"},
	} {
		t.Run(name, func(t *testing.T) {
			target, err := ParseURL(machine(t, map[string]string{"etc/my.cnf.d/tripleo.cnf": test.file}), test.url)
			got := ""
			if err != nil {
				got = err.Error()
			} else {
				got = strings.Join([]string{target.User, target.Passwd, target.Addr, target.Bind}, " ")
			}
			if err == nil && got != test.want || !strings.HasPrefix(got, test.want) || err != nil && strings.Contains(got, "secret") {
				t.Errorf("%s\nwant %s", got, test.want)
			}
		})
	}
}

// TestTLS: what a driver verifies is verified, and at least what the URL asks for.
func TestTLS(t *testing.T) {
	root := machine(t, map[string]string{"etc/ca.pem": authority,
		"etc/my.cnf": "[client]\nssl-ca=/etc/ca.pem\n[on]\nssl\n[off]\nssl=0\n[both]\nssl=1\nssl-ca=/etc/ca.pem\n"})
	const file = "mysql+pymysql://db/nova?read_default_file=/etc/my.cnf"
	for url, want := range map[string]string{
		"mysql+pymysql://db/nova":                                          "none",
		"mysql+pymysql://db/nova?ssl_ca=/etc/ca.pem":                       "name",
		"mysql+pymysql://db/nova?ssl_ca=/etc/ca.pem&ssl_verify_cert=true":  "authority",
		"mysql+pymysql://db/nova?ssl_verify_cert=true":                     "authority",
		"mysql+pymysql://db/nova?ssl_ca=/etc/ca.pem&ssl_verify_cert=false": "nothing",
		file:                              "name",
		file + "&read_default_group=on":   "name",
		file + "&read_default_group=off":  "none",
		file + "&read_default_group=both": "name",
		file + "&read_default_group=on&ssl_mode=DISABLED":             "none",
		"mysql://db/nova?ssl_mode=REQUIRED":                           "nothing",
		"mysql://db/nova?ssl_mode=required&ssl_ca=/etc/ca.pem":        "authority",
		"mysql://db/nova?ssl_mode=VERIFY_CA":                          "authority",
		"mysql://db/nova?ssl_mode=VERIFY_IDENTITY&ssl_ca=/etc/ca.pem": "name",
		"mysql://db/nova?ssl_mode=DISABLED":                           "none",
		"mysql+pymysql://db/nova?ssl_verify_cert=false":               "nothing",

		// Of several arguments, the strictest counts.
		"mysql://db/nova?ssl_mode=VERIFY_IDENTITY&ssl_verify_cert=false": "name",
		"mysql://db/nova?ssl_mode=VERIFY_CA&ssl_verify_cert=false":       "authority",
		"mysql://db/nova?ssl_mode=REQUIRED&ssl_verify_cert=true":         "authority",
	} {
		target, err := ParseURL(root, url)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		hosttest.EqualIn(t, url, want, verified(target.TLS, target.AllowFallbackToPlaintext))
	}
	for url, want := range map[string]string{
		"mysql://db/nova?ssl_ca=/etc/my.cnf":                     "/etc/my.cnf: has no certificate",
		"mysql://db/nova?ssl_cert=/etc/no":                       "no such file or directory",
		"mysql://db/nova?ssl_cert=/etc/my.cnf":                   "/etc/my.cnf: tls: failed to find any PEM data",
		"mysql://db/nova?ssl_mode=DISABLED&ssl_ca=/etc/ca.pem":   "ssl_mode DISABLED conflicts with other TLS arguments",
		file + "&ssl_mode=DISABLED":                              "ssl_mode DISABLED conflicts with other TLS arguments, of the URL or of the option file",
		"mysql://db/nova?ssl_mode=PREFERRED":                     `argument ssl_mode: "PREFERRED" is not one of`,
		"mysql://db/nova?ssl_disabled=true":                      "argument ssl_disabled is not supported",
		"mysql+pymysql://db/nova?ssl_check_hostname=true":        "argument ssl_check_hostname is not supported",
		"mysql+pymysql://db/nova?ssl_verify_identity=true":       "argument ssl_verify_identity is not supported",
		"mysql://db/nova?ssl_mode=DISABLED&ssl_verify_cert=true": "ssl_mode DISABLED conflicts with other TLS arguments",
		"mysql+pymysql://db/nova?ssl_cipher=HIGH":                "argument ssl_cipher is not supported",
		"mysql+pymysql://db/nova?ssl_capath=/etc":                "argument ssl_capath is not supported",
		"mysql+pymysql://db/nova?ssl_key_password=x":             "argument ssl_key_password is not supported",
		"mysql://db/nova?ssl=1":                                  "argument ssl is not supported",
	} {
		if _, err := ParseURL(root, url); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", url, err, want)
		}
	}
}

func verified(c *tls.Config, fallback bool) string {
	switch {
	case c == nil:
		return "none"
	case fallback:
		return "nothing, or none"
	case !c.InsecureSkipVerify:
		return "name"
	case c.VerifyConnection != nil:
		return "authority"
	}
	return "nothing"
}

// TestFillTemplate: as nova/tests/unit/objects/test_cell_mapping.py has it.
func TestFillTemplate(t *testing.T) {
	const local = "mysql+pymysql://nova:p%40ss@DB.example:3306/nova_cell0?charset=utf8#frag"
	for template, want := range map[string]string{
		"mysql://a:b@c/d": "mysql://a:b@c/d",
		"{scheme}://{username}:{password}@{hostname}:{port}/nova_cell1?{query}#{fragment}": "mysql+pymysql://nova:p%40ss@db.example:3306/nova_cell1?charset=utf8#frag",
		"{scheme}://{username}:{password}@{hostname}/{path}":                               "mysql+pymysql://nova:p%40ss@db.example/nova_cell0",
	} {
		got, err := fillTemplate(template, local)
		if err != nil || got != want {
			t.Errorf("%s: %s, %v", template, got, err)
		}
	}
	if got, err := fillTemplate("{scheme}://{hostname}:{port}/x", "mysql://h/y"); err != nil || got != "mysql://h:None/x" {
		t.Errorf("%s, %v", got, err)
	}
	if _, err := fillTemplate("{scheme}://x", ""); err == nil {
		t.Error("filled from nothing")
	}
}

// FuzzParseURL: whatever the URL, no part of the password is in an error, nor in what errors of
// connecting quote: the address, the database and the address to connect from. The password
// may have any characters that are not percent-encoded, an @ among them.
func FuzzParseURL(f *testing.F) {
	f.Add("mysql+pymysql://nova", "", "", "db:3306/nova?charset=utf8")
	f.Add("mysql://nova", "", "%40/:", "[::1/nova")
	f.Add("mysql://", "", "1or2@[::1va", "")
	f.Add("hunter3://ova", "", "", "")
	f.Add("mysql+pymysql://nova", "p@", "", "db/nova")
	f.Add("mysql+pymysql://nova", "p@s/", "", "db/nova")
	f.Add("mysql+pymysql://nova", "p@s/s?", "=1", "db/nova")
	f.Add("mysql+pymysql://nova", "p@s?read_timeout=", "", "db/nova")
	f.Add("mysql+pymysql://nova", "p@[", "]", "db/nova")
	root := machine(f, nil)
	f.Fuzz(func(t *testing.T, before, start, end, after string) {
		const word = "hunter2"                                                         // in no message
		if strings.Contains(before+after, word) || strings.ContainsAny(before, "?@") { // not a password
			return
		}
		text := before + ":" + start + word + end + "@" + after
		target, err := ParseURL(root, text)
		if err != nil && strings.Contains(err.Error(), word) {
			t.Errorf("%q: %v", text, err)
		}
		if err == nil && strings.Contains(target.Addr+target.DBName+target.Bind, word) {
			t.Errorf("%q: %s %s %s", text, target.Addr, target.DBName, target.Bind)
		}
	})
}

// FuzzReadDefaults: whatever the option file, no line of it is in an error but the port.
func FuzzReadDefaults(f *testing.F) {
	f.Add("[client]\npassword = ", "\nhost=db\n", false)
	f.Add("[client]\npassword=\"\\", "\" #", true)
	f.Add("password", "\n[client", true)
	f.Add("[client]\n!includedir /etc\npassword=", "\n port=1", true)
	root := machine(f, map[string]string{"etc/more.cnf": "[client]\nhost=db\n"})
	f.Fuzz(func(t *testing.T, before, after string, mysqldb bool) {
		const password = "hunter2"
		last := before[strings.LastIndexAny(before, "\n\r")+1:]
		if strings.Contains(last, "!") || strings.Contains(strings.ToLower(last), "p") && strings.Contains(last, "port") || strings.Contains(last, "ssl") {
			return // a path, a port or a mode, which errors show
		}
		text := before + password + after
		hosttest.NoError(t, errors.Join(os.MkdirAll(root.Path("etc/my"), 0o755), os.WriteFile(root.Path("etc/my/my.cnf"), []byte(text), 0o600)))
		url := "mysql+pymysql:///nova?read_default_file=/etc/my/my.cnf"
		if mysqldb {
			url = "mysql:///nova?read_default_file=/etc/my/my.cnf"
		}
		if _, err := ParseURL(root, url); err != nil && strings.Contains(err.Error(), password) {
			t.Errorf("%q: %v", text, err)
		}
	})
}

// authority is the certificate of an authority without a key.
const authority = `-----BEGIN CERTIFICATE-----
MIIBQTCB56ADAgECAgEBMAoGCCqGSM49BAMCMA8xDTALBgNVBAMTBHRlc3QwIBcN
NzAwMTAxMDAwMDAwWhgPMjEwMDAxMDEwMDAwMDBaMA8xDTALBgNVBAMTBHRlc3Qw
WTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAAQZwcflwAWxT4sBvEYFqd6CEWUBx1N1
jffp9RIXM9YQ0gwt+mx46AzDZqbNo+j5CbSiFqOSTtM80PCNExFe+p7SozIwMDAP
BgNVHRMBAf8EBTADAQH/MB0GA1UdDgQWBBRAGqB8rlFFiM+kBqgcfHd4YKpxCjAK
BggqhkjOPQQDAgNJADBGAiEAlZSv14uv08V/+3R3FsZ8DNSrT/hEu4xBBHvWmu2c
bmUCIQDGv8sUwKz+ejkOR5ie0j3Sads3IBsTOtBbSwEfPMaSpg==
-----END CERTIFICATE-----
`
