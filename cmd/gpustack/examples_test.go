package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/host/hosttest"
	"gpustack/integration/terminal"
	"gpustack/nova/cloud/cloudtest"
)

// An exampleSetup is what the examples of a command need.
type exampleSetup struct {
	// script is run by bash in a folder that contains the examples as examples. It makes the files
	// that the lines name; node is the root of lines without --root. Each line has a copy of the
	// folder.
	script string
	before string // is run before each line, $LINE
	cloud  bool   // the lines connect to a cloud
	hosts  bool   // the cloud has compute nodes
	status int    // the exit status of lines without --dry-run; that of others is 2
}

// exampleSetups returns the set-up of each command, or of all commands of a group, that needs more
// than the talk's node.
func exampleSetups() map[string]exampleSetup {
	// A tree is no kernel, and drivers of a tree cannot be changed: without --dry-run, the functions
	// are as the line wants them. integration/vm changes drivers.
	held := func(dryRun, other string) string {
		return `
case "$LINE" in *--dry-run*) driver=` + dryRun + ` ;; *pci-stub*) driver=pci-stub ;; *) driver=` + other + ` ;; esac
mkdir -p node/sys/bus/pci/drivers/$driver
for f in node/sys/bus/pci/devices/0000:8[48]:00.?; do
	place=$(readlink -f $f)
	rm -f $place/driver
	[ $driver = none ] || ln -s /sys/bus/pci/drivers/$driver $place/driver
done
`
	}
	const prepared = talkNode + "gpustack host prepare --root node --yes\n"
	const copies = talkNode + "mkdir mnt; cp -a node mnt/sosreport; cp -a node mnt/node\n"
	return map[string]exampleSetup{
		"completion": {script: "mkdir -p $HOME/.config/fish/completions"},
		"flavor":     {script: bothRoles, cloud: true},
		"fleet":      {script: fleetNodes},
		"fleet diff": {script: fleetNodes, status: 2}, // a node is new
		"history":    {script: prepared + undone},
		"host bind":  {script: talkNode, before: held("none", "vfio-pci")},
		"host check": {script: copies, status: 2}, // the node is not prepared
		"status":     {script: copies, status: 2},
		"container check": {status: 2, // the talk's node has no driver of NVIDIA's
			script: talkNode + "mkdir -p srv/images/pytorch/usr/lib64\ntouch srv/images/pytorch/usr/lib64/libc.so.6\n"},
		"container prepare": {script: "sh containers.sh node",
			before: `case "$LINE" in *--remove*|*--none*) gpustack container prepare --root node --device 0000:84:00.0 --yes;; esac`},
		"host guests":  {script: "cp -a guests node; sh lay.sh; mkdir -p node/srv/nova; cp node/etc/kolla/nova-compute/nova.conf node/srv/nova"},
		"host prepare": {script: copies, before: `case "$LINE" in *--remove*|*--none*) gpustack host prepare --root node --yes;; esac`},
		"host release": {script: talkNode, before: `case "$LINE" in *container*)
	rm -rf node; sh containers.sh node; gpustack container prepare --root node --device 0000:84:00.0 --static --yes;;
*)
` + held("vfio-pci", "nouveau") + `;;
esac
`},
		"host scan":   {script: copies},
		"host unpack": {script: talkNode, before: `case "$LINE" in *scan*) mkdir tmp; mv node tmp;; esac`},
		"image":       {script: bothRoles, cloud: true},
		"rdma":        {script: "gpustack host unpack examples/hgx-8xa100.txtar node"},
		"nova":        {script: bothRoles},
		"nova configure": {script: inventories, before: `case "$LINE" in *--hca*)
	rm -rf kept; mv node kept; sh hca.sh node
	for part in etc/nova; do
		[ ! -e kept/$part ] || { mkdir -p node/$part; cp -an kept/$part/. node/$part/; }
	done
	gpustack rdma prepare --root node --device 0000:0c:00.0 --vfs 2 --yes;;
*--remove-alias*)
	` + configure + `;;
esac
`},
		"nova drain":   {before: `case "$LINE" in *--step*) gpustack nova drain gpu7 --reason x --yes;; esac`, cloud: true, hosts: true},
		"nova enable":  {before: "gpustack nova drain gpu7 --reason x --yes", cloud: true, hosts: true},
		"nova devices": {script: bothRoles, cloud: true, hosts: true},
		"nova explain": {script: bothRoles, cloud: true, hosts: true, status: 2}, // without a database, free devices are unknown
		"rdma prepare": {script: "sh hca.sh node; mkdir mnt; cp -a node mnt/node",
			before: `case "$LINE" in *--remove*|*--none*) gpustack rdma prepare --root node --device 0000:0c:00.0 --vfs 8 --yes;; esac`},
		"undo": {script: prepared + undone},
	}
}

