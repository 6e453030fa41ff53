package cleanup

import (
	"strings"
	"testing"
	"time"
)

func TestParseURL(t *testing.T) {
	for text, want := range map[string]string{
		"mysql+pymysql://nova:secret@db/nova":                        "nova secret tcp db:3306 nova",
		"mysql+pymysql://nova:p%40s%2Fs%25@10.0.0.1:3307/nova_api":   "nova p@s/s% tcp 10.0.0.1:3307 nova_api",
		"mysql://nova:a:b@db/nova":                                   "nova a:b tcp db:3306 nova",
		"mariadb+mariadbconnector://nova@[fd00::1]:3306/nova":        "nova  tcp [fd00::1]:3306 nova",
		"mysql+pymysql://nova:x@/nova?unix_socket=/run/mysqld.sock":  "nova x unix /run/mysqld.sock nova",
		"mysql+pymysql://nova:x@db/nova?charset=utf8&read_timeout=5": "nova x tcp db:3306 nova",
		"mysql+pymysql://db/nova":                                    " " + " tcp db:3306 nova",
		"postgresql://nova:secret@db/nova":                           "a database of kind postgresql is not supported",
		"sqlite:////var/lib/nova/nova.sqlite":                        "a database of kind sqlite is not supported",
		"nova:secret@db":                                             "not a database URL",
		"mysql+pymysql://nova:secret@db":                             "no database is named",
		"mysql+pymysql://nova:secret@db:port/nova":                   "what stands for the port is not a port",
		"mysql+pymysql://nova:%zz@db/nova":                           "user or password are not percent-encoded",
		"mysql+pymysql://nova:secret@db/nova?read_default_file=/x":   "argument read_default_file is not supported",
		"mysql+pymysql://nova:secret@db/nova?read_timeout=x":         `argument read_timeout: "x" is not a number of seconds`,
		"mysql+pymysql://nova:secret@db/nova?ssl_ca=/no/ca.pem":      "open /no/ca.pem: no such file or directory",
	} {
		c, err := ParseURL(text)
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
	if c, err := ParseURL("mysql+pymysql://n:x@db/nova?read_timeout=1.5&connect_timeout=3"); err != nil || c.ReadTimeout != 1500*time.Millisecond || c.Timeout != 3*time.Second || !c.ParseTime {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err := ParseURL("mysql+pymysql://n:x@db/nova?ssl_check_hostname=true"); err != nil || c.TLS == nil || c.TLS.ServerName != "db" || c.TLS.InsecureSkipVerify {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestFillTemplate: as nova/tests/unit/objects/test_cell_mapping.py has it.
func TestFillTemplate(t *testing.T) {
	const local = "mysql+pymysql://nova:p%40ss@DB.example:3306/nova_cell0?charset=utf8#frag"
	for template, want := range map[string]string{
		"mysql://a:b@c/d": "mysql://a:b@c/d",
		"{scheme}://{username}:{password}@{hostname}:{port}/nova_cell1?{query}#{fragment}": "mysql+pymysql://nova:p%40ss@db.example:3306/nova_cell1?charset=utf8#frag",
		"{scheme}://{username}:{password}@{hostname}/{path}":                               "mysql+pymysql://nova:p%40ss@db.example/nova_cell0",
	} {
		got, err := FillTemplate(template, local)
		if err != nil || got != want {
			t.Errorf("%s: %s, %v", template, got, err)
		}
	}
	if got, err := FillTemplate("{scheme}://{hostname}:{port}/x", "mysql://h/y"); err != nil || got != "mysql://h:None/x" {
		t.Errorf("%s, %v", got, err)
	}
	if _, err := FillTemplate("{scheme}://x", ""); err == nil {
		t.Error("filled from nothing")
	}
}

// FuzzParseURL: whatever the URL, what stands where a password does is in no error.
func FuzzParseURL(f *testing.F) {
	f.Add("mysql+pymysql://nova", "", "db:3306/nova?charset=utf8")
	f.Add("mysql://nova", "%40/:", "[::1/nova")
	f.Add("mysql://:1or2@[::1va", "", "")
	f.Add("hunter3://ova", "", "")
	f.Fuzz(func(t *testing.T, before, end, after string) {
		// No word of a message.
		password := "hunter2" + end
		if strings.Contains(before+after, password) || strings.Contains(before, "?") { // a parameter
			return
		}
		text := before + ":" + password + "@" + after
		if _, err := ParseURL(text); err != nil && strings.Contains(err.Error(), password) {
			t.Errorf("%q: %v", text, err)
		}
	})
}
