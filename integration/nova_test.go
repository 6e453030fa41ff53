package integration

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gpustack/host/hosttest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// sample is the nova.conf that Debian's nova-common begins with: every option as a
// comment.
const sample = "/usr/share/nova-common/nova.conf"

// novaFiles are the forms in which nova.conf comes, and odd ones that Nova takes.
func novaFiles(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{
		"empty":               "",
		"one section":         "[DEFAULT]\nmy_ip = 10.0.0.1\n",
		"no final newline":    "[DEFAULT]\nmy_ip = 10.0.0.1",
		"DOS line ends":       "[DEFAULT]\r\nmy_ip = 10.0.0.1\r\n[pci]\r\n",
		"capitals":            "[DEFAULT]\n[PCI]\nreport_in_placement = false\n",
		"colons":              "[filter_scheduler]\nenabled_filters: ComputeFilter,ImagePropertiesFilter\n[pci]\nalias: {\"name\": \"A\", \"vendor_id\": \"10de\", \"product_id\": \"1111\"}\n",
		"sections again":      "[pci]\nalias = {\"name\": \"A\", \"vendor_id\": \"10de\", \"product_id\": \"1111\"}\n[api]\n[pci]\nalias = {\"name\": \"B\", \"vendor_id\": \"10de\", \"product_id\": \"2222\"}\n",
		"several lines":       "[pci]\nalias = {\n  \"name\": \"A\",\n  \"vendor_id\": \"10de\",\n  \"product_id\": \"1111\"\n  }\n\n[api]\n",
		"quotes":              "[pci]\nalias = '{\"name\": \"A\", \"vendor_id\": \"10de\", \"product_id\": \"1111\"}'\n",
		"a list of specs":     "[pci]\npassthrough_whitelist = [{\"vendor_id\": \"8086\", \"product_id\": \"154d\"}, {\"vendor_id\": \"10de\", \"product_id\": \"11b4\"}]\n",
		"names from Mitaka":   "[DEFAULT]\npci_alias = {\"name\": \"K4200\", \"vendor_id\": \"10de\", \"product_id\": \"11b4\"}\npci_passthrough_whitelist = {\"vendor_id\": \"10de\", \"product_id\": \"11b4\"}\n",
		"names from Ocata":    "[pci]\npassthrough_whitelist = {\"address\": \"*:0a:00.*\", \"physical_network\": \"physnet1\"}\nalias = {\"name\": \"K4200\", \"vendor_id\": \"10DE\", \"product_id\": \"11B4\"}\n",
		"one of two products": "[pci]\nalias = {\"name\": \"P4000\", \"vendor_id\": \"10de\", \"product_id\": \"1bb1\", \"device_type\": \"type-PCI\", \"numa_policy\": \"preferred\"}\n",
		"a dollar sign":       "[pci]\nalias = {\"name\": \"A$$1\", \"vendor_id\": \"10de\", \"product_id\": \"1111\"}\n",
		"a single quote":      "[DEFAULT]\nmy_ip = \"10.0.0.1\"\nhost = '\n",
		"the talk's spec":     "[pci]\npassthrough_whitelist = {\"name\":\"K4200\",\"vendor_id\":\"10de\",\"product_id\":\"11b4\"}\n",
		"an old alias":        "[pci]\nalias = {\"name\": \"K4200\", \"vendor_id\": \"10de\", \"product_id\": \"11b4\", \"device_type\": \"type-PF\"}\n",
		"dead filters":        "[filter_scheduler]\nenabled_filters = RetryFilter, AvailabilityZoneFilter, RamFilter, ComputeFilter\n",
		"filters on lines":    "[filter_scheduler]\nenabled_filters = ComputeFilter,\n  ImagePropertiesFilter,\n  DifferentHostFilter\n",
		"filters narrowed":    "[filter_scheduler]\navailable_filters = nova.scheduler.filters.compute_filter.ComputeFilter\nenabled_filters = ComputeFilter\n",
		"filters there":       "[filter_scheduler]\nenabled_filters = ComputeFilter,PciPassthroughFilter,SameHostFilter\n",
		"filters twice":       "[filter_scheduler]\nenabled_filters = DifferentHostFilter\nenabled_filters = ComputeFilter\n",
		"a dead option":       "[DEFAULT]\nscheduler_default_filters = RetryFilter,CoreFilter\n",
		"a hash in a value":   "[DEFAULT]\ntransport_url = rabbit://u:p#w;x@h:1/\n[database]\nconnection = mysql+pymysql://n:p%40$$w@h/nova\n",
		"comments everywhere": "# top\n[DEFAULT]\n; a\nmy_ip = 10.0.0.1\n# b\n\n\n# about pci\n[pci]\n# alias = x\n#device_spec = <None>\n\n# end\n",
		"white space":         "[DEFAULT]  \nmy_ip\t=\t10.0.0.1  \n\n   \n[pci]\t\nalias   =   {\"name\": \"A\", \"vendor_id\": \"10de\", \"product_id\": \"1111\"}  \n",
		"like devstack":       "[filter_scheduler]\nenabled_filters = ComputeFilter,ComputeCapabilitiesFilter,ImagePropertiesFilter,ServerGroupAntiAffinityFilter,ServerGroupAffinityFilter,SameHostFilter,DifferentHostFilter\ntrack_instance_changes = False\n\n[DEFAULT]\nlog_color = True\nosapi_compute_workers = 2\nmy_ip = 10.0.0.1\n\n[api_database]\nconnection = mysql+pymysql://root:secret@127.0.0.1/nova_api?charset=utf8\n",
		"like kolla":          "[DEFAULT]\ndebug = False\nlog_dir = /var/log/kolla/nova\nmy_ip = 10.0.0.1\ntransport_url = rabbit://openstack:secret@10.0.0.2:5672//\n\n[pci]\npassthrough_whitelist = [{\"address\": \"0000:5e:00.0\", \"physical_network\": \"physnet1\"}]\n\n[filter_scheduler]\nenabled_filters = ComputeFilter,ImagePropertiesFilter\n",
		"like RDO":            "[DEFAULT]\n\n#\n# From nova.conf\n#\n\n# Help (string value)\n#internal_service_availability_zone=internal\nmy_ip=10.0.0.1\n\n\n[pci]\n\n#\n# From nova.conf\n#\n\n# An alias (multi valued)\n# Deprecated group/name - [DEFAULT]/pci_alias\n#alias =\n\n# White list (multi valued)\n#passthrough_whitelist =\n\n\n[placement]\n",
		"like puppet":         "[pci]\nalias={\"vendor_id\":\"10de\",\"product_id\":\"1111\",\"name\":\"A\",\"device_type\":\"type-PCI\"}\nalias={\"vendor_id\":\"10de\",\"product_id\":\"11b4\",\"name\":\"K4200\"}\ndevice_spec={\"vendor_id\":\"10de\",\"product_id\":\"1111\"}\nreport_in_placement=false\n[filter_scheduler]\nenabled_filters=ComputeFilter,PciPassthroughFilter\n",
	}
	files["Debian's sample"] = hosttest.Read(t, sample)
	return files
}