// talkNode is the talk's node, newly unpacked.
const talkNode = "gpustack host unpack examples/talk-2xk4200.txtar node\n"

// undone makes more entries of the journal of the talk's node.
const undone = `
for n in 1 2; do
	gpustack undo --root node --yes
	gpustack host prepare --root node --yes
done
`

// fleetNodes has the documents of five nodes that are like the talk's, ready for guests and used by
// none, in one folder, in one for each kind, and as JSON lines; of all but one in a folder of the
// day before; and the services and aggregates of the nodes. A tree does not show who uses devices:
// their state is replaced.
const fleetNodes = talkNode + `
rm -r guests
mkdir -p nodes scans checks guests
for f in node/sys/bus/pci/devices/0000:8[48]:00.?; do
	ln -sfn /sys/bus/pci/drivers/vfio-pci $(readlink -f $f)/driver
done
gpustack host scan --root node --machine -o json > scan
gpustack host check --root node -o json > check || [ $? = 2 ]
services= hosts=
for n in 1 2 3 4 5; do
	sed "s/\"gpu1\"/\"gpu$n\"/; s/\"state\":\"unknown\"/\"state\":\"guest-ready\"/" scan > nodes/gpu$n.scan.json
	sed "s/\"gpu1\"/\"gpu$n\"/" check > nodes/gpu$n.check.json
	sed "s/\"gpu1\"/\"gpu$n\"/g; s/\"time\":\"[^\"]*\"/\"time\":\"$(date -u +%FT%TZ)\"/" quiet.json > nodes/gpu$n.guests.json
	for kind in scan check guests; do tr -d '\n' < nodes/gpu$n.$kind.json; echo; done > gpu$n.jsonl
	services="$services,{\"Host\":\"gpu$n\",\"Zone\":\"az1\",\"Status\":\"enabled\",\"State\":\"up\",\"Updated At\":\"$(date -u +%FT%T)\"}"
	hosts="$hosts,\"gpu$n\""
done
cp nodes/*.scan.json scans
cp nodes/*.check.json checks
cp nodes/*.guests.json guests
cp -r nodes nodes.yesterday
rm nodes.yesterday/gpu5.*
echo "[${services#,}]" > services.json
echo "{\"services\": [${services#,}], \"aggregates\": {\"fast\": [${hosts#,}]}}" > map.json
`

// inventories has the talk's node with Nova Zed, inventories of two hosts, and a nova.conf of a
// controller and a compute node.
const inventories = talkNode + `
rm -r node/var/lib/dpkg
packages=node/usr/lib/python3/dist-packages
rm -rf $packages
mkdir -p $packages/nova-26.0.0.dist-info
printf 'Metadata-Version: 2.1\nName: nova\nVersion: 26.0.0\n' > $packages/nova-26.0.0.dist-info/METADATA
printf '[DEFAULT]\n[filter_scheduler]\nenabled_filters = ComputeFilter\n' > node/etc/nova/nova.conf
gpustack host scan --root node -o json > gpu1.json
sed s/gpu1/gpu2/ gpu1.json > gpu2.json
mkdir -p inventories etc/nova
cp gpu1.json gpu2.json inventories
cp -a node facts
mkdir -p machines
for cpu in 0 1 2 3 4 5 6 7; do
	n=$((cpu / 4))
	system=facts/sys/devices/system
	mkdir -p $system/cpu/cpu$cpu/topology $system/node/node$n/cpu$cpu $system/node/node$n/hugepages
	echo $n > $system/cpu/cpu$cpu/topology/physical_package_id
	echo $cpu > $system/cpu/cpu$cpu/topology/core_cpus_list
	echo "Node $n MemTotal: 33554432 kB" > $system/node/node$n/meminfo
done
gpustack host scan --root facts --machine -o json > machines/gpu1.json
cp -a node ctl
cp -a node gpu
gpustack host prepare --root node --yes
gpustack nova configure --root ctl --role controller --inventory gpu1.json --yes
gpustack nova configure --root gpu --role compute --inventory gpu1.json --yes
cp ctl/etc/nova/nova.conf ctl.conf
cp ctl/etc/nova/nova.conf etc/nova/nova.conf
cp gpu/etc/nova/nova.conf gpu1.conf
mkdir -p gpu1.d
echo '[DEFAULT]' > gpu1.d/10.conf
cp ctl.conf controller.conf
for f in node/sys/bus/pci/devices/0000:8[48]:00.0; do # as after the reboot
	ln -sfn /sys/bus/pci/drivers/vfio-pci $(readlink -f $f)/driver
done
rm -r ctl gpu facts guests
`

// bothRoles is inventories with the node configured for both roles, and a program for guests.
const bothRoles = inventories + configure + "\necho nvidia-smi -L >measure.sh\n"

const configure = "gpustack nova configure --root node --role all --inventory gpu1.json --yes"

