package rdmacheck

import (
	"fmt"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/checklist"
)

// install is the remedy of missing libraries.
const install = "install the package of this distribution: apt-get install ibverbs-providers, dnf install libibverbs, or zypper install libibverbs"

// providers checks that libibverbs is installed and finds the library of each adapter's driver, by
// its line in /etc/libibverbs.d, that the library accepts the version of the driver's interface, and
// that the libraries are of one release.
func (v view) providers() []host.Finding {
	if !v.Stack.Seen() {
		return checklist.Unread(v.Stack.File, v.Stack.Err)
	}
	if v.Verbs.Err != nil {
		return checklist.Unread("libibverbs", v.Verbs.Err)
	}
	libraries := v.Verbs.Libraries()
	if len(libraries) == 0 {
		findings := checklist.NA("libibverbs is not installed: programs on this host cannot use adapters, and guests and containers bring their own")
		findings[0].Remedy = host.Plain(install)
		return findings
	}
	var findings []host.Finding
	fail := func(file, seen, effect string, remedy host.Text) {
		findings = append(findings, host.Finding{Status: host.Fail, File: file, Seen: seen, Effect: effect, Remedy: remedy})
	}
	if seen, file := v.Verbs.Mixed(); seen != "" {
		fail(file, seen, "a program loads the libraries of one release only; with the others it does not see adapters",
			host.Plain("keep one: remove either the distribution's rdma-core or the vendor's (MLNX_OFED, DOCA) completely, then install the other one again"))
	}
	var names, refused, texts []string
	for _, a := range v.Stack.Value.Adapters {
		name := a.Provider()
		if a.Name == "" || name == "" {
			continue
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
		if why, message := v.Verbs.Refuses(a); why != "" && !slices.Contains(refused, why) {
			refused = append(refused, why)
			fail("", why, "programs do not see the adapter: "+message, host.Plain(install+"; kernel and rdma-core must be of one distribution release"))
		}
	}
	for _, f := range libraries {
		if f.Private == 0 {
			findings = append(findings, checklist.NA("%s shows no private ABI: whether it loads the libraries of drivers is unknown", f.Library)...)
		}
		texts = append(texts, fmt.Sprintf("%s (private ABI %d)", f.Library, f.Private))
	}
	if names == nil {
		return checklist.OrPass(findings, "no adapter on the host needs a library that is known")
	}
	return checklist.OrPass(findings, "%s for %s", strings.Join(texts, ", "), strings.Join(names, ", "))
}
