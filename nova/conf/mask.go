package conf

import (
	"regexp"
	"strings"

	"gpustack/host"
)

// isSecret reports whether the value of a key may be a secret: of the names that are secrets
// everywhere, and of those of URLs, which often contain a password.
func isSecret(key string) bool {
	key = strings.ToLower(key)
	switch {
	case key == "auth_url": // where Keystone answers, of all that use keystoneauth1
		return false
	case strings.Contains(key, "connection"), key == "backend_argument", key == "approle_role_id": // oslo.cache, castellan
		return true
	}
	for part := range strings.SplitSeq(key, "_") {
		if part == "url" || part == "urls" {
			return true
		}
	}
	return host.IsSecretName(key) && key != "bypass"
}

// secretValue matches a URL with a password, scheme://user:password@host, or with a secret in its
// query.
var secretValue = host.LazyRegexp(`(?i)://(?:[^/@\s]*:[^/@\s]*@|[^\s]*[?&;]` + host.SecretNames + `=)`)

func hasSecret(text string) bool {
	return strings.Contains(text, "://") && secretValue().MatchString(text)
}

// Masked returns the text of a file with the same lines and with everything that may be a secret
// replaced by ***, for diffs. Commented options are masked too.
func Masked(text []byte) []byte {
	masked := make([]byte, 0, len(text))
	hidden := false // the current option
	for l := range linesOf(string(text)) {
		shown := l.text
		sign := indexSign(shown)
		switch {
		case isBlank(shown) || shown[0] == '[':
			hidden = false
		case (shown[0] == ' ' || shown[0] == '\t') && hidden:
			shown = " ***"
		case shown[0] == ' ' || shown[0] == '\t':
		case sign >= 0:
			trimmed := strings.TrimLeft(shown, "#; \t")
			key := strings.TrimFunc(trimmed[:sign-(len(shown)-len(trimmed))], isSpace)
			// Most lines of a sample file are prose; names of options contain no white space.
			hidden = !strings.ContainsAny(key, " \t") && isSecret(key) || hasSecret(trimmed)
			if hidden {
				shown = shown[:sign+1] + " ***"
			}
		}
		if sign >= 0 && hasSecret(shown) {
			shown = "***"
		}
		masked = append(append(masked, shown...), l.end...)
	}
	return masked
}

// owners are tools that generate configuration files, recognized by comments at the top, and where
// an operator sets options of each.
var owners = []struct {
	mark  func() *regexp.Regexp
	owner string
	where string
}{
	{host.LazyRegexp(`(?i)kolla`), "kolla-ansible", "nova.conf in the folder node_custom_config (/etc/kolla/config/nova.conf)"},
	{host.LazyRegexp(`(?i)tripleo`), "TripleO", "an environment file of the deployment (NovaPCIPassthrough, and nova::pci::aliases of ExtraConfig)"},
	{host.LazyRegexp(`(?i)edpm|openstack-k8s`), "RHOSO", "customServiceConfig of the control plane, and a ConfigMap of the data plane service for compute nodes"},
	{host.LazyRegexp(`(?i)managed by the snap`), "Sunbeam", "a file in nova.conf.d beside it"},
	{host.LazyRegexp(`(?i)juju`), "Juju", "the charm's options (juju config)"},
	{host.LazyRegexp(`(?i)puppet`), "Puppet", "the parameters of nova::pci and nova::compute::pci"},
	{host.LazyRegexp(`(?i)ansible`), "Ansible", "the variables of the role that generates it"},
	{host.LazyRegexp(`(?i)\b(chef|salt)\b`), "a configuration manager", "its recipes"},
}

// ownedDirs are folders whose files the tools generate that come first in owners.
var ownedDirs = []string{"/etc/kolla/", "/var/lib/config-data/", "/var/lib/openstack/config/"}

// Owner returns the tool that generates a file and where an operator sets its options, or "" if no
// tool generates it.
func Owner(name string, text []byte) (owner, where string) {
	var head strings.Builder
	n := 0
	for l := range linesOf(string(text)) {
		if n++; n > 20 || l.text != "" && l.text[0] != '#' && l.text[0] != ';' {
			break
		}
		head.WriteString(l.text + "\n")
	}
	for i, dir := range ownedDirs {
		if strings.Contains(name, dir) {
			return owners[i].owner, owners[i].where
		}
	}
	managed := regexp.MustCompile(`(?i)managed|generated|maintained|created by|do not (edit|modify|change)|automatically`)
	if !managed.MatchString(head.String()) {
		return "", ""
	}
	for _, o := range owners {
		if o.mark().MatchString(head.String()) {
			return o.owner, o.where
		}
	}
	return "", ""
}
