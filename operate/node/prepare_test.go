package node_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/container/containerprepare"
	"gpustack/host/driver"
	"gpustack/host/edit"
	"gpustack/host/hosttest"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/host/rdma/rdmaprepare"
	"gpustack/host/selection"
	"gpustack/operate/node"
)

const adapter = "0000:0c:00.0"

// server returns a server with two GPUs and an RDMA adapter, on which gpustack is installed.
func server(t *testing.T) host.Root {
	t.Helper()
	commands, files := hosttest.HCA{Address: adapter, Device: "mlx5_0", Total: 8}.Archive()
	return hosttest.Lay(t, "symlink "+at(adapter, "iommu_group")+" -> ../../../../kernel/iommu_groups/20\n"+commands+hosttest.Running("", files+
		"-- sys/kernel/iommu_groups/20/type --\nidentity\n-- usr/lib/systemd/systemd --\n-- usr/bin/gpustack --\n"+
		"-- lib/modules/6.1.0-28-amd64/modules.dep --\n"+
		"kernel/vfio-pci.ko:\nkernel/pci-stub.ko:\nkernel/nouveau.ko:\nkernel/snd-hda-intel.ko:\nkernel/mlx5_core.ko:\nkernel/ib_uverbs.ko:\nkernel/rdma_ucm.ko:\nkernel/ib_umad.ko:\nkernel/ib_ipoib.ko:\n"))
}

// at returns the path of an attribute of the adapter's.
func at(address, attribute string) string {
	return "sys/devices/pci" + address[:7] + "/" + address + "/" + attribute
}

// on returns the node of a machine.
func on(root host.Root) node.Node {
	return node.Node{Root: root, Runner: host.Runner{Root: root}, Warn: func(...string) {}}
}

// useCases are the use cases that change files: each observes and plans.
func useCases(t *testing.T) map[string]func(root host.Root, back bool) (edit.Changes, change.Work, error) {
	hca := hosttest.Address(t, adapter)
	return map[string]func(host.Root, bool) (edit.Changes, change.Work, error){
		"host prepare": func(root host.Root, back bool) (edit.Changes, change.Work, error) {
			m := machine.ObservePrepare(root, true)
			plan, work, err := on(root).PlanPrepare(m, selection.Options{None: back}, node.Needed, "host prepare")
			return plan.Files, work, err
		},
		"rdma prepare": func(root host.Root, back bool) (edit.Changes, change.Work, error) {
			o := rdmaprepare.Options{Add: []pci.Address{hca}, VFs: 2}
			if back {
				o = rdmaprepare.Options{None: true}
			}
			m, err := rdmaprepare.Observe(root, machine.ObserveRecord(root, nil, true), o)
			if err != nil {
				return nil, change.Work{}, err
			}
			plan, work, err := on(root).PlanRDMA(m, o, "rdma prepare")
			return plan.Files, work, err
		},
		"container prepare": func(root host.Root, back bool) (edit.Changes, change.Work, error) {
			o := containerprepare.Options{HCAs: []pci.Address{hca}}
			if back {
				o = containerprepare.Options{None: true}
			}
			seen, _ := node.Observe(t.Context(), root, true)
			m, err := containerprepare.Observe(root, seen)
			if err != nil {
				return nil, change.Work{}, err
			}
			plan, work, err := on(root).PlanContainers(m, o, "container prepare")
			return plan.Files, work, err
		},
	}
}

// tree returns modes and contents below a root, without those of the journal.
func tree(t *testing.T, root host.Root) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(root.Path("/"), func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch short := strings.TrimPrefix(name, root.Path("/")); {
		case short == "/var/lib/gpustack" || short == "/var/lib" || short == "/var":
			return nil // made with the journal
		case short == "/var/lib/gpustack/journal":
			return fs.SkipDir
		case d.Type().IsRegular():
			data, err := os.ReadFile(name)
			files[short] = string(data)
			return err
		default:
			files[short] = d.Type().String()
		}
		return nil
	})
	hosttest.NoError(t, err)
	return files
}

// TestFiles: each use case that changes files does what its plan shows, plans nothing when it is
// asked again, and is undone byte for byte.
func TestFiles(t *testing.T) {
	t.Parallel()
	for name, plan := range useCases(t) {
		t.Run(name, func(t *testing.T) {
			root := server(t)
			before := tree(t, root)
			files, work, err := plan(root, false)
			if err != nil || len(files.Pending()) == 0 {
				t.Fatalf("%v, %v", files.Pending(), err)
			}
			engine := on(root).Engine(driver.DefaultTimeout)
			entry, err := engine.Apply(t.Context(), work)
			if err != nil || entry.Status != change.Done || entry.Command != name {
				t.Fatalf("%+v, %v", entry, err)
			}
			after := tree(t, root)
			for _, c := range files.Pending() {
				if c.After != nil && after[c.Name] != string(c.After.Content) {
					t.Errorf("%s is not as planned", c.Name)
				}
				delete(after, c.Name)
			}
			for other, content := range before {
				if got, ok := after[other]; !ok || got != content {
					if !slices.ContainsFunc(files, func(c edit.Change) bool { return c.Name == other }) {
						t.Errorf("%s was changed, and is not planned", other)
					}
				}
			}
			if again, _, err := plan(root, false); err != nil || len(again.Pending()) > 0 {
				t.Errorf("again: %v, %v", again.Pending(), err)
			}
			undo(t, root, entry.ID)
			hosttest.EqualIn(t, "undone", before, tree(t, root))
		})
	}
}

