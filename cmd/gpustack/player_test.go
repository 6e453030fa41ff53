package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/host/hosttest"
	"gpustack/nova/cloud/cloudtest"
)

// hinted is a command in a hint: in quotes, or up to the end of the line.
var hinted = host.LazyRegexp(`'(gpustack [^']+)'|(?:^|[:;] )(gpustack [a-z][^';]*)`)

// hints returns the hints of a run: those of its document, or else those on stderr.
func (o output) hints() (hints []string) {
	var document struct {
		Refusals, Errors []struct{ Hint *string }
	}
	if err := json.Unmarshal([]byte(o.stdout), &document); err == nil {
		for _, e := range slices.Concat(document.Refusals, document.Errors) {
			if e.Hint != nil {
				hints = append(hints, strings.Split(*e.Hint, "\n")...)
			}
		}
		return hints
	}
	for line := range strings.Lines(o.stderr) {
		if hint, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "gpustack: hint: "); ok {
			hints = append(hints, hint)
		}
	}
	return hints
}

// commands returns the command lines in the hints of a run, each once, as [shape.run] takes them.
func (o output) commands() (lines []string) {
	for _, hint := range o.hints() {
		for _, found := range hinted().FindAllStringSubmatch(hint, -1) {
			line := strings.TrimPrefix(found[1]+found[2], "gpustack ")
			line = strings.TrimSuffix(strings.ReplaceAll(line+" ", " --root ROOT/ ", " "), " ")
			if name, _, _ := strings.Cut(line, " "); !slices.Contains(groups(), name) {
				continue // of a sentence about gpustack
			}
			if !slices.ContainsFunc(strings.Fields(line), placeholder().MatchString) && !slices.Contains(lines, line) {
				lines = append(lines, line)
			}
		}
	}
	return lines
}

// remedied is a command in a remedy, which words of the sentence may follow.
var remedied = host.LazyRegexp(`gpustack ((?:host|rdma|container) [a-z]+` +
	`(?: --[a-z-]+(?: (?:ROOT/|IMAGES\S*|[A-Z]+|containers?|exclusive|[0-9a-f]{4}:[0-9a-f:.]+)\b)?)*)`)

// remedies returns the command lines in the remedies of a check's document, each once.
func (o output) remedies() (lines []string) {
	var document struct {
		Findings []struct{ Remedy string }
	}
	if json.Unmarshal([]byte(o.stdout), &document) != nil {
		return nil
	}
	for _, f := range document.Findings {
		for _, found := range remedied().FindAllStringSubmatch(f.Remedy, -1) {
			line := strings.ReplaceAll(found[1], " --root ROOT/", "")
			if !slices.ContainsFunc(strings.Fields(line), placeholder().MatchString) && !slices.Contains(lines, line) {
				lines = append(lines, line)
			}
		}
	}
	return lines
}

// groups are the first words of commands that hints name.
func groups() []string {
	return []string{"host", "nova", "rdma", "container", "flavor", "image", "fleet", "history", "undo", "repair-migration"}
}

// play runs a command line on a machine, and each command that the hints of a refusal or the remedies
// of a check print, with --dry-run where it has that flag: neither a refusal nor a dry run changes the
// machine. None of these is refused, and of a refusal at most two would change something. It returns
// what the command line printed, and the commands that were played.
func (s shape) play(t *testing.T, line string) (o output, played []string) {
	t.Helper()
	o = s.run(t, line)
	commands, changing, accepted := o.commands(), 0, map[string]bool{}
	if o.status != 1 {
		commands = o.remedies()
	}
	for _, command := range commands {
		run := command
		if changes(t, command) {
			changing++
			if !slices.Contains(strings.Fields(command), "--dry-run") {
				run += " --dry-run"
			}
		}
		if !accepted[run] {
			again := s.run(t, run)
			if accepted[run] = again.status != 1; again.status == 1 {
				t.Errorf("gpustack %s\n%sprints a command that is refused: gpustack %s\n%s", line, o.stderr, run, again.stderr)
			}
		}
		played = append(played, command)
	}
	if changing > 2 && o.status == 1 {
		t.Errorf("gpustack %s prints %d commands:\n%s", line, changing, o.stderr)
	}
	return o, played
}