// novaSays is what Nova itself makes of a file.
type novaSays struct {
	Errors    map[string]string
	Else      map[string]string
	Report    bool
	Place     *bool `json:"in_placement"` // nil where Nova has no such option
	Aliases   map[string]any
	Specs     []map[string]any
	Filters   []string
	Requested []int
}

// besidesReporting is a file without report_in_placement, and without what may come with
// it: a section, and the line end before that.
func besidesReporting(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		if line != "" && line != "[pci]" && !strings.HasPrefix(line, "report_in_placement") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

// TestNova: Nova with the defaults of its package reads from the edited file just what was planned:
// the alias that a flavor names, the spec that compute offers, filters that load; every other
// option is as before. A second run has nothing to do, and undo restores the same bytes.
func TestNova(t *testing.T) {
	peer := startAnswerer(t, "ask_nova.py")
	installed, err := filepath.Glob("/usr/lib/python3/dist-packages/nova-*-info")
	if err != nil || len(installed) != 1 {
		t.Fatalf("%q, %v", installed, err)
	}
	for name, text := range novaFiles(t) {
		for _, role := range []string{"controller", "compute", "all"} {
			t.Run(name+", "+role, func(t *testing.T) {
				root := t.TempDir()
				file := filepath.Join(root, "etc/nova/nova.conf")
				hosttest.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
				hosttest.NoError(t, os.MkdirAll(filepath.Join(root, installed[0]), 0o755))
				hosttest.NoError(t, os.WriteFile(file, []byte(text), 0o640))
				hosttest.NoError(t, os.Chown(file, 0, 998))
				var before, after novaSays
				peer.ask(t, file, &before)
				argv := []string{"nova", "configure", "--root", root, "--role", role, "--alias", "K4200=10de:11b4,device_type=type-PCI,numa_policy=preferred", "--placement", "--yes"}
				if role != "compute" {
					argv = append(argv, "--computes-report") // there is no database to ask
				}
				run(t, gpustack, argv...)
				peer.ask(t, file, &after)

				if role == "compute" { // has no scheduler, whose filters stay as they are
					delete(after.Errors, "filters")
				}
				if len(after.Errors) > 0 {
					t.Fatalf("Nova: %v\n%s", after.Errors, hosttest.Read(t, file))
				}
				hosttest.EqualIn(t, "other options", before.Else, after.Else)
				want := []any{"preferred", []any{map[string]any{"vendor_id": "10de", "product_id": "11b4", "dev_type": "type-PCI"}}}
				if diff := cmp.Diff(any(want), after.Aliases["K4200"]); diff != "" || !slices.Equal(after.Requested, []int{2}) {
					t.Errorf("alias, requested %v:\n%s", after.Requested, diff)
				}
				for other := range before.Aliases {
					if after.Aliases[other] == nil {
						t.Errorf("alias %s is gone", other)
					}
				}
				computes, controls := role != "controller", role != "compute"
				offered := slices.ContainsFunc(after.Specs, func(s map[string]any) bool { return s["vendor"] == "10de" && s["product"] == "11b4" })
				if computes && !offered || len(after.Specs) < len(before.Specs) || after.Report != computes {
					t.Errorf("specs %v, report_in_placement %v", after.Specs, after.Report)
				}
				if after.Place != nil && *after.Place != controls {
					t.Errorf("pci_in_placement %v", *after.Place)
				}
				if before.Errors["filters"] == "" && !controls && !slices.Equal(before.Filters, after.Filters) {
					t.Errorf("filters %v", after.Filters)
				}
				if controls {
					for _, f := range append([]string{"PciPassthroughFilter", "NUMATopologyFilter"}, before.Filters...) {
						if n := len(slices.DeleteFunc(slices.Clone(after.Filters), func(g string) bool { return f != g })); n != 1 {
							t.Errorf("%s is there %d times: %v", f, n, after.Filters)
						}
					}
				}
				hosttest.ContainsIn(t, "again", "nothing to do", run(t, gpustack, argv...))
				removeAlias(t, peer, root, role)
				run(t, gpustack, "undo", "--root", root, "--yes")
				// report_in_placement stays: Nova cannot switch it off. All else is as before, to
				// Nova and byte for byte.
				if got := hosttest.Read(t, file); got != text && (!computes || besidesReporting(got) != besidesReporting(text)) {
					t.Errorf("undone: %q", got)
				}
				var undone novaSays
				peer.ask(t, file, &undone)
				before.Report = computes
				hosttest.EqualIn(t, "undone", before, undone)
				hosttest.EqualIn(t, "mode and owner", "640 0:998\n", run(t, "stat", "-c", "%a %u:%g", file))
			})
		}
	}
}

// removeAlias removes the alias of a configured file: to Nova the alias and its spec are gone, and
// all else is as it was. Undone, the file has the same bytes.
func removeAlias(t *testing.T, peer *answerer, root, role string) {
	t.Helper()
	file := filepath.Join(root, "etc/nova/nova.conf")
	text := hosttest.Read(t, file)
	var before, after novaSays
	peer.ask(t, file, &before)
	run(t, gpustack, "nova", "configure", "--root", root, "--role", role, "--remove-alias", "K4200", "--yes")
	peer.ask(t, file, &after)
	isIts := func(s map[string]any) bool { return s["vendor"] == "10de" && s["product"] == "11b4" }
	if role != "controller" {
		before.Specs = slices.DeleteFunc(before.Specs, isIts)
	}
	delete(before.Aliases, "K4200")
	hosttest.EqualIn(t, "--remove-alias: specs", before.Specs, after.Specs, cmpopts.EquateEmpty())
	hosttest.EqualIn(t, "--remove-alias: aliases", before.Aliases, after.Aliases, cmpopts.EquateEmpty())
	if diff := cmp.Diff(before.Else, after.Else); diff != "" || before.Report != after.Report || !slices.Equal(before.Filters, after.Filters) {
		t.Errorf("--remove-alias: report_in_placement %v, filters %v, other options (-before +after):\n%s", after.Report, after.Filters, diff)
	}
	run(t, gpustack, "undo", "--root", root, "--yes")
	hosttest.EqualIn(t, "--remove-alias, undone", text, hosttest.Read(t, file))
}
