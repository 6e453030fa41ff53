package rdmacheck

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/rdma"
)

// install is the remedy of missing libraries.
const install = "install the package of this distribution: apt-get install ibverbs-providers, dnf install libibverbs, or zypper install libibverbs"

// providers checks that libibverbs is installed and finds the library of each adapter's driver, by
// its line in /etc/libibverbs.d, and that the libraries are of one release.
func (v view) providers() []host.Finding {
	if !v.Stack.Seen() {
		return checklist.Unread(v.Stack.File, v.Stack.Err)
	}
	var findings []host.Finding
	fail := func(file, seen, effect string, remedy host.Text) {
		findings = append(findings, host.Finding{Status: host.Fail, File: file, Seen: seen, Effect: effect, Remedy: remedy})
	}
	if v.Verbs.Err != nil {
		findings = append(findings, checklist.Unread("libibverbs", v.Verbs.Err)...)
	}
	libraries := v.Verbs.Libraries()
	if len(libraries) == 0 {
		if findings == nil {
			findings = checklist.NA("libibverbs is not installed: programs on this host cannot use adapters, and guests and containers bring their own")
			findings[0].Remedy = install
		}
		return findings
	}
	if seen, file := v.Verbs.Mixed(); seen != "" {
		fail(file, seen, "a program loads the libraries of one release only; with the others it does not see adapters",
			"keep one: remove either the distribution's rdma-core or the vendor's (MLNX_OFED, DOCA) completely, then install the other one again")
	}
	wanted := v.wantedProviders()
	for _, name := range wanted {
		if v.Verbs.DriverErr != nil {
			findings = append(findings, checklist.Unread(rdma.DriverDir, v.Verbs.DriverErr)...)
			break
		}
		if v.Verbs.Loads(name) {
			continue
		}
		fail(rdma.DriverDir, fmt.Sprintf("no file has the line \"driver %s\"", name),
			`programs do not see the adapter: "No IB devices found" (ibv_devinfo)`,
			host.Textf("echo 'driver %s' > %s/%s.driver, or install the package again", name, rdma.DriverDir, name))
	}
	for _, folder := range libraries {
		for _, name := range wanted {
			found, why := folder.Serves(name, v.Verbs.Drivers)
			switch {
			case found:
			case folder.Private == 0:
				findings = append(findings, host.Finding{
					Status: host.NA, File: folder.Library,
					Seen: fmt.Sprintf("%s shows no private ABI: whether it loads the library for %s is unknown", folder.Library, name),
				})
			default:
				fail(folder.Library, why,
					fmt.Sprintf(`programs do not see the adapter: "libibverbs: Warning: couldn't load driver 'lib%s-rdmav%d.so': …: `+
						`cannot open shared object file", "No IB devices found" (ibv_devinfo)`, name, folder.Private), install)
			}
		}
	}
	var unused []string
	for _, d := range v.Verbs.Drivers {
		for _, folder := range libraries {
			if found, _ := folder.Serves(d.Provider(), v.Verbs.Drivers); !found && !slices.Contains(wanted, d.Provider()) {
				unused = append(unused, fmt.Sprintf("%s:%d", d.File, d.Line))
			}
		}
	}
	if len(unused) > 0 {
		findings = append(findings, host.Finding{
			Status: host.Warn, File: rdma.DriverDir, Seen: "drivers without a library: " + strings.Join(unused, ", "),
			Effect: "each prints a warning in every program, but the adapters of this machine work",
			Remedy: "remove these files, or install the libraries: " + install,
		})
	}
	if len(wanted) == 0 {
		return checklist.OrPass(findings, "no adapter on the host needs a library that is known")
	}
	return checklist.OrPass(findings, "%s for %s", describe(libraries), strings.Join(wanted, ", "))
}

func describe(folders []rdma.VerbsFolder) string {
	var texts []string
	for _, f := range folders {
		private := "unknown"
		if f.Private > 0 {
			private = strconv.Itoa(f.Private)
		}
		texts = append(texts, fmt.Sprintf("%s (private ABI %s)", f.Library, private))
	}
	return strings.Join(texts, ", ")
}

// wantedProviders returns the libraries that the adapters on the host need, each once.
func (v view) wantedProviders() []string {
	var wanted []string
	for _, a := range v.Stack.Value.Adapters {
		if name := a.Provider(); name != "" && a.Name != "" && !slices.Contains(wanted, name) {
			wanted = append(wanted, name)
		}
	}
	return wanted
}