// changes reports whether a command line changes something, so that it has --dry-run.
func changes(t *testing.T, line string) bool {
	t.Helper()
	words := append([]string{"gpustack"}, strings.Fields(line)...)
	parsed := args.Parse(newApp(term.New(nil, nil, nil, func(string) string { return "" }), words).App, words)
	if parsed.Command == nil {
		t.Errorf("gpustack %s: no such command", line)
		return false
	}
	return args.FindFlag(parsed.Command.Flags, "dry-run") != nil
}

// exampleShapes lays out every example.
func exampleShapes(t *testing.T) (shapes []shape) {
	t.Helper()
	files, err := filepath.Glob(top + "/examples/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d examples: %v", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		shapes = append(shapes, shape{name: name, root: hosttest.Lay(t, example(t, name))})
	}
	return shapes
}

// complete adds to a tree what it lacks for a plan, as a machine has it: a boot loader and what makes
// initramfs images, a kernel with modules, the table of mounts, systemd, and gpustack.
func (s shape) complete(t *testing.T) {
	t.Helper()
	release, err := s.root.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		release = []byte("6.1.0-28-amd64")
	}
	kernel := strings.TrimSpace(string(release))
	files := map[string]string{
		"/lib/modules/" + kernel + "/modules.dep": "kernel/vfio-pci.ko:\nkernel/pci-stub.ko:\nkernel/vfio.ko:\nkernel/vfio_iommu_type1.ko:\nkernel/kvm.ko:\nkernel/ib_ipoib.ko:\n",
		"/proc/mounts": "tmpfs / tmpfs rw 0 0\n", "/proc/cpuinfo": "vendor_id : GenuineIntel\n", "/proc/cmdline": "quiet\n",
		"/proc/sys/kernel/osrelease": kernel + "\n", "/usr/lib/systemd/systemd": "", "/usr/sbin/gpustack": "",
	}
	if _, err := s.root.ReadDir("/boot"); err != nil {
		for _, f := range txtar.Parse([]byte(strings.ReplaceAll(hosttest.Distributions["debian"], "6.1.0-28-amd64", kernel))).Files {
			files["/"+f.Name] = string(f.Data)
		}
	}
	for name, text := range files {
		if _, err := os.Lstat(s.root.Path(name)); err == nil {
			continue
		}
		hosttest.NoError(t, os.MkdirAll(filepath.Dir(s.root.Path(name)), 0o755))
		hosttest.NoError(t, os.WriteFile(s.root.Path(name), []byte(text), 0o644))
	}
}

// TestPlayed: each command that a refusal or container check prints is accepted on the machine that it was printed for,
// on every shape and example. ADDRESS is each of some functions.
func TestPlayed(t *testing.T) {
	played := make(chan string, 10000)
	t.Run("machines", func(t *testing.T) {
		for _, s := range slices.Concat(readShapes(t), exampleShapes(t)) {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				s.complete(t)
				for _, line := range s.lines(t, []string{
					"host prepare --dry-run", "host prepare --dry-run -o json", "host prepare --nvswitch host --dry-run", "host prepare --nvswitch guest --dry-run",
					"host prepare --device ADDRESS --dry-run", "host prepare --device ADDRESS --allow ADDRESS --dry-run", "host prepare --only ADDRESS --driver pci-stub --dry-run",
					"host bind --dry-run", "host bind --device ADDRESS --dry-run", "host bind --live --dry-run", "host bind --live --device ADDRESS --dry-run -o json", "host bind --live --device ADDRESS --allow ADDRESS --dry-run",
					"rdma prepare --device ADDRESS --vfs 2 --dry-run", "rdma prepare --device ADDRESS --whole --dry-run",
					"container check -o json", "container prepare --device ADDRESS --dry-run", "container prepare --hca ADDRESS --dry-run",
				}) {
					_, commands := s.play(t, line)
					for _, command := range commands {
						played <- command
					}
				}
			})
		}
	})
	if len(played) < 100 {
		t.Errorf("only %d commands were played", len(played))
	}
}