// elsewhere are the commands whose examples need parts that only the integration tests have. Each
// is run by the test that is named.
func elsewhere() map[string]string {
	return map[string]string{
		"container test":   "TestContainerTest of integration",
		"rdma test":        "TestRDMATest of integration",
		"repair-migration": "TestRepairExamples of integration/db",
	}
}

// examples returns the lines of EXAMPLES in a command's help.
func examples(c *cli.Command) (lines []string) {
	_, section, ok := strings.Cut(c.Description, "\nEXAMPLES\n")
	if !ok {
		return nil
	}
	for line := range strings.Lines(section) {
		line, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "  ")
		if !ok {
			break
		}
		lines = append(lines, line)
	}
	return lines
}

// TestExamples runs every example of every command's help, which the manual repeats, as an operator
// would type it, on a terminal where questions are answered with yes. Only what a test must not
// touch is replaced: commands get the --root of an example node, absolute paths of documents are in
// the test's folder, and ssh runs its command here.
func TestExamples(t *testing.T) {
	a := newApp(testUI(t), []string{"gpustack"})
	setups, used := exampleSetups(), map[string]bool{}
	laid := map[exampleSetup]func() (string, error){}
	ran := 0
	for path, c := range args.Commands(a.Commands) {
		lines := examples(c)
		if len(lines) == 0 {
			continue
		}
		if where := elsewhere()[path]; where != "" {
			used[path] = true
			continue
		}
		setup, key := exampleSetup{script: talkNode}, path
		if _, ok := setups[key]; !ok {
			key, _, _ = strings.Cut(path, " ")
		}
		if s, ok := setups[key]; ok {
			setup, used[key] = s, true
		}
		ran += len(lines)
		folder := exampleSetup{script: setup.script, cloud: setup.cloud}
		if laid[folder] == nil {
			dir := t.TempDir()
			laid[folder] = sync.OnceValues(func() (string, error) { return dir, layExamples(dir, folder) })
		}
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			from, err := laid[folder]()
			hosttest.NoError(t, err)
			e := exampleRun{t, a.App, setup, filepath.Join(t.TempDir(), "folder")}
			for _, line := range lines {
				if out, err := exec.Command("cp", "-a", from, e.dir).CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				e.run(line)
				hosttest.NoError(t, os.RemoveAll(e.dir))
			}
		})
	}
	for _, key := range append(slices.Collect(maps.Keys(setups)), slices.Collect(maps.Keys(elsewhere()))...) {
		if !used[key] {
			t.Errorf("%s has a set-up, but no examples", key)
		}
	}
	if ran < 40 {
		t.Errorf("only %d examples were run", ran)
	}
}

// exampleRun runs an example in a folder.
type exampleRun struct {
	t     *testing.T
	app   *cli.App
	setup exampleSetup
	dir   string
}

// layExamples makes the folder of a set-up.
func layExamples(dir string, setup exampleSetup) error {
	node, err := txtar.ParseFile("testdata/script/host_guests.txtar") // everything of it can be read
	if err != nil {
		return err
	}
	for i, f := range node.Files {
		node.Files[i].Name = strings.Replace(f.Name, "node/", "guests/", 1)
	}
	folder, err := filepath.Abs("../../examples")
	ssh := filepath.Join(dir, "bin/ssh")
	err = errors.Join(err, txtar.Write(node, dir),
		copyFile("testdata/script/rdma_prepare.txtar", "hca.sh", dir),
		copyFile("testdata/script/fleet.txtar", "quiet.json", dir),
		copyFile("testdata/script/container_prepare.txtar", "containers.sh", dir),
		os.Mkdir(filepath.Dir(ssh), 0o755), os.WriteFile(ssh, []byte("#!/bin/sh\nshift; exec \"$@\"\n"), 0o755),
		os.Mkdir(filepath.Join(dir, "home"), 0o755), os.Symlink(folder, filepath.Join(dir, "examples")))
	env := exampleEnv(dir)
	if setup.cloud {
		state, stateErr := stateHome(dir)
		env, err = append(env, state...), errors.Join(err, stateErr, os.Chmod(dir, 0o777))
	}
	if err != nil {
		return err
	}
	return bash(dir, env, setup.script)
}

// exampleEnv is the environment of examples in a folder.
func exampleEnv(dir string) []string {
	return append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"), "HOME="+filepath.Join(dir, "home"),
		"LANG=C.UTF-8", "LC_ALL=C.UTF-8", "TERM=dumb")
}

// bash runs a script that must succeed.
func bash(dir string, env []string, script string) error {
	c := exec.Command("bash", "-ec", script)
	c.Dir, c.Env = dir, env
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", script, err, out)
	}
	return nil
}

