package db

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/cleanup"
	"gpustack/host"
)

//go:embed python/url.py
var readURLs string

// driven is what the driver is called with.
type driven struct {
	User, Password, Host string
	Port                 int
	Database             string
	Socket               string   `json:"unix_socket"`
	ReadTimeout          float64  `json:"read_timeout"`
	SSL                  []string `json:"ssl"`
}

// TestURLIsSQLAlchemys: what nova.conf and cell_mappings hold is read as SQLAlchemy
// reads it, or refused.
func TestURLIsSQLAlchemys(t *testing.T) {
	urls := []string{
		"mysql+pymysql://nova:secret@db/nova",
		"mysql+pymysql://nova:secret@db:3307/nova?charset=utf8",
		"mysql+pymysql://nova@db/nova",
		"mysql+pymysql://nova:@db/nova",
		"mysql+pymysql://db/nova",
		"mysql+pymysql:///nova",
		"mysql+pymysql://nova:p%40ss%2Fword%25@db/nova",
		"mysql+pymysql://nova:a:b@db/nova",
		"mysql+pymysql://nova:a@b@db/nova",
		"mysql+pymysql://no%20va:x@db/nova",
		"mysql+pymysql://nova:x@[fd00::1]:3306/nova",
		"mysql+pymysql://nova:x@[fd00::1]/nova",
		"mysql+pymysql://nova:x@10.0.0.1/nova?read_timeout=60&charset=utf8mb4",
		"mysql+pymysql://nova:x@/nova?unix_socket=/run/mysqld/mysqld.sock",
		"mysql+pymysql://nova:x@localhost/nova?unix_socket=%2Frun%2Fmysqld%2Fmysqld.sock",
		"mysql+pymysql://nova:x@db/nova?ssl_check_hostname=true",
		"mysql://nova:x+y@db/nova",
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
	text, err := json.Marshal(urls)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/usr/bin/python3", "-c", readURLs)
	cmd.Stdin = bytes.NewReader(text)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var want []*driven
	if err := json.Unmarshal(out, &want); err != nil {
		t.Fatal(err)
	}
	refused := 0
	for i, u := range urls {
		config, err := cleanup.ParseURL(host.Root{}, u)
		if err != nil || want[i] == nil {
			if (err == nil) != (want[i] != nil) {
				t.Errorf("%s: %v, but SQLAlchemy reads %+v", u, err, want[i])
			}
			refused++
			continue
		}
		got := driven{User: config.User, Password: config.Passwd, Database: config.DBName, ReadTimeout: config.ReadTimeout.Seconds(), SSL: []string{}}
		if config.Net == "unix" {
			// PyMySQL connects to the socket whatever the host is.
			got.Socket, got.Host, got.Port = config.Addr, want[i].Host, want[i].Port
		} else {
			name, port, err := net.SplitHostPort(config.Addr)
			if err != nil {
				t.Fatal(err)
			}
			got.Host = name
			fmt.Sscan(port, &got.Port)
		}
		if config.TLS != nil {
			got.SSL = want[i].SSL // which of them is for package cleanup's own tests
		}
		if diff := cmp.Diff(*want[i], got); diff != "" || (config.TLS != nil) != (len(want[i].SSL) > 0) {
			t.Errorf("%s (-SQLAlchemy +gpustack):\n%s", u, diff)
		}
	}
	if refused > 5 {
		t.Errorf("%d of %d are refused", refused, len(urls))
	}
}