// undo plans and carries out the undo of an entry.
func undo(t *testing.T, root host.Root, id int) node.FilesBack {
	t.Helper()
	engine := on(root).Engine(driver.DefaultTimeout)
	plan, err := engine.PlanUndo(t.Context(), id)
	hosttest.NoError(t, err)
	back, err := on(root).PlanFilesBack(t.Context(), plan)
	hosttest.NoError(t, err)
	if entry, err := engine.Undo(t.Context(), id); err != nil || entry.Status != change.Undone {
		t.Fatalf("%+v, %v", entry, err)
	}
	return back
}

// TestFilesRefused: between Plan and Apply, and between a change and its undo, something happens
// that the plan does not know. The use case names it, and nothing is changed.
func TestFilesRefused(t *testing.T) {
	t.Parallel()
	// edited returns a step that edits a file of a plan.
	edited := func(t *testing.T, root host.Root, files edit.Changes) {
		hosttest.Write(files.Pending()[0].Name, "edited\n")(t, root)
	}
	for name, plan := range useCases(t) {
		for failure, test := range map[string]struct {
			happens func(t *testing.T, root host.Root, files edit.Changes)
			want    error
			undoing error // of the undo, if it happens after the change
		}{
			"a file is edited": {edited, edit.ErrChanged, change.ErrEdited},
			"the journal is locked": {func(t *testing.T, root host.Root, _ edit.Changes) {
				j, err := change.Machine(root).Lock()
				hosttest.NoError(t, err)
				t.Cleanup(func() { j.Close() })
			}, change.ErrLocked, change.ErrLocked},
		} {
			t.Run(name+", "+failure, func(t *testing.T) {
				root := server(t)
				files, work, err := plan(root, false)
				hosttest.NoError(t, err)
				test.happens(t, root, files)
				before := tree(t, root)
				if entry, err := on(root).Engine(0).Apply(t.Context(), work); !errors.Is(err, test.want) || entry.ID != 0 {
					t.Errorf("entry %d: %v", entry.ID, err)
				}
				hosttest.EqualIn(t, "changed", before, tree(t, root))
			})
			t.Run(name+" undone, "+failure, func(t *testing.T) {
				root := server(t)
				files, work, err := plan(root, false)
				hosttest.NoError(t, err)
				engine := on(root).Engine(0)
				entry, err := engine.Apply(t.Context(), work)
				hosttest.NoError(t, err)
				test.happens(t, root, files)
				before := tree(t, root)
				if _, err := engine.Undo(t.Context(), entry.ID); !errors.Is(err, test.undoing) {
					t.Errorf("%v", err)
				}
				hosttest.EqualIn(t, "changed", before, tree(t, root))
			})
		}
	}
}

// TestRecovery: a change that was interrupted is recovered by a plan of its own, before anything
// else is planned; host check reports it as what host prepare would refuse.
func TestRecovery(t *testing.T) {
	t.Parallel()
	for name, plan := range useCases(t) {
		t.Run(name, func(t *testing.T) {
			root := server(t)
			before := tree(t, root)
			_, work, err := plan(root, false)
			hosttest.NoError(t, err)
			engine := on(root).Engine(0)
			entry, err := engine.Apply(t.Context(), work)
			hosttest.NoError(t, err)
			hosttest.Replace("var/lib/gpustack/journal/0001.json", `"status": "done"`, `"status": "applying"`)(t, root)
			recovery, err := engine.PlanRecovery(t.Context(), change.ToRecover, 0)
			if err != nil || !slices.Equal(recovery.IDs(), []int{entry.ID}) || len(recovery.Warnings) != 1 {
				t.Fatalf("%+v, %v", recovery, err)
			}
			if except, err := engine.PlanRecovery(t.Context(), change.ToRecover, entry.ID); err != nil || len(except.Entries) > 0 {
				t.Errorf("without it: %+v, %v", except, err)
			}
			recovered, err := engine.Recover(t.Context(), recovery.IDs())
			if err != nil || len(recovered) != 1 || recovered[0].Outcome != change.None {
				t.Fatalf("%+v, %v", recovered, err)
			}
			hosttest.EqualIn(t, "recovered", before, tree(t, root))
			if files, _, err := plan(root, false); err != nil || len(files.Pending()) == 0 {
				t.Errorf("planned again: %v, %v", files.Pending(), err)
			}
		})
	}
}

