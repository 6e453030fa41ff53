package ansible

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host/hosttest"
	"gpustack/nova/cloud/cloudtest"
)

// A call is a module with its options, and what comes of it.
type call struct {
	name    string
	module  string
	options map[string]any
	check   bool // in check mode
	diff    bool

	failed string         // the reason; "" for success
	msg    string         // is part of the message of the failure
	want   map[string]any // fields of the result
	diffs  string         // is part of the diff
	same   bool           // the node is the same afterwards
	runs   int            // how often gpustack is run; 0 for once
}

// tasks returns the tasks of calls.
func tasks(calls []call) (all []task) {
	for _, c := range calls {
		all = append(all, task{"name": c.name, "gpustack.nova." + c.module: c.options, "check_mode": c.check, "diff": c.diff})
	}
	return all
}

// A watch is a program that runs gpustack, and notes each run with the state of the node before it
// and after it.
type watch struct {
	file, log string
}

// newWatch writes such a program for a root.
func (r *ansibleRun) newWatch(t *testing.T, root string) watch {
	t.Helper()
	log := filepath.Join(r.dir, "log")
	// The history and help are for people to read a failure: they change nothing.
	return watch{r.write(t, "watch", fmt.Sprintf(`#!/bin/sh
state() { find %[1]s -type f -exec sha256sum {} + | sort | sha256sum; }
before=$(state)
%[2]s "$@"
status=$?
[ "$before" = "$(state)" ] && echo same >>%[3]s || echo changed >>%[3]s
exit $status
`, root, gpustack, log), 0o755), log}
}

// runs returns what the program has noted.
func (w watch) runs(t *testing.T) []string {
	t.Helper()
	text := hosttest.Read(t, w.log)
	return strings.Fields(text)
}

// judge compares what came of calls.
func judge(t *testing.T, calls []call, outcomes map[string]outcome) {
	t.Helper()
	for _, c := range calls {
		o, ok := outcomes[c.name]
		if !ok {
			t.Errorf("%s: no result", c.name)
			continue
		}
		got := map[string]any{"failed": o.Failed}
		if o.Failed {
			got["reason"] = o.Result["reason"]
		}
		want := map[string]any{"failed": c.failed != ""}
		if c.failed != "" {
			want["reason"] = c.failed
		}
		for name, value := range c.want {
			want[name], got[name] = value, o.Result[name]
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s%v", c.name, diff, o.Result["msg"])
		}
		if msg := fmt.Sprint(o.Result["msg"]); c.msg != "" && !strings.Contains(msg, c.msg) {
			t.Errorf("%s: %s", c.name, msg)
		}
		diffs := ""
		if list, ok := o.Result["diff"].([]any); ok {
			diffs = fmt.Sprint(list...)
		}
		if !strings.Contains(diffs, c.diffs) || c.diff == (diffs == "") && c.diffs != "" || !c.diff && diffs != "" {
			t.Errorf("%s: the diff is\n%s", c.name, diffs)
		}
	}
}

const (
	secret   = "not-to-be-printed"
	rootDisk = "0000:00:1f.2"
)

// newNode returns the root of the talk's node, whose nova.conf has a secret.
func (r *ansibleRun) newNode(t testing.TB, name string) (root string) {
	t.Helper()
	root = filepath.Join(r.dir, name)
	if out, err := exec.Command(gpustack, "host", "unpack", "../../examples/talk-2xk4200.txtar", root).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	file := filepath.Join(root, "etc/nova/nova.conf")
	text := hosttest.Read(t, file)
	secretive := strings.ReplaceAll(text, "nova:example@", "nova:"+secret+"@")
	if secretive == text {
		t.Fatalf("no password in %s", file)
	}
	hosttest.NoError(t, os.WriteFile(file, []byte(secretive), 0o640))
	return root
}