// TestPlayedAdapters: what rdma check prints for adapters in ordinary states is accepted on the
// machine that it was printed for, with one VF for a number of them.
func TestPlayedAdapters(t *testing.T) {
	const pf, vf = "0000:0c:00.0", "0000:0c:00.1"
	const ib1 = "sys/devices/pci0000:0c/" + vf + "/net/ib1"
	idle := "symlink sys/class/net/ib1 -> ../../../" + ib1 + "\nsymlink " + ib1 + "/device -> ../../../" + vf + "\n"
	down := "-- " + ib1 + "/ifindex --\n4\n-- " + ib1 + "/type --\n32\n-- " + ib1 + "/flags --\n0x1002\n"
	exclusive := "-- sys/module/ib_core/parameters/netns_mode --\nN\n"
	played := 0
	for name, tree := range map[string]string{
		"a VF without GUID": idle + hosttest.Fabric([]hosttest.HCA{{Address: pf, Device: "mlx5_0", Total: 8, VFs: []string{vf}},
			{Address: vf, Device: "mlx5_1", Product: "101c", Index: 1, PF: pf, State: "1: DOWN", NodeGUID: "0000:0000:0000:0000"}}, down),
		"a guest without GUID": hosttest.Fabric([]hosttest.HCA{{Address: pf, Device: "mlx5_0", State: "1: DOWN", NodeGUID: "0000:0000:0000:0000"}}, ""),
		"a guest, DOWN":        hosttest.Fabric([]hosttest.HCA{{Address: pf, Device: "mlx5_0", State: "1: DOWN"}}, ""),
		"in a container":       hosttest.Fabric([]hosttest.HCA{{Address: pf, Device: "mlx5_0", Elsewhere: true}}, exclusive),
		"no device":            hosttest.Fabric([]hosttest.HCA{{Address: pf}}, "-- proc/modules --\nib_uverbs 1 0 - Live 0x0\n"),
	} {
		t.Run(name, func(t *testing.T) {
			s := shape{name: name, root: hosttest.Lay(t, tree)}
			s.complete(t)
			var document struct {
				Findings []struct{ Check, Remedy string }
			}
			if o := s.run(t, "rdma check -o json"); json.Unmarshal([]byte(o.stdout), &document) != nil || o.status == 1 {
				t.Fatalf("%s%s", o.stdout, o.stderr)
			}
			for _, f := range document.Findings {
				for _, found := range hinted().FindAllStringSubmatch(f.Remedy, -1) {
					line := strings.TrimPrefix(found[1]+found[2], "gpustack ")
					line, _, _ = strings.Cut(strings.Replace(line, " --vfs N", " --vfs 1", 1), " sets ")
					line = strings.TrimSuffix(strings.ReplaceAll(line+" ", " --root ROOT/ ", " "), " ")
					if slices.ContainsFunc(strings.Fields(line), placeholder().MatchString) {
						continue // of the hypervisor
					}
					if changes(t, line) {
						line += " --dry-run"
					}
					played++
					if o := s.run(t, line); o.status == 1 {
						t.Errorf("%s: gpustack %s\n%s", f.Check, line, o.stderr)
					}
				}
			}
		})
	}
	if played < 2 {
		t.Errorf("only %d commands were played", played)
	}
}

// configured is nova configure in a remedy.
var configured = host.LazyRegexp(`gpustack (nova configure(?: --placement| --(?:role|alias|remove-alias|release) \S*[^\s,;])*)`)

const (
	aliasA100 = `alias = {"name": "A100", "vendor_id": "10de", "product_id": "20b5", "device_type": "type-PF"}` + "\n"
	specA100  = `device_spec = {"vendor_id": "10de", "product_id": "20b5"}` + "\n"
)

// twoA100 returns the devices of a tree with two A100 for guests, each on a NUMA node of its own.
func twoA100() string {
	var links, files strings.Builder
	for i, address := range []string{"0000:17:00.0", "0000:31:00.0"} {
		dir := "sys/bus/pci/devices/" + address
		fmt.Fprintf(&links, "symlink %[1]s/driver -> ../../drivers/vfio-pci\nsymlink %[1]s/iommu_group -> ../../../../kernel/iommu_groups/%[2]d\n", dir, i)
		for name, text := range map[string]string{"class": "0x030200", "vendor": "0x10de", "device": "0x20b5", "sriov_totalvfs": "16", "sriov_numvfs": "0",
			"numa_node": fmt.Sprint(i)} {
			fmt.Fprintf(&files, "-- %s/%s --\n%s\n", dir, name, text)
		}
	}
	return links.String() + files.String()
}

