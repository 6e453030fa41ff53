package conf

import (
	"regexp"
	"strings"
)

// isSecret tells whether a key's value is nobody else's business. It is asked for
// thousands of lines of a sample.
func isSecret(key string) bool {
	key = strings.ToLower(key)
	for _, word := range []string{"password", "passwd", "passphrase", "secret", "token", "connection", "credential", "community", "private"} {
		if strings.Contains(key, word) {
			return true
		}
	}
	for part := range strings.SplitSeq(key, "_") {
		if part == "pass" || part == "key" || part == "url" || part == "urls" {
			return true
		}
	}
	return false
}

// secretValue is a value with a password in it: scheme://user:password@host.
var secretValue = regexp.MustCompile(`://[^/@\s]*:[^/@\s]*@`)

func hasSecret(text string) bool {
	return strings.Contains(text, "://") && secretValue.MatchString(text)
}

// Masked returns a file's text, in the same lines, without what may be a secret:
// for diffs, whose context is other options. Comments are taken for options too.
func Masked(text []byte) []byte {
	masked := make([]byte, 0, len(text))
	hidden := false // the option at hand
	for _, l := range split(string(text)) {
		shown := l.text
		trimmed := strings.TrimLeft(shown, "#; \t")
		at := strings.IndexAny(trimmed, ":=")
		switch {
		case strings.TrimFunc(shown, isSpace) == "" || shown[0] == '[':
			hidden = false
		case (shown[0] == ' ' || shown[0] == '\t') && hidden:
			shown = " ***"
		case shown[0] == ' ' || shown[0] == '\t':
		case at >= 0:
			key := strings.TrimFunc(trimmed[:at], isSpace)
			// Most lines of a sample are prose: no option has white space in its name.
			hidden = !strings.ContainsAny(key, " \t") && isSecret(key) || hasSecret(trimmed)
			if hidden {
				shown = shown[:len(shown)-len(trimmed)+at+1] + " ***"
			}
		}
		if hasSecret(shown) {
			shown = "***"
		}
		masked = append(append(masked, shown...), l.end...)
	}
	return masked
}

// Owners that make configuration files themselves, by the marks that they leave in
// comments at the top. Where they read changes is what to tell the operator.
var owners = []struct {
	mark  *regexp.Regexp
	owner string
	where string
}{
	{regexp.MustCompile(`(?i)kolla`), "kolla-ansible", "nova.conf in the folder of node_custom_config (/etc/kolla/config/nova.conf)"},
	{regexp.MustCompile(`(?i)tripleo|edpm`), "TripleO", "the deployment's templates (ExtraConfig, or customServiceConfig)"},
	{regexp.MustCompile(`(?i)juju`), "Juju", "the charm's options (juju config)"},
	{regexp.MustCompile(`(?i)puppet`), "Puppet", "the parameters of nova::pci and nova::compute::pci"},
	{regexp.MustCompile(`(?i)ansible`), "Ansible", "the variables of the role that made it"},
	{regexp.MustCompile(`(?i)\b(chef|salt)\b`), "a configuration manager", "its own recipes"},
}

// Owner tells who makes a file by itself, and where that one reads changes; "" for
// nobody.
func Owner(name string, text []byte) (owner, where string) {
	var head strings.Builder
	for i, l := range split(string(text)) {
		if i >= 20 || l.text != "" && !strings.HasPrefix(l.text, "#") && !strings.HasPrefix(l.text, ";") {
			break
		}
		head.WriteString(l.text + "\n")
	}
	if strings.Contains(name, "/etc/kolla/") {
		return owners[0].owner, owners[0].where
	}
	managed := regexp.MustCompile(`(?i)managed|generated|maintained|created by|do not (edit|modify|change)|automatically`)
	if !managed.MatchString(head.String()) {
		return "", ""
	}
	for _, o := range owners {
		if o.mark.MatchString(head.String()) {
			return o.owner, o.where
		}
	}
	return "", ""
}
