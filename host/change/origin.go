package change

import (
	"os"
	"os/user"
	"strings"
)

// loginFile has the id of the user who has logged in, also after su(1) (proc_pid_loginuid(5)).
const loginFile = "/proc/self/loginuid"

// noLogin is the id in loginFile of processes without a login, such as those of services.
const noLogin = "4294967295"

// NewOrigin returns who runs this command line of a version, where and how, for the journal.
func NewOrigin(version string, argv []string) Origin {
	name, err := os.Hostname()
	if err != nil {
		name = ""
	}
	login, err := os.ReadFile(loginFile)
	if err != nil {
		login = nil
	}
	return Origin{User: caller(os.Getenv("SUDO_USER"), strings.TrimSpace(string(login))), Host: name, Version: version, Argv: withoutSecrets(argv)}
}

// caller returns the name of the user who has called gpustack: by sudo(8), which sets SUDO_USER,
// or else the user who has logged in, or else the user of the process. A user without a name is
// named by its id. SUDO_USER is root in a shell of root's: there it says nothing about the user.
func caller(sudo, login string) string {
	if sudo != "" && sudo != "root" {
		return sudo
	}
	if login != "" && login != noLogin {
		if found, err := user.LookupId(login); err == nil {
			return found.Username
		}
		return login
	}
	found, err := user.Current()
	if err != nil {
		return ""
	}
	return found.Username
}

// withoutSecrets returns the arguments of a command line without the URLs in them, which contain
// passwords.
func withoutSecrets(argv []string) []string {
	shown := []string{}
	for _, word := range argv {
		if before, _, ok := strings.Cut(word, "://"); ok {
			word = before + "://***"
		}
		shown = append(shown, word)
	}
	return shown
}