// TestPlayedNova: each nova configure that a failure of nova check prints mends the failure, on the
// machine that it was printed for.
func TestPlayedNova(t *testing.T) {
	tree := twoA100()
	const (
		alias, spec = aliasA100, specA100
		filters     = "[filter_scheduler]\nenabled_filters = ComputeFilter,PciPassthroughFilter\n"
	)
	for name, test := range map[string]struct{ release, conf string }{
		"no type":                     {"zed", strings.Replace(alias, `, "device_type": "type-PF"`, "", 1) + spec + filters},
		"another type":                {"zed", strings.Replace(alias, "type-PF", "type-VF", 1) + spec + filters},
		"another type, with a policy": {"zed", strings.Replace(alias, `"type-PF"`, `"type-PCI", "numa_policy": "preferred"`, 1) + spec + filters},
		"a mistyped address":          {"zed", alias + `device_spec = {"vendor_id": "10de", "product_id": "20b5", "address": "0000:18:00.0"}` + "\n" + filters},
		"a wildcard of another bus":   {"zed", alias + `device_spec = {"address": "*:02:*.*"}` + "\n" + filters},
		"no device_spec":              {"zed", alias + filters},
		"one_time_use alone":          {"flamingo", alias + `device_spec = {"vendor_id": "10de", "product_id": "20b5", "one_time_use": "true"}` + "\n" + filters},
		"no filter":                   {"zed", alias + spec + "[filter_scheduler]\nenabled_filters = ComputeFilter\n"},
		"a policy without its filter": {"zed", strings.Replace(alias, `"type-PF"`, `"type-PF", "numa_policy": "required"`, 1) + spec + filters},
		"an ignored option":           {"zed", alias + spec + filters + "[DEFAULT]\nenabled_filters = ComputeFilter\n"},
		"a report without Placement":  {"2024.1", alias + spec + filters + "pci_in_placement = true\n"},
		"an alias of nova-api alone":  {"zed", spec + filters + "-- etc/nova/nova-api.conf --\n[pci]\n" + alias},
		"of nova-compute alone":       {"zed", spec + filters + "-- etc/nova/nova-compute.conf --\n[pci]\n" + alias},
		"another policy": {"zed", spec + filters + "-- etc/nova/nova-api.conf --\n[pci]\n" + alias + "-- etc/nova/nova-compute.conf --\n[pci]\n" +
			strings.Replace(alias, `"type-PF"`, `"type-PF", "numa_policy": "preferred"`, 1)},
		"another case": {"zed", spec + filters + "-- etc/nova/nova-api.conf --\n[pci]\n" + alias + "-- etc/nova/nova-compute.conf --\n[pci]\n" +
			strings.Replace(alias, "A100", "a100", 1)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := shape{name: name, root: hosttest.Lay(t, tree+"-- etc/nova/nova.conf --\n[pci]\n"+test.conf)}
			check := func() (seen, remedies []string) {
				var document struct {
					Findings []struct{ Status, Seen, Remedy string }
				}
				o := s.run(t, "nova check --role all -o json --release "+test.release)
				if err := json.Unmarshal([]byte(o.stdout), &document); err != nil {
					t.Fatal(err, o.stderr)
				}
				for _, f := range document.Findings {
					if f.Status == "fail" || f.Status == "warn" {
						seen, remedies = append(seen, f.Seen), append(remedies, f.Remedy)
					}
				}
				return seen, remedies
			}
			seen, remedies := check()
			played := 0
			for i, remedy := range remedies {
				found := configured().FindStringSubmatch(strings.ReplaceAll(remedy, " --root ROOT/", ""))
				if found == nil {
					continue
				}
				played++
				if o := s.run(t, found[1]+" --yes"); o.status != 0 {
					t.Errorf("%s: gpustack %s\n%s%s", seen[i], found[1], o.stdout, o.stderr)
				}
				if again, _ := check(); slices.Contains(again, seen[i]) {
					text, err := os.ReadFile(s.root.Path("/etc/nova/nova.conf"))
					t.Errorf("gpustack %s does not mend: %s\n%s%v", found[1], seen[i], text, err)
				}
			}
			if played == 0 {
				t.Errorf("no remedy of %q is a command: %q", seen, remedies)
			}
		})
	}
}

// ofOpenStack is a command of the OpenStack client in a remedy, and what it changes in a cloud.
var ofOpenStack = host.LazyRegexp(`openstack (?:flavor set --property (\S+)=(\S+) gpu\b|compute service set --(enable|up) gpu1 nova-compute)`)

