package integration

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host/hosttest"
	"gpustack/nova"
)

// TestNovaPrograms: where each program of Nova has files of its own, what nova configure plans
// reaches every program that needs it, however the program is started: oslo.config finds the files
// itself and reads the folders last; or the command line names the files, as Debian's does, and the
// folders are read first.
func TestNovaPrograms(t *testing.T) {
	const (
		alias = "[pci]\nalias = {\"name\": \"K4200\", \"vendor_id\": \"10de\", \"product_id\": \"11b4\"}\n"
		other = "[pci]\nalias = {\"name\": \"B\", \"vendor_id\": \"10de\", \"product_id\": \"2222\"}\n"
		spec  = "[pci]\ndevice_spec = {\"vendor_id\": \"10de\", \"product_id\": \"11b4\"}\n"
	)
	peer := startAnswerer(t, "ask_nova.py")
	for name, files := range map[string]map[string]string{
		"nova.conf alone":             {"nova.conf": ""},
		"nova-compute.conf":           {"nova.conf": "", "nova-compute.conf": alias + spec + "report_in_placement = false\n"},
		"an alias of each":            {"nova.conf": other, "nova-api.conf": alias, "nova-compute.conf": alias, "nova-scheduler.conf": alias},
		"aliases in folders":          {"nova.conf": other, "nova-api.conf.d/a.conf": alias, "nova-compute.conf.d/a.conf": alias},
		"an alias twice":              {"nova.conf": alias, "nova-compute.conf": alias},
		"filters of nova-scheduler":   {"nova.conf": "", "nova-scheduler.conf": "[filter_scheduler]\nenabled_filters = ComputeFilter\n"},
		"filters everywhere":          {"nova.conf": "[filter_scheduler]\nenabled_filters = ComputeFilter\n", "nova-scheduler.conf.d/a.conf": "[filter_scheduler]\nenabled_filters = SameHostFilter\n", "nova.conf.d/b.conf": "[filter_scheduler]\nenabled_filters = DifferentHostFilter\n", "nova-compute.conf": "[filter_scheduler]\nenabled_filters = RamFilter\n"},
		"an old name of nova-compute": {"nova.conf": "", "nova-compute.conf.d/a.conf": "[DEFAULT]\npci_passthrough_whitelist = {\"vendor_id\": \"8086\", \"product_id\": \"154d\"}\n"},
		"reporting off in a folder":   {"nova.conf": "[pci]\nreport_in_placement = true\n", "nova-compute.conf.d/a.conf": "[pci]\nreport_in_placement = false\n"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			isInUse := false // the alias is, and stays as it is
			for file, text := range files {
				isInUse = isInUse || strings.Contains(text, alias)
				path := filepath.Join(dir, "etc/nova", file)
				hosttest.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
				hosttest.NoError(t, os.WriteFile(path, []byte(text), 0o640))
			}
			run(t, gpustack, "nova", "configure", "--root", dir, "--role", "all", "--release", "zed", "--alias", "K4200=10de:11b4", "--placement", "--yes")
			root := hosttest.Root(t, dir)
			all, err := nova.Files(root, nova.DefaultConf, nova.All)
			hosttest.NoError(t, err)
			for _, program := range nova.All.Programs() {
				var found, folders, named []string // in nova.conf.d and the like; as a command line names them
				for _, file := range all {
					by := nova.ReadBy(file, nova.DefaultConf)
					switch path := root.Path(file); {
					case by != "" && by != program:
					case nova.FileGroup(file) != "":
						folders = append(folders, path)
					default:
						found = append(found, path)
						if by == "" || by == "nova-compute" {
							named = append(named, path)
						}
					}
				}
				for _, order := range [][]string{slices.Concat(found, folders), slices.Concat(folders, named)} {
					var says novaSays
					peer.ask(t, strings.Join(order, "\x00"), &says)
					where := program + " with " + strings.Join(order, ", ")
					if program == "nova-api" || program == "nova-compute" {
						spec := map[string]any{"vendor_id": "10de", "product_id": "11b4"}
						if !isInUse { // boards of the product have one type
							spec["dev_type"] = "type-PCI"
						}
						want := []any{nil, []any{spec}}
						if policy, _ := says.Aliases["K4200"].([]any); len(policy) == 2 {
							want[0] = policy[0] // the default policy
						}
						if diff := cmp.Diff(any(want), says.Aliases["K4200"]); diff != "" || !slices.Equal(says.Requested, []int{2}) {
							t.Errorf("%s: requested %v, %v:\n%s", where, says.Requested, says.Errors, diff)
						}
					}
					if program == "nova-compute" {
						if !says.Report || !slices.ContainsFunc(says.Specs, func(s map[string]any) bool { return s["vendor"] == "10de" && s["product"] == "11b4" }) {
							t.Errorf("%s: report_in_placement %v, specs %v, %v", where, says.Report, says.Specs, says.Errors)
						}
					}
					if program == "nova-scheduler" && (says.Errors["filters"] != "" || !slices.Contains(says.Filters, "PciPassthroughFilter")) {
						t.Errorf("%s: filters %v, %v", where, says.Filters, says.Errors)
					}
				}
			}
		})
	}
}
