package change

import (
	"os/user"
	"slices"
	"testing"

	"gpustack/host/hosttest"
)

// TestCaller: the user of sudo counts before that of the login, and that before the one of the
// process.
func TestCaller(t *testing.T) {
	own, err := user.Current()
	hosttest.NoError(t, err)
	for _, test := range []struct{ sudo, login, want string }{
		{"alice", "0", "alice"},
		{"root", "4000123456", "4000123456"}, // sudo in a shell of root's
		{"", "0", "root"},
		{"", "4000123456", "4000123456"}, // a user without a name
		{"", noLogin, own.Username},
		{"", "", own.Username},
	} {
		hosttest.EqualIn(t, "SUDO_USER "+test.sudo+", login "+test.login, test.want, caller(test.sudo, test.login))
	}
}

// TestWithoutSecrets: no argument of a recorded command line has the rest of a URL.
func TestWithoutSecrets(t *testing.T) {
	got := withoutSecrets([]string{"repair-migration", "--database", "mysql://n:hunter2@c1/nova", "--api-database=mysql+pymysql://n:p@w@c1/a?password=x", "--host", "gpu1"})
	want := []string{"repair-migration", "--database", "mysql://***", "--api-database=mysql+pymysql://***", "--host", "gpu1"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