// TestModules: the modules of a node and those of a cloud, each as often as it makes a difference:
// planned in check mode, applied, applied again, undone, undone again, refused.
func TestModules(t *testing.T) {
	for name, test := range map[string]func(*testing.T){"node": testNodeModules, "cloud": testCloudModules} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t)
		})
	}
}

func testNodeModules(t *testing.T) {
	r := newRun(t, 0)
	root := r.newNode(t, "node")
	w := r.newWatch(t, root)
	with := func(options ...any) map[string]any {
		all := map[string]any{"binary": w.file, "root": root}
		for i := 0; i < len(options); i += 2 {
			all[options[i].(string)] = options[i+1]
		}
		return all
	}
	planned := map[string]any{"changed": true, "plan_changed": true, "entry": nil, "exit_status": 2.0}
	unchanged := map[string]any{"changed": false, "plan_changed": false, "entry": nil, "exit_status": 0.0}
	const pciAlias = `+pci_alias = {"name": "K4200"`
	calls := []call{
		{name: "scanned", module: "scan_info", options: with("machine", true), same: true, want: map[string]any{"changed": false}},
		{name: "checked before", module: "check_info", options: with(), same: true,
			want: map[string]any{"changed": false, "ready": false, "verdict": "not prepared", "exit_status": 2.0}},
		{name: "configuration without errors", module: "nova_check_info", options: with("role", "compute"), same: true,
			want: map[string]any{"ok": true, "problems": []any{}, "offered": []any{}, "exit_status": 0.0}},
		{name: "guests cannot be read", module: "guests_info", options: with(), same: true,
			want: map[string]any{"changed": false, "complete": false, "empty": false, "guests": []any{}, "running": []any{}, "exit_status": 2.0}},

		{name: "preparation planned", module: "prepare", options: with(), check: true, diff: true, same: true, want: planned,
			diffs: "+options vfio-pci ids=10de:11b4,10de:0e0a"},
		{name: "prepared", module: "prepare", options: with(), diff: true, diffs: "+options vfio-pci ids=10de:11b4,10de:0e0a",
			want: map[string]any{"changed": true, "plan_changed": true, "entry": 1.0, "reboot_required": true, "exit_status": 0.0}},
		{name: "prepared again", module: "prepare", options: with(), diff: true, same: true, want: unchanged},
		{name: "preparation planned again", module: "prepare", options: with(), check: true, diff: true, same: true, want: unchanged},
		{name: "checked after", module: "check_info", options: with(), same: true,
			want: map[string]any{"changed": false, "ready": false, "verdict": "not ready", "reboot_pending": true}},
		{name: "one GPU planned", module: "prepare", options: with("only", []string{"0000:84:00.0"}), check: true, diff: true, same: true, want: planned,
			diffs: `0000:88:00.0`},

		{name: "configuration planned", module: "configure", options: with("role", "compute"), check: true, diff: true, same: true, diffs: pciAlias,
			want: map[string]any{"changed": true, "entry": nil, "restart": []any{"nova-compute"}}},
		{name: "configured", module: "configure", options: with("role", "compute"), diff: true, diffs: pciAlias,
			want: map[string]any{"changed": true, "entry": 2.0, "restart": []any{"nova-compute"}}},
		{name: "configured again", module: "configure", options: with("role", "compute"), diff: true, same: true,
			want: map[string]any{"changed": false, "entry": nil}},
		{name: "configuration with errors", module: "nova_check_info", options: with("role", "compute"), same: true,
			want: map[string]any{"ok": false, "exit_status": 2.0, "offered": []any{
				map[string]any{"host": nil, "address": "0000:84:00.0"}, map[string]any{"host": nil, "address": "0000:88:00.0"}}}},
		{name: "rendered", module: "configure", options: with("role", "compute", "release", "2025.1", "aliases", []string{"K4200=10de:11b4"}, "render",
			"ini", "managed", true),
			same: true, want: map[string]any{"changed": false}},
		{name: "alias removed", module: "configure", options: with("role", "compute", "remove_aliases", []string{"K4200"}, "if_present", true),
			want: map[string]any{"changed": true, "entry": 3.0}},
		{name: "alias removed again", module: "configure", options: with("role", "compute", "remove_aliases", []string{"K4200"}, "if_present", true),
			same: true, want: map[string]any{"changed": false}},

		{name: "undo of what an entry depends on", module: "undo", options: with("entry", 2), same: true, failed: "refused", msg: "\ngpustack undo --root"},
		{name: "undo planned", module: "undo", options: with("entry", 3), check: true, diff: true, same: true, diffs: pciAlias,
			want: map[string]any{"changed": true, "entry": 3.0}},
		{name: "undone", module: "undo", options: with("entry", 3), diff: true, diffs: pciAlias, want: map[string]any{"changed": true, "entry": 3.0}},
		{name: "undone again", module: "undo", options: with("entry", 3), same: true, want: map[string]any{"changed": false, "entry": 3.0}, runs: 2},
		{name: "undo planned again", module: "undo", options: with("entry", 3), check: true, same: true,
			want: map[string]any{"changed": false, "entry": 3.0}, runs: 2},
		{name: "no such entry", module: "undo", options: with("entry", 7), same: true, failed: "error", msg: "lists the entries", runs: 3},
		{name: "no entry", module: "undo", options: with("entry", ""), failed: "error", msg: "entry: not a number", runs: -1},
		{name: "returned", module: "prepare", options: with("state", "absent"), want: map[string]any{"changed": true, "entry": 4.0}},
		{name: "returned again", module: "prepare", options: with("state", "absent"), same: true, want: unchanged},

		{name: "nothing selected", module: "prepare", options: with("only", []string{}), failed: "error", msg: "only: the list is empty", runs: -1},
		{name: "the root's disk", module: "prepare", options: with("devices", []string{rootDisk}), same: true, failed: "refused",
			msg: rootDisk + ": carries /dev/sda1, mounted at /, without which the host does not boot\nto list all functions: gpustack host scan"},
		{name: "no such GPU", module: "prepare", options: with("devices", []string{"10de:20b2"}), same: true, failed: "error", msg: "10de:20b2", runs: 2},
		{name: "no such GPU, which may be", module: "prepare", options: with("devices", []string{"10de:20b2"}, "if_present", true), same: true,
			want: map[string]any{"changed": false, "plan_changed": false}},
	}
	faults := r.faults(t, root)
	outcomes, printed := r.play(t, append(tasks(calls), tasks(faults)...)...)
	judge(t, calls, outcomes)
	judge(t, faults, outcomes)
	var runs []string
	for _, c := range calls {
		for range max(0, c.runs, 1+min(c.runs, 0)) {
			runs = append(runs, map[bool]string{true: "same", false: "changed"}[c.same || c.check])
		}
	}
	hosttest.EqualIn(t, "runs of gpustack, and whether the node is the same after each", runs, w.runs(t))
	if strings.Contains(printed, secret) {
		t.Error("Ansible has printed the password of nova.conf")
	}
	for _, shown := range []string{"+options vfio-pci ids=10de:11b4,10de:0e0a", pciAlias, "[WARNING]: aliases with names derived from the product: K4200"} {
		hosttest.ContainsIn(t, "what Ansible prints", shown, printed)
	}
	hosttest.ContainsIn(t, "rendered", "[pci]\nalias = ", fmt.Sprint(outcomes["rendered"].Result["rendered"]))
	checkReturned(t, outcomes)
}