// TestPlayedExplain: each command that nova explain prints for the first failure of a host, or for
// filters that let it be chosen without a free device, mends it, on the machine and in the cloud that
// it was printed for.
func TestPlayedExplain(t *testing.T) {
	for name, test := range map[string]struct {
		conf   string
		specs  map[string]string // of the flavor, besides two A100
		change func(*cloudtest.Node)
	}{
		"another type":             {strings.Replace(aliasA100, "type-PF", "type-PCI", 1) + specA100, nil, nil},
		"no type":                  {strings.Replace(aliasA100, `, "device_type": "type-PF"`, "", 1) + specA100, nil, nil},
		"no device_spec":           {aliasA100, nil, nil},
		"a mistyped address":       {aliasA100 + strings.Replace(specA100, "}", `, "address": "0000:18:00.0"}`, 1), nil, nil},
		"one of two offered":       {aliasA100 + strings.Replace(specA100, "}", `, "address": "0000:17:00.0"}`, 1), nil, nil},
		"an alias in another case": {aliasA100 + specA100, map[string]string{"pci_passthrough:alias": "a100:2"}, nil},
		"no filter":                {aliasA100 + specA100 + "[filter_scheduler]\nenabled_filters = ComputeFilter\n", nil, nil},
		"an empty filter":          {aliasA100 + specA100 + "[filter_scheduler]\nenabled_filters = ComputeFilter,,PciPassthroughFilter\n", nil, nil},
		"far devices":              {aliasA100 + specA100, map[string]string{"hw:numa_nodes": "1"}, nil},
		"a disabled host":          {aliasA100 + specA100, nil, func(n *cloudtest.Node) { n.Disabled = "new disk" }},
		"a host forced down":       {aliasA100 + specA100, nil, func(n *cloudtest.Node) { n.Forced = true }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			filters := "[filter_scheduler]\nenabled_filters = ComputeFilter,PciPassthroughFilter\n"
			if strings.Contains(test.conf, "enabled_filters") {
				filters = ""
			}
			root := hosttest.Lay(t, twoA100()+"-- proc/sys/kernel/hostname --\ngpu1\n-- etc/nova/nova.conf --\n[DEFAULT]\nhost = gpu1\n[pci]\n"+test.conf+filters)
			c := cloudtest.Start(t, 95)
			flavor := c.Add("5", "gpu", 4, 8192, 20, true, map[string]string{"pci_passthrough:alias": "A100:2"})
			maps.Copy(flavor.Specs, test.specs)
			node := &cloudtest.Node{Name: "gpu1", Zone: "az1", VCPU: 32, Memory: 65536, Disk: 1000}
			if test.change != nil {
				test.change(node)
			}
			c.AddHosts(&cloudtest.Hosts{Nodes: []*cloudtest.Node{node}})
			run := func(line string) (stdout string, status int) {
				o := runProgram(t, "/", trialEnv(t, c, nil), append(strings.Fields(line), "--root", root.Path("/"), "--release", "zed")...)
				if o.status == 1 {
					t.Errorf("gpustack %s:\n%s%s", line, o.stdout, o.stderr)
				}
				return o.stdout, o.status
			}
			inventory := filepath.Join(t.TempDir(), "gpu1.json")
			write(t, inventory, runProgram(t, "/", nil, "host", "scan", "-o", "json", "--root", root.Path("/")).stdout)
			first := func() (seen, remedy string) {
				var report struct {
					Judgements []struct {
						Links []struct{ Link, Status, Seen, Remedy string }
					}
				}
				out, _ := run("nova explain --flavor gpu -o json --conf all=/etc/nova/nova.conf --inventory " + inventory)
				if err := json.Unmarshal([]byte(out), &report); err != nil || len(report.Judgements) != 1 {
					t.Fatalf("%v: %s", err, out)
				}
				for _, l := range report.Judgements[0].Links {
					if l.Status == "fail" || l.Status == "warn" && l.Link == "filters" {
						return l.Seen, l.Remedy
					}
				}
				return "", ""
			}
			seen, remedy := first()
			if of := ofOpenStack().FindStringSubmatch(remedy); of != nil {
				switch {
				case of[1] != "":
					flavor.Specs[of[1]] = of[2]
				case of[3] == "up":
					node.Forced = false
				default:
					node.Disabled = ""
				}
			} else if found := configured().FindStringSubmatch(remedy); found != nil {
				run(found[1] + " --yes")
			} else {
				t.Fatalf("%q: the remedy is no command: %q", seen, remedy)
			}
			if again, other := first(); again != "" {
				t.Errorf("%s does not mend %q: %q (%s)", remedy, seen, again, other)
			}
		})
	}
}