// copyFile copies a file of a script's archive into a folder.
func copyFile(archive, name, dir string) error {
	a, err := txtar.ParseFile(archive)
	if err != nil {
		return err
	}
	for _, f := range a.Files {
		if f.Name == name {
			return os.WriteFile(filepath.Join(dir, name), f.Data, 0o644)
		}
	}
	return fmt.Errorf("%s: has no file %s", archive, name)
}

// run runs an example.
func (e *exampleRun) run(line string) {
	e.t.Helper()
	env := exampleEnv(e.dir)
	if e.setup.cloud {
		env = slices.Concat(env, unprivilegedEnv(e.t), e.startCloud())
	}
	if e.setup.before != "" {
		if err := bash(e.dir, append(slices.Clone(env), "LINE="+line), e.setup.before); err != nil {
			e.t.Fatalf("before %s: %v", line, err)
		}
	}
	here := e.here(line)
	c := exec.Command("bash", "-c", here)
	c.Dir, c.Env = e.dir, env
	s := terminal.Start(e.t, c, "")
	ended := make(chan struct{})
	answered := make(chan struct{})
	go func() { // answers the question, if there is one
		defer close(answered)
		for !strings.Contains(s.Output(), "/?] ") {
			select {
			case <-ended:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
		s.Type("y\n")
	}()
	status := s.Wait()
	close(ended)
	<-answered
	want := e.setup.status
	if strings.Contains(line, "--dry-run") {
		want = 2
	}
	if status != want {
		e.t.Errorf("%s: exit status %d instead of %d: correct the example, or add what it needs to exampleSetups\n$ %s\n%s", line, status, want, here, s.Output())
	}
}

// here returns an example as it is run: with the root of the example node, and with absolute paths
// in the folder, unless they are below --root.
func (e *exampleRun) here(line string) string {
	words := strings.Split(line, " ")
	var of *cli.Command // the command of the words before
	for i, word := range words {
		if word == "gpustack" {
			parsed := args.Parse(e.app, words[i:])
			if of = parsed.Command; of != nil && args.FindFlag(of.Flags, "root") != nil && !slices.Contains(words, "--root") {
				words[i+len(parsed.Path)] += " --root node"
			}
		}
		prefix, file, ok := strings.Cut(word, "=")
		if !ok {
			prefix, file = "", word
		} else {
			prefix += "="
		}
		if !filepath.IsAbs(file) || of != nil && i > 0 && isMachineFile(of, words[i-1]) {
			continue
		}
		words[i] = prefix + e.dir + file
	}
	return strings.Join(words, " ")
}

// isMachineFile reports whether a word is a flag of a command whose value is below --root.
func isMachineFile(c *cli.Command, word string) bool {
	flag, ok := args.FindFlag(c.Flags, strings.TrimLeft(word, "-")).(args.PathFlag)
	return ok && flag.Rules().Below
}

// startCloud starts a cloud that has what the examples of flavor name, and returns the variables
// that sign in to it. clouds.yaml has it as lab.
func (e *exampleRun) startCloud() []string {
	c := cloudtest.New(96)
	e.t.Cleanup(c.Close)
	c.Add("1", "gpu.k4200.2", 8, 32768, 80, true, map[string]string{"pci_passthrough:alias": "K4200:2"})
	c.Images = []map[string]any{
		{"id": "9", "name": "windows-10", "status": "active", "min_disk": 20, "min_ram": 512, "size": 1, "os_type": "windows", "img_hide_hypervisor_id": "true"},
		{"id": "10", "name": "debian-12", "status": "active", "min_disk": 2, "min_ram": 512, "size": 1 << 29, "virtual_size": 3 << 30},
		{"id": "11", "name": "cuda-12", "status": "active", "min_disk": 40, "min_ram": 512, "size": 1 << 32, "virtual_size": 40 << 30},
	}
	c.Boot.Console = guestThatRan("", "ended exit=0 from=20.00 to=20.50", "GPU 0: Quadro K4200 (UUID: GPU-1)", "GPU 1: Quadro K4200 (UUID: GPU-2)")
	c.AddServer(cloudtest.Instance{ID: "5e60e600-0000-4000-8000-00000000000a", Name: "gpustack-test-0123abcd", Host: "gpu1",
		More: map[string]any{"status": "ACTIVE", "OS-EXT-STS:task_state": nil}, Metadata: map[string]string{"gpustack-test": "0123abcd"}})
	if e.setup.hosts {
		addHosts(c, "hosts")
	}
	text := fmt.Sprintf("clouds: {lab: {auth: {auth_url: %q, username: admin, password: %s, project_name: admin}}}\n", c.URL, c.Password)
	hosttest.NoError(e.t, os.WriteFile(filepath.Join(e.dir, "clouds.yaml"), []byte(text), 0o644))
	var env []string
	for name, value := range c.Env() {
		env = append(env, name+"="+value)
	}
	return env
}