// faults returns calls of programs that are not the gpustack that the collection is for.
func (r *ansibleRun) faults(t *testing.T, root string) []call {
	t.Helper()
	program := func(name, script string) map[string]any {
		return map[string]any{"root": root, "binary": r.write(t, name, script, 0o755)}
	}
	// prints prints a document, in these lines, and nothing else.
	prints := func(name string, status int, lines ...string) map[string]any {
		return program(name, fmt.Sprintf("#!/bin/sh\ncat <<'END'\n%s\nEND\nexit %d\n", strings.Join(lines, "\n"), status))
	}
	// filtered prints what gpustack prints, but for what sed removes.
	filtered := func(name, sed string) map[string]any {
		return program(name, "#!/bin/sh\nout=$("+gpustack+" \"$@\")\nstatus=$?\nprintf '%s\\n' \"$out\" | sed '"+sed+"'\nexit $status\n")
	}
	// older knows no --take-over. That of the first commits printed no document of it.
	older := func(name, document string) map[string]any {
		options := program(name, `#!/bin/sh
case " $* " in
" help "*) `+gpustack+` "$@" | grep -v -- --take-over; exit 0 ;;
*" --take-over "*) printf '%s' '`+document+`'; echo 'gpustack: error: flag provided but not defined: -take-over' >&2; exit 1 ;;
esac
exec `+gpustack+` "$@"
`)
		options["take_over"] = true
		return options
	}
	missing := func(binary string) map[string]any { return map[string]any{"root": root, "binary": binary} }
	all := []call{
		{name: "no program at the path", module: "scan_info", options: missing(r.dir + "/absent"), failed: "missing_binary",
			msg: r.dir + "/absent: no such program"},
		{name: "no program of the name", module: "prepare", options: missing("gpustack-absent"), check: true, failed: "missing_binary",
			msg: "in PATH and /usr/local/sbin"},
		{name: "a folder", module: "prepare", options: missing(r.dir), failed: "missing_binary", msg: "no such program"},
		{name: "a program of another machine", module: "check_info", options: program("alien", "\x7fELF\x02\x01\x01"), failed: "missing_binary",
			msg: "cannot be run on this machine"},
		{name: "an older program", module: "prepare", options: older("older", `{"schema":1,"kind":"failure","errors":[{"message":"unknown flag --take-over","hint":null}]}`),
			failed: "unknown_flag", msg: "does not have the option --take-over"},
		{name: "a much older program", module: "prepare", options: older("oldest", ""), failed: "unknown_flag", msg: "does not have the option --take-over"},
		{name: "an older program without the command", module: "guests_info", failed: "unknown_flag",
			msg:     "gpustack host guests: this gpustack does not have the command",
			options: program("without", "#!/bin/sh\necho 'gpustack: error: unknown command' >&2\nexit 1\n")},
		{name: "a field less", module: "prepare", options: filtered("less", `/^"reboot_required":/d`), failed: "missing_field",
			msg: "no field reboot_required", want: map[string]any{"changed": true}},
		{name: "a field of findings less", module: "check_info", options: filtered("less-findings", `s/"status":"[a-z/]*",//`), failed: "missing_field",
			msg: "no field status"},
		{name: "no schema", module: "scan_info", options: filtered("no-schema", `s/"schema":1,//`), failed: "missing_field", msg: "no field schema"},
		{name: "another schema", module: "scan_info", options: filtered("schema", `s/"schema":1,/"schema":2,/`), failed: "unknown_schema", msg: "schema 2"},
		{name: "half a document", module: "scan_info", options: filtered("half", `2,$d`), failed: "no_document", msg: "printed no document (exit status 0)"},
		{name: "a crash", module: "check_info", options: program("crash", "#!/bin/sh\necho 'panic: runtime error' >&2\nexit 2\n"), failed: "no_document",
			msg: "(exit status 2): panic: runtime error"},
		{name: "killed", module: "check_info", options: program("killed", "#!/bin/sh\nkill -9 $$\n"), failed: "no_document", msg: "(exit status -9)"},
		{name: "interrupted", module: "prepare", failed: "interrupted", msg: "interrupted: nothing was changed",
			options: prints("interrupted", 130, `{"schema":1,"kind":"failure","errors":[{"message":"interrupted: nothing was changed","hint":null}]}`)},
		{name: "exit status 2 of a command without it", module: "scan_info", failed: "error", msg: "ended with exit status 2",
			options: program("differs", "#!/bin/sh\n"+gpustack+" \"$@\"\nexit 2\n")},
		{name: "no verdict", module: "check_info", want: map[string]any{"verdict": "unknown", "ready": false, "exit_status": 1.0},
			options: prints("verdict", 1, `{"schema":1,"kind":"host check","verdict":"unknown","reboot_required":null,"findings":[],"warnings":[],`,
				`"errors":[{"message":"not enough information to reach a verdict","hint":null}]}`)},
		{name: "guests", module: "guests_info",
			want: map[string]any{"complete": true, "empty": false, "exit_status": 0.0,
				"guests": []any{"off", "process 7 (qemu-system-x86)", "u1"}, "running": []any{"process 7 (qemu-system-x86)", "u1", "u2"}},
			options: prints("guests", 0, `{"schema":1,"kind":"host guests","complete":true,`,
				`"holders":[{"pid":7,"command":"qemu-system-x86","uuid":null,"name":null}],`,
				`"guests":[{"pid":8,"command":"qemu","uuid":"u1","name":"one","asked":["0000:84:00.0"]},`,
				`{"pid":9,"command":"qemu","uuid":"u2","name":"two","asked":[]}],`,
				`"domains":[{"uuid":"u1","name":"one","running":true,"functions":["0000:84:00.0"]},`,
				`{"uuid":"","name":"off","running":false,"functions":["0000:88:00.0"]},`,
				`{"uuid":"u3","name":"idle","running":false,"functions":[]}]}`)},
		{name: "no guests", module: "guests_info", want: map[string]any{"complete": true, "empty": true, "guests": []any{}, "running": []any{}},
			options: prints("no-guests", 0, `{"schema":1,"kind":"host guests","complete":true,"holders":[],"guests":[],"domains":[]}`)},
	}
	return all
}