// TestUnwanted: with --none, each use case removes what it has made.
func TestUnwanted(t *testing.T) {
	t.Parallel()
	for name, plan := range useCases(t) {
		t.Run(name, func(t *testing.T) {
			root := server(t)
			before := tree(t, root)
			for _, back := range []bool{false, true} {
				_, work, err := plan(root, back)
				hosttest.NoError(t, err)
				if work.About == nil || work.About.None != back {
					t.Errorf("about %+v", work.About)
				}
				if _, err := on(root).Engine(0).Apply(t.Context(), work); err != nil {
					t.Fatal(err)
				}
			}
			after := tree(t, root)
			maps.DeleteFunc(after, func(_, content string) bool { return content == fs.ModeDir.String() }) // folders remain
			maps.DeleteFunc(before, func(_, content string) bool { return content == fs.ModeDir.String() })
			hosttest.EqualIn(t, "removed", before, after)
		})
	}
}

// TestRebuild: on a root elsewhere, programs are left to the operator, unless all are asked for:
// then they have to be ready to run. What was recorded last is removed with a command that says so.
func TestRebuild(t *testing.T) {
	t.Parallel()
	gpu := func(text string) []pci.Selector {
		s, err := pci.ParseSelector(text)
		hosttest.NoError(t, err)
		return []pci.Selector{s}
	}
	first := selection.Options{Add: gpu("0000:01:00.0")}
	for name, test := range map[string]struct {
		recorded  bool
		options   selection.Options
		rebuild   node.Rebuild
		run, left int
		command   string
		err       string
	}{
		"needed":                   {false, first, node.Needed, 0, 2, "host prepare", ""},
		"never":                    {false, first, node.Never, 0, 2, "host prepare", ""},
		"all":                      {false, first, node.All, 2, 0, "host prepare", "is not mounted below the root"},
		"again":                    {true, first, node.Needed, 0, 0, "host prepare", ""},
		"all of them again":        {true, first, node.All, 2, 0, "host prepare", "is not mounted below the root"},
		"the last one is removed":  {true, selection.Options{Remove: gpu("0000:01:00.0")}, node.Needed, 0, 2, "host prepare --none", ""},
		"a device that is missing": {false, selection.Options{Add: gpu("0000:05:00.0")}, node.Needed, 0, 0, "", selection.ErrNoDevice.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			root := server(t)
			observe := func() machine.Machine {
				return machine.ObservePrepare(root, true)
			}
			if test.recorded {
				_, work, err := on(root).PlanPrepare(observe(), first, node.Needed, "host prepare")
				hosttest.NoError(t, err)
				if _, err := on(root).Engine(0).Apply(t.Context(), work); err != nil {
					t.Fatal(err)
				}
			}
			_, work, err := on(root).PlanPrepare(observe(), test.options, test.rebuild, "host prepare")
			if (err == nil) != (test.err == "") || !strings.Contains(fmt.Sprint(err), test.err) || len(work.Programs) != test.run || len(work.Left) != test.left || work.Command != test.command {
				t.Errorf("%q runs %v and leaves %v: %v", work.Command, work.Programs, work.Left, err)
			}
		})
	}
}

// TestRefusedByPrepare: host check reports what host prepare would refuse on a machine that is not
// prepared, and asks nothing of a prepared one.
func TestRefusedByPrepare(t *testing.T) {
	t.Parallel()
	open := `{"schema":1,"id":1,"kind":"journal entry", "changes":"files","command":"host prepare","status":"applying","origin":{"user":"","host":"","version":"","argv":null},"started":"2026-11-21T20:00:00Z","ended":null,` +
		`"files":[],"programs":null,"left":null,"restart":null,"rows":null,"drivers":null}`
	interrupted := hosttest.Write("var/lib/gpustack/journal/0001.json", open)
	lock := func(t *testing.T, root host.Root) {
		t.Helper()
		j, err := change.Machine(root).Lock()
		hosttest.NoError(t, err)
		t.Cleanup(func() { j.Close() })
	}
	console := hosttest.Write("sys/bus/pci/devices/0000:01:00.0/boot_vga", "1\n")
	for name, test := range map[string]struct {
		steps []hosttest.Step
		want  string
	}{
		"nothing":                            {nil, ""},
		"the console":                        {[]hosttest.Step{console}, "0000:01:00.0: is the console (boot_vga)"},
		"the console, and a record":          {[]hosttest.Step{console, hosttest.Write(machine.ContractFile, contract(t))}, ""},
		"a record that is malformed":         {[]hosttest.Step{console, hosttest.Write(machine.ContractFile, "{")}, ""},
		"an interrupted change":              {[]hosttest.Step{interrupted}, ""},
		"another run that changes something": {[]hosttest.Step{interrupted, lock}, change.ErrLocked.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			root := server(t)
			hosttest.Steps(test.steps...)(t, root)
			journal := change.Machine(root).Observe()
			m := machine.ObserveCheck(root, nil, &journal)
			got := on(root).RefusedByPrepare(t.Context(), m, journal)
			if text := fmt.Sprint(errors.Join(got...)); test.want == "" && got != nil || !strings.Contains(text, test.want) {
				t.Errorf("%s, want %s", text, test.want)
			}
		})
	}
}

// contract returns a record of host prepare that has no function.
func contract(t *testing.T) string {
	t.Helper()
	text, err := machine.RecordText(&machine.Contract{Driver: machine.VFIO}, nil)
	hosttest.NoError(t, err)
	return string(text)
}