// checkReturned: what modules return is what they document.
func checkReturned(t *testing.T, outcomes map[string]outcome) {
	t.Helper()
	docs := documented(t)
	of := func(o outcome) string {
		invocation, _ := o.Result["invocation"].(map[string]any)
		arguments, _ := invocation["module_args"].(map[string]any)
		for name, module := range docs {
			if slices.Equal(slices.Sorted(maps.Keys(module.Doc.Options)), slices.Sorted(maps.Keys(arguments))) {
				return name
			}
		}
		return ""
	}
	usual := []string{"changed", "failed", "msg", "invocation", "warnings", "diff", "exception"}
	for _, o := range outcomes {
		name := of(o)
		if name == "" {
			t.Errorf("%s: the options are of no module", o.Task)
			continue
		}
		for field := range o.Result {
			if _, ok := docs[name].Return[field]; !ok && !slices.Contains(usual, field) && !strings.HasPrefix(field, "_ansible") {
				t.Errorf("%s: %s returns %s, which it does not document", o.Task, name, field)
			}
		}
	}
}

// testCloudModules: the modules of a cloud, run by a user without privileges, whose journal is in
// the folder of the test.
func testCloudModules(t *testing.T) {
	const nobody = 65534
	r := newRun(t, nobody)
	c := cloudtest.Start(t, 96)
	node := func(name, reason string) *cloudtest.Node {
		return &cloudtest.Node{Name: name, Zone: "az1", VCPU: 32, Memory: 65536, Disk: 1000, Class: "CUSTOM_PCI_10DE_11B4", Devices: 2, Free: 2,
			Disabled: reason}
	}
	nodes := []*cloudtest.Node{node("gpu1", ""), node("gpu2", "new disk"), node("gpu3", "gpustack 2026-11-27T09:00:00Z 5e0c3a71: reboot")}
	c.AddHosts(&cloudtest.Hosts{Nodes: nodes})
	for i, s := range []struct {
		name, status string
		power        int
		specs        map[string]any
	}{
		{"train", "ACTIVE", 1, map[string]any{"pci_passthrough:alias": "K4200:2"}},
		{"idle", "SHUTOFF", 4, map[string]any{"pci_passthrough:alias": "K4200:1"}},
		{"web", "ACTIVE", 1, map[string]any{}},
	} {
		c.AddServer(cloudtest.Instance{ID: fmt.Sprintf("0a1b0000-0000-4000-8000-00000000000%d", i), Name: s.name, Host: "gpu1", Project: "p1",
			More: map[string]any{"status": s.status, "user_id": "u1", "OS-EXT-STS:task_state": nil, "OS-EXT-STS:power_state": s.power,
				"OS-EXT-STS:vm_state": strings.ToLower(s.status), "flavor": map[string]any{"original_name": "f", "extra_specs": s.specs}}})
	}
	c.Add("1", "gpu.k4200.2", 8, 32768, 80, true, map[string]string{"pci_passthrough:alias": "K4200:2"})
	c.Add("2", "gpu.k4200.3", 8, 32768, 80, true, map[string]string{"pci_passthrough:alias": "K4200:3"})
	c.Images = []map[string]any{{"id": "9", "name": "debian-12", "status": "active", "min_disk": 20, "min_ram": 512, "size": 1}}
	c.Boot.Console = func(nonce, _ string) string {
		return "GPUSTACK-PROBE v1 nonce=" + nonce + " devices=2 0000:00:05.0=10de:11b4:ok 0000:00:06.0=10de:11b4:ok END\n"
	}
	flavor := func(name string) map[string]any {
		return map[string]any{"binary": gpustack, "flavor": name, "image": "debian-12"}
	}
	for name, value := range c.Env() {
		r.env = append(r.env, name+"="+value)
	}
	on := func(host string, options ...any) map[string]any {
		all := map[string]any{"binary": gpustack, "host": host, "api_timeout": 30}
		for i := 0; i < len(options); i += 2 {
			all[options[i].(string)] = options[i+1]
		}
		return all
	}
	calls := []call{
		{name: "drain planned", module: "drain", options: on("gpu1", "reason", "new kernel"), check: true, diff: true, diffs: `disabled_reason: "gpustack`,
			want: map[string]any{"changed": true, "entry": nil, "empty": false, "exit_status": 2.0}},
		{name: "status before", module: "fleet_status_info", options: map[string]any{"binary": gpustack}},
		{name: "drained", module: "drain", options: on("gpu1", "reason", "new kernel", "wait_empty", "1s"), diff: true, diffs: `disabled_reason: "gpustack`,
			failed: "servers_running", msg: "servers with GPUs run on gpu1: 0a1b0000-0000-4000-8000-000000000000 (train) of user u1",
			want: map[string]any{"changed": true, "entry": 1.0, "empty": false}},
		{name: "drained again", module: "drain", options: on("gpu1", "reason", "new kernel", "fail_on_servers", false), diff: true,
			want: map[string]any{"changed": false, "entry": nil, "exit_status": 2.0}},
		{name: "step", module: "drain", options: on("gpu1", "step", "reboot"), diff: true, diffs: ": reboot",
			want: map[string]any{"changed": true, "entry": nil, "empty": nil, "servers": []any{}}},
		{name: "step planned", module: "drain", options: on("gpu1", "step", "boot"), check: true, diff: true, diffs: ": boot",
			want: map[string]any{"changed": true}},
		{name: "status", module: "fleet_status_info", options: map[string]any{"binary": gpustack},
			want: map[string]any{"changed": false, "unknown_hosts": []any{}}},
		{name: "drained by others", module: "drain", options: on("gpu2", "reason", "new kernel"), failed: "refused",
			msg: "'openstack compute service set --enable gpu2 nova-compute' enables it"},
		{name: "enabled for others", module: "enable", options: on("gpu2"), failed: "refused", msg: "not by gpustack: the reason is new disk"},
		{name: "enable planned", module: "enable", options: on("gpu3"), check: true, diff: true, diffs: "enabled: true",
			want: map[string]any{"changed": true, "entry": nil}},
		{name: "enabled", module: "enable", options: on("gpu3"), diff: true, diffs: "enabled: true", want: map[string]any{"changed": true, "entry": 2.0}},
		{name: "enabled again", module: "enable", options: on("gpu3"), diff: true, want: map[string]any{"changed": false, "entry": nil}},
		{name: "undo planned", module: "undo", options: map[string]any{"binary": gpustack, "entry": 1}, check: true, diff: true,
			diffs: `"path": "/os-services/`, want: map[string]any{"changed": true}},
		{name: "undone", module: "undo", options: map[string]any{"binary": gpustack, "entry": 1}, diff: true, diffs: `"path": "/os-services/`,
			want: map[string]any{"changed": true}},
		{name: "undone again", module: "undo", options: map[string]any{"binary": gpustack, "entry": 1}, want: map[string]any{"changed": false}},
		{name: "no such host", module: "drain", options: on("-gpu9", "reason", "new kernel"), failed: "error", msg: "host -gpu9 has no compute service"},
		{name: "no such flavor", module: "flavor_test", options: map[string]any{"binary": gpustack, "flavor": "gpu.absent", "image": "debian"},
			failed: "error", msg: "gpu.absent"},
		{name: "test planned", module: "flavor_test", options: flavor("gpu.k4200.2"), check: true,
			want: map[string]any{"changed": false, "verdict": nil, "exit_status": 2.0}},
		{name: "tested", module: "flavor_test", options: flavor("gpu.k4200.2"), want: map[string]any{"changed": false, "verdict": "pass", "exit_status": 0.0}},
		{name: "tested with a device less", module: "flavor_test", options: flavor("gpu.k4200.3"), failed: "verdict",
			msg:  "the verdict on flavor gpu.k4200.3 is fail\n",
			want: map[string]any{"changed": false, "verdict": "fail", "exit_status": 2.0}},
		{name: "no such cloud", module: "enable", options: on("gpu1", "cloud", "absent"), failed: "error", msg: "absent"},
	}
	outcomes, printed := r.play(t, tasks(calls)...)
	judge(t, calls, outcomes)
	checkReturned(t, outcomes)
	// cloudtest gives each new server an administrator's password.
	if strings.Contains(printed, c.Password) || strings.Contains(printed, "admin-pass-") || !strings.Contains(printed, `"user_id": "u1"`) {
		t.Error("Ansible has printed the password")
	}
	type server struct{ name, owner, project, status, power, gpus any }
	list := func(of string) (servers []server) {
		elements, _ := outcomes["drained"].Result[of].([]any)
		for _, e := range elements {
			s, _ := e.(map[string]any)
			servers = append(servers, server{s["name"], s["owner"], s["project"], s["status"], s["power"], s["gpus"]})
		}
		return servers
	}
	train, idle, web := server{"train", "u1", "p1", "ACTIVE", "running", true}, server{"idle", "u1", "p1", "SHUTOFF", "off", true},
		server{"web", "u1", "p1", "ACTIVE", "running", false}
	for of, want := range map[string][]server{"servers": {idle, train, web}, "running": {train, web}, "blocking": {train}} {
		if got := list(of); !slices.Equal(got, want) {
			t.Errorf("%s: %v", of, got)
		}
	}
	for name, want := range map[string]string{"status before": "[gpu3 reboot]", "status": "[gpu3 reboot gpu1 reboot]"} {
		var got []any
		services, _ := outcomes[name].Result["services"].([]any)
		for _, s := range services {
			service, _ := s.(map[string]any)
			got = append(got, service["nova_host"], service["step"])
		}
		hosttest.EqualIn(t, name, want, fmt.Sprint(got))
	}
	if nodes[0].Disabled != "" || nodes[1].Disabled != "new disk" || nodes[2].Disabled != "" {
		t.Errorf("services: %q, %q, %q", nodes[0].Disabled, nodes[1].Disabled, nodes[2].Disabled)
	}
}
