package boot_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host"
	"gpustack/host/boot"
	"gpustack/host/edit"
	"gpustack/host/hosttest"
)

const readsFolder = `#! /bin/sh
for x in ${sysconfdir}/default/grub.d/*.cfg ; do
`

// grubTree lays out GRUB's files, by name below /etc/default ("grub", "grub.d/x.cfg"), with or
// without a grub-mkconfig that reads the drop-in directory.
func grubTree(t testing.TB, files map[string]string, dropIns bool) host.Root {
	t.Helper()
	dir := t.TempDir()
	script := "#! /bin/sh\n"
	if dropIns {
		script = readsFolder
	}
	put(t, filepath.Join(dir, "usr/sbin/grub-mkconfig"), script)
	for name, text := range files {
		put(t, filepath.Join(dir, "etc/default", name), text)
	}
	return hosttest.Root(t, dir)
}

func put(t testing.TB, file, text string) {
	t.Helper()
	hosttest.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	hosttest.NoError(t, os.WriteFile(file, []byte(text), 0o644))
}

// bash is the oracle: it sources the files as grub-mkconfig does and returns all variables.
func bash(t testing.TB, root host.Root, dropIns bool) map[string]string {
	t.Helper()
	program := `before=$(compgen -v); cd "$1"; . ./grub; `
	if dropIns {
		program += `for f in grub.d/*.cfg; do [ -e "$f" ] && . "./$f"; done; unset f; `
	}
	program += `for v in $(compgen -v); do case " $before " in *"
$v
"*|*" $v
"*) ;; *) [[ $v = before ]] || printf '%s=%s\0' "$v" "${!v}";; esac; done`
	cmd := exec.Command("bash", "--norc", "--noprofile", "-c", program, "bash", root.Path("etc/default"))
	cmd.Env = []string{"PATH=/nowhere", "LC_ALL=C"}
	out, err := cmd.Output()
	hosttest.NoError(t, err)
	values := map[string]string{}
	for _, line := range strings.Split(string(out), "\x00") {
		if name, value, ok := strings.Cut(line, "="); ok && name != "_" && !strings.HasPrefix(name, "BASH") && name != "PIPESTATUS" {
			values[name] = value
		}
	}
	return values
}

func kernelArgs(values map[string]string) boot.Args {
	return boot.ParseArgs(values["GRUB_CMDLINE_LINUX"] + " " + values["GRUB_CMDLINE_LINUX_DEFAULT"])
}

var intel, _ = boot.WantIOMMU("intel", false)

// TestGrubAgainstBash: after the change, a shell that reads the files finds each wanted argument
// once, no conflicting one, and all other arguments and variables unchanged. A second plan changes
// nothing, and a plan without wanted arguments restores the first state.
func TestGrubAgainstBash(t *testing.T) {
	for _, test := range []struct {
		name  string
		files map[string]string
		gone  []string // arguments that contradict
	}{
		{"double quotes", map[string]string{"grub": "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet splash\"\nGRUB_CMDLINE_LINUX=\"\"\n"}, nil},
		{"single quotes", map[string]string{"grub": "GRUB_CMDLINE_LINUX_DEFAULT='quiet splash'\n"}, nil},
		{"no quotes", map[string]string{"grub": "GRUB_CMDLINE_LINUX_DEFAULT=quiet\n"}, nil},
		{"backslashes", map[string]string{"grub": "GRUB_CMDLINE_LINUX_DEFAULT=a\\ b\\0\"c\\d\\$\"${NONE:-\\e}\n"}, nil},
		{"nothing set", map[string]string{"grub": "GRUB_TIMEOUT=5\n"}, nil},
		{"an empty file", map[string]string{"grub": ""}, nil},
		{"appended to", map[string]string{"grub": "GRUB_CMDLINE_LINUX_DEFAULT=quiet\nGRUB_CMDLINE_LINUX_DEFAULT+=\" splash\"\n"}, nil},
		{"several assignments", map[string]string{
			"grub": "GRUB_CMDLINE_LINUX=a=1\nGRUB_CMDLINE_LINUX=b=2\nGRUB_CMDLINE_LINUX_DEFAULT=\"x\"\nGRUB_CMDLINE_LINUX_DEFAULT=\"y\"\n",
		}, nil},
		{"self reference", map[string]string{
			"grub": "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet\"\nGRUB_CMDLINE_LINUX_DEFAULT=\"$GRUB_CMDLINE_LINUX_DEFAULT nosplash\"\n",
		}, nil},
		{"a value if set", map[string]string{"grub": "EXTRA=mitigations=off\nGRUB_CMDLINE_LINUX_DEFAULT=\"quiet${EXTRA:+ $EXTRA}${NONE:+ never}\"\n"}, nil},
		{"a default", map[string]string{"grub": "GRUB_CMDLINE_LINUX_DEFAULT=\"${ARGS:-quiet}\"\n"}, nil},
		{"a comment behind", map[string]string{"grub": "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet\" # GRUB_CMDLINE_LINUX_DEFAULT=\"intel_iommu=off\"\n"}, nil},
		{"the name in a comment", map[string]string{"grub": "#GRUB_CMDLINE_LINUX_DEFAULT=\"intel_iommu=off\"\nGRUB_CMDLINE_LINUX_DEFAULT=quiet\n"}, nil},
		{"DOS line ends", map[string]string{"grub": "GRUB_TIMEOUT=5\r\nGRUB_CMDLINE_LINUX_DEFAULT=\"quiet splash\"\r\n"}, nil},
		{"DOS line ends, contradiction", map[string]string{"grub": "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet intel_iommu=off\"\r\n"}, []string{"intel_iommu=off"}},
		{"no final newline", map[string]string{"grub": "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet\""}, nil},
		{"no final newline after a comment", map[string]string{"grub": "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet\"\n# end"}, nil},
		{"continued", map[string]string{"grub": "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet \\\n  splash\"\n"}, nil},
		{"a cloud image resets it", map[string]string{
			"grub":                            "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet\"\n",
			"grub.d/50-cloudimg-settings.cfg": "GRUB_CMDLINE_LINUX_DEFAULT=\"console=tty1 console=ttyS0\"\n",
		}, nil},
		{"kdump adds to it", map[string]string{
			"grub":                   "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet\"\n",
			"grub.d/kdump-tools.cfg": "GRUB_CMDLINE_LINUX_DEFAULT=\"$GRUB_CMDLINE_LINUX_DEFAULT crashkernel=384M-:128M\"\n",
		}, nil},
		{"off", map[string]string{"grub": "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet intel_iommu=off splash\"\n"}, []string{"intel_iommu=off"}},
		{"off for recovery too", map[string]string{
			"grub": "GRUB_CMDLINE_LINUX=\"a intel_iommu=off b\"\nGRUB_CMDLINE_LINUX_DEFAULT=\"iommu=soft c\"\n",
		}, []string{"intel_iommu=off", "iommu=soft"}},
		{"off through another variable", map[string]string{
			"grub": "X=intel_iommu=off\nGRUB_CMDLINE_LINUX_DEFAULT=\"quiet ${X:+$X}\"\n",
		}, []string{"intel_iommu=off"}},
		{"scalable mode has the word", map[string]string{"grub": "GRUB_CMDLINE_LINUX_DEFAULT=\"intel_iommu=on,sm_on\"\n"}, nil},
		{"there already", map[string]string{"grub": "GRUB_CMDLINE_LINUX=\"intel_iommu=on iommu=pt\"\n"}, nil},
		{"there twice", map[string]string{"grub": "GRUB_CMDLINE_LINUX=\"intel_iommu=on iommu=pt\"\nGRUB_CMDLINE_LINUX_DEFAULT=\"intel_iommu=on x\"\n"}, nil},
		{"characters that a shell would expand", map[string]string{
			"grub": "GRUB_CMDLINE_LINUX_DEFAULT='a=* b=[x]? intel_iommu=off c=\\d'\n",
		}, []string{"intel_iommu=off"}},
		{"another's command substitution", map[string]string{
			"grub": "GRUB_DISTRIBUTOR=`lsb_release -i -s 2> /dev/null || echo Debian`\nGRUB_CMDLINE_LINUX_DEFAULT=quiet\n",
		}, nil},
		{"set where a test says so", map[string]string{"grub": "A=1\nif [ \"$A\" = 1 ]; then GRUB_CMDLINE_LINUX_DEFAULT=\"quiet yes\"; fi\n"}, nil},
	} {
		for _, dropIns := range []bool{true, false} {
			if !dropIns && len(test.files) > 1 {
				continue
			}
			name := test.name + ", in place"
			if dropIns {
				name = test.name + ", as a file"
			}
			t.Run(name, func(t *testing.T) {
				root := grubTree(t, test.files, dropIns)
				before, first := bash(t, root, dropIns), readTree(t, root)
				change := plan(t, root, intel, test.name == "there already" || test.name == "nothing to do")
				after := bash(t, root, dropIns)

				want := slices.DeleteFunc(kernelArgs(before), func(a string) bool {
					return slices.Contains(test.gone, a) || a == "intel_iommu=on" || a == "iommu=pt"
				})
				got := kernelArgs(after)
				for _, arg := range []string{"intel_iommu=on", "iommu=pt"} {
					same := func(a string) bool { return a == arg || arg == "intel_iommu=on" && a == "intel_iommu=on,sm_on" }
					if n := len(slices.DeleteFunc(slices.Clone(got), func(a string) bool { return !same(a) })); n != 1 {
						t.Errorf("%s is there %d times: %q", arg, n, got)
					}
				}
				got = slices.DeleteFunc(got, func(a string) bool { return a == "intel_iommu=on" || a == "iommu=pt" })
				hosttest.EqualIn(t, "other arguments", want.String(), got.String())
				for _, values := range []map[string]string{before, after} {
					delete(values, "GRUB_CMDLINE_LINUX")
					delete(values, "GRUB_CMDLINE_LINUX_DEFAULT")
				}
				hosttest.EqualIn(t, "other variables", before, after)
				if again := plan(t, root, intel, true); !again.IsZero() && !cmp.Equal(again, change) {
					t.Errorf("planned again: %v", again)
				}
				// Without wanted arguments, gpustack's part is removed.
				g, err := boot.ReadGrub(root)
				hosttest.NoError(t, err)
				changes, err := g.Plan(edit.Observe(root, g.Files()...), boot.Want{})
				hosttest.NoError(t, err)
				for _, c := range changes {
					hosttest.NoError(t, c.Apply(root))
				}
				last := readTree(t, root)
				if text := first["grub"]; !dropIns && !strings.HasSuffix(text, "\n") && text != "" {
					first["grub"] += "\n" // undo, which knows, takes that back too
				}
				hosttest.EqualIn(t, "first and last", first, last)
			})
		}
	}
}

// plan plans the change and applies it. If done, the plan must be empty.
func plan(t *testing.T, root host.Root, want boot.Want, done bool) boot.Change {
	t.Helper()
	g, err := boot.ReadGrub(root)
	hosttest.NoError(t, err)
	change := want.Change(g.Args())
	changes, err := g.Plan(edit.Observe(root, g.Files()...), want)
	hosttest.NoError(t, err)
	for _, c := range changes {
		if done && c.Action() != "none" {
			t.Errorf("planned:\n%s", c.Diff())
		}
		hosttest.NoError(t, c.Apply(root))
	}
	return change
}

func readTree(t *testing.T, root host.Root) map[string]string {
	t.Helper()
	files := map[string]string{}
	dir := root.Path("etc/default")
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(p)
		name, _ := filepath.Rel(dir, p)
		files[name] = string(text)
		return err
	})
	hosttest.NoError(t, err)
	return files
}

// TestGrubRefused: files that a shell does not accept, or that cannot be evaluated without running
// programs, are errors with file and line.
func TestGrubRefused(t *testing.T) {
	for _, test := range []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"a quote that is not closed", map[string]string{"grub": "GRUB_TIMEOUT=5\nGRUB_CMDLINE_LINUX=\"quiet\n"},
			`/etc/default/grub:2: reached EOF without closing quote ` + "`\"`"},
		{"a quote that is not closed in the folder", map[string]string{"grub": "", "grub.d/a.cfg": "\nA='x\n"},
			`/etc/default/grub.d/a.cfg:2: reached EOF without closing quote ` + "`'`"},
		{"no quotes around spaces", map[string]string{"grub": "\nGRUB_CMDLINE_LINUX=quiet splash\n"},
			"/etc/default/grub:2: GRUB_CMDLINE_LINUX is set for one command only: quote a value with spaces"},
		{"command substitution", map[string]string{"grub": "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet $(cat /etc/args)\"\n"},
			"/etc/default/grub:1: GRUB_CMDLINE_LINUX_DEFAULT depends on the output of a program: write out the value"},
		{"command substitution elsewhere", map[string]string{"grub": "A=`uname -r`\n\nGRUB_CMDLINE_LINUX_DEFAULT=\"quiet $A\"\n"},
			"/etc/default/grub:3: GRUB_CMDLINE_LINUX_DEFAULT depends on the output of a program: write out the value"},
		{"a program decides", map[string]string{"grub": "if grep -q x /proc/cpuinfo; then GRUB_CMDLINE_LINUX=y; fi\n"},
			"/etc/default/grub:1: whether GRUB_CMDLINE_LINUX is set depends on a program or file: set it unconditionally"},
		{"a file decides", map[string]string{"grub": "[ -f /etc/x ] && GRUB_CMDLINE_LINUX=y\n"},
			"/etc/default/grub:1: whether GRUB_CMDLINE_LINUX is set depends on a program or file: set it unconditionally"},
		{"another file", map[string]string{"grub": "GRUB_DISTRIBUTOR=`( . /etc/os-release; echo $NAME )`\n[ -f /etc/x ] && . /etc/x\n"},
			"/etc/default/grub:2: reads another file: write its settings here"},
		{"a loop", map[string]string{"grub": "\n\nwhile true; do :; done\n"},
			"/etc/default/grub:3: loops and functions are not supported"},
		{"an exit", map[string]string{"grub": "exit 0\nGRUB_CMDLINE_LINUX=x\n"},
			"/etc/default/grub:2: exits, so the files after it are not read"},
		{"what the shell sets", map[string]string{"grub": "A=$0\nB=$A\nGRUB_CMDLINE_LINUX=\"quiet $B\"\n"},
			"/etc/default/grub:3: GRUB_CMDLINE_LINUX depends on a variable of the shell: write out the value"},
		{"no file", map[string]string{"other": ""}, "/etc/default/grub: no such file or directory"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := boot.ReadGrub(grubTree(t, test.files, true))
			hosttest.Equal(t, test.want, fmt.Sprint(err))
		})
	}
}

// TestGrubOverruled covers variables to which gpustack's file cannot add arguments: a later file
// overwrites them, or what follows "--" is for init. Arguments before that take effect.
func TestGrubOverruled(t *testing.T) {
	const forInit = ": the arguments would not take effect: the arguments have --"
	for name, test := range map[string]struct {
		files map[string]string
		want  string // of the refusal; "" for none
	}{
		"a later file": {map[string]string{"grub": "", "grub.d/zzz.cfg": "GRUB_CMDLINE_LINUX_DEFAULT=quiet\n"},
			"/etc/default/grub.d/zzz.cfg: the arguments would not take effect: the kernel would get "},
		"arguments of init":               {map[string]string{"grub": "GRUB_CMDLINE_LINUX_DEFAULT='quiet -- single'\n"}, "GRUB_CMDLINE_LINUX_DEFAULT" + forInit},
		"arguments of init, always":       {map[string]string{"grub": "GRUB_CMDLINE_LINUX='quiet -- intel_iommu=on iommu=pt'\n"}, "GRUB_CMDLINE_LINUX_DEFAULT" + forInit},
		"arguments of init after the two": {map[string]string{"grub": "GRUB_CMDLINE_LINUX_DEFAULT='intel_iommu=on iommu=pt -- single'\n"}, ""},
		"a value that is --":              {map[string]string{"grub": "GRUB_CMDLINE_LINUX_DEFAULT='a=-- b--'\n"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			root := grubTree(t, test.files, true)
			g, err := boot.ReadGrub(root)
			hosttest.NoError(t, err)
			_, err = g.Plan(edit.Observe(root, g.Files()...), intel)
			if test.want == "" && err != nil || test.want != "" && (!errors.Is(err, boot.ErrNotInEffect) || !strings.HasPrefix(err.Error(), test.want)) {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestGrubWording: gpustack's part of /etc/default/grub is written again if it differs in any way, or
// if it is not the last.
func TestGrubWording(t *testing.T) {
	part := func(args string) string {
		return "# gpustack begin\n# Made earlier.\n# In two lines.\nGRUB_CMDLINE_LINUX_DEFAULT=\"$GRUB_CMDLINE_LINUX_DEFAULT " + args + "\"\n# gpustack end\n"
	}
	const theirs = "GRUB_CMDLINE_LINUX_DEFAULT=quiet\n"
	for name, test := range map[string]struct {
		text string
		want bool // it is written again
	}{
		"an earlier wording":     {theirs + part("intel_iommu=on iommu=pt"), true},
		"other arguments":        {theirs + part("intel_iommu=on"), true},
		"a line that is deleted": {theirs + "# gpustack begin\n# Made earlier.\n# gpustack end\n", true},
		"a comment after it":     {theirs + part("intel_iommu=on iommu=pt") + "# theirs\n", true},
	} {
		t.Run(name, func(t *testing.T) {
			root := grubTree(t, map[string]string{"grub": test.text}, false)
			g, err := boot.ReadGrub(root)
			hosttest.NoError(t, err)
			plan, err := g.Plan(edit.Observe(root, g.Files()...), intel)
			hosttest.NoError(t, err)
			if got := len(plan.Pending()) > 0; got != test.want {
				t.Errorf("pending: %t, want %t:\n%s", got, test.want, plan[0].Diff())
			}
			if plan, err = g.Plan(edit.Observe(root, g.Files()...), boot.Want{}); err != nil || strings.Contains(string(plan[0].After.Content), "gpustack") {
				t.Errorf("without arguments, a part remains: %v\n%s", err, plan[0].Diff())
			}
		})
	}
}

// FuzzGrubAgainstBash: bash gets the same variables from every file that is read without an error.
func FuzzGrubAgainstBash(f *testing.F) {
	f.Add("GRUB_CMDLINE_LINUX=\"a b\"\nGRUB_CMDLINE_LINUX_DEFAULT='c'\"d\"e\\ f\n", "GRUB_CMDLINE_LINUX_DEFAULT=\"$GRUB_CMDLINE_LINUX_DEFAULT x\"\r\n")
	f.Add("GRUB_CMDLINE_LINUX=\\0a\\ b", "A=")
	f.Add("A=1 # x\nGRUB_CMDLINE_LINUX=${A:+y}${B:-z}\\\nq\n", "export GRUB_CMDLINE_LINUX\n")
	f.Fuzz(func(t *testing.T, grub, dropIn string) {
		// Skip redirections and everything that bash itself would execute. It finds no programs.
		if strings.ContainsAny(grub+dropIn, "`()[]<>|&;~*?!\x00\x01\x7f/") || strings.Contains(grub+dropIn, "BASH") {
			return // may start programs
		}
		for _, line := range strings.Split(grub+"\n"+dropIn, "\n") {
			if line == "" || line[0] == '#' {
				continue
			}
			if name, _, ok := strings.Cut(line, "="); !ok || strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_+") != "" || name == "" {
				return // not an assignment
			}
		}
		root := grubTree(t, map[string]string{"grub": grub, "grub.d/x.cfg": dropIn}, true)
		g, err := boot.ReadGrub(root)
		if err != nil {
			return
		}
		hosttest.EqualIn(t, "bash and gpustack", kernelArgs(bash(t, root, true)), g.Args())
	})
}

// TestWantIOMMU: only arguments that switch the IOMMU off are removed. A mode that the operator has
// chosen stays, and none is added on arm64 or with SEV-SNP.
func TestWantIOMMU(t *testing.T) {
	for _, test := range []struct {
		vendor     string
		snp        bool
		args, want string
		recorded   string // beside intel_iommu=on
	}{
		{"intel", false, "quiet", "quiet intel_iommu=on iommu=pt", "iommu=pt"},
		{"intel", false, "intel_iommu=on,sm_on iommu=force,pt x", "intel_iommu=on,sm_on iommu=force,pt x", "iommu=pt"},
		{"intel", false, "intel_iommu=off,sm_on x", "x intel_iommu=on,sm_on iommu=pt", "iommu=pt"},
		{"intel", false, "intel_iommu=sm_on", "intel_iommu=sm_on intel_iommu=on iommu=pt", "iommu=pt"},
		{"intel", false, "iommu=nopt amd_iommu=off", "iommu=nopt amd_iommu=off intel_iommu=on", ""},
		{"intel", false, "intel-iommu=off", "intel_iommu=on iommu=pt", "iommu=pt"},
		{"intel", false, "iommu.passthrough=0", "iommu.passthrough=0 intel_iommu=on", ""},
		{"intel", false, "iommu=off,nopt iommu.strict=1", "iommu.strict=1 intel_iommu=on iommu=nopt", ""},
		{"amd", false, "quiet amd_iommu=on", "quiet amd_iommu=on iommu=pt", "iommu=pt"},
		{"amd", false, "amd_iommu=off,fullflush iommu=soft", "amd_iommu=fullflush iommu=pt", "iommu=pt"},
		{"hygon", false, "", "iommu=pt", "iommu=pt"},
		{"amd", false, "iommu=soft iommu.passthrough=1", "iommu.passthrough=1", ""},
		// An EPYC 9654 (github.com/AMDESE/AMDSEV, issues 88 and 113; github.com/SUSE/doc-sle, pull 1857).
		{"amd", false, "iommu=nopt mem_encrypt=on kvm_amd.sev=1 kvm_amd.sev_snp=1", "iommu=nopt mem_encrypt=on kvm_amd.sev=1 kvm_amd.sev_snp=1", ""},
		// A host with Linux 6.16 whose devices exchange data between PCIe switches (AMDESE/AMDSEV, issue 287).
		{"amd", false, "mem_encrypt=on kvm_amd.sev=1 kvm_amd.sev_es=1 kvm_amd.sev_snp=1 amd_iommu=on", "mem_encrypt=on kvm_amd.sev=1 kvm_amd.sev_es=1 kvm_amd.sev_snp=1 amd_iommu=on", ""},
		{"amd", false, "kvm-amd.sev_snp=Y", "kvm-amd.sev_snp=Y", ""},
		{"amd", false, "kvm_amd.sev_snp=0", "kvm_amd.sev_snp=0 iommu=pt", "iommu=pt"},
		{"amd", true, "quiet iommu=soft", "quiet", ""},
		{"amd", true, "iommu=pt", "iommu=pt", ""},
		// A Grace host by NVIDIA's guide (github.com/NVIDIA/NV-Kernels, pull 22).
		{"arm", false, "iommu.passthrough=0 x", "iommu.passthrough=0 x", ""},
		{"arm", false, "x", "x", ""},
	} {
		t.Run(fmt.Sprint(test.vendor, test.snp, test.args), func(t *testing.T) {
			want, ok := boot.WantIOMMU(test.vendor, test.snp)
			args := boot.ParseArgs(test.args)
			after := want.Change(args).Apply(args)
			if got := after.String(); !ok || got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
			if again := want.Change(after); !again.IsZero() {
				t.Errorf("again: %v", again)
			}
			recorded := want.Args(args)
			if got := strings.TrimSpace(strings.TrimPrefix(recorded.String(), "intel_iommu=on")); got != test.recorded || want.Args(after).String() != recorded.String() {
				t.Errorf("recorded %q, and again %q", recorded, want.Args(after))
			}
			if lacking := after.Lacking(recorded); lacking != nil {
				t.Errorf("lacks %q", lacking)
			}
		})
	}
	if _, ok := boot.WantIOMMU("ibm", false); ok {
		t.Error("knows ibm")
	}
	for args, lacking := range map[string]int{"": 1, "iommu=nopt": 0, "iommu.passthrough=0": 0, "kvm_amd.sev_snp=1": 0, "iommu=force": 1} {
		if got := boot.ParseArgs(args).Lacking([]string{"iommu=pt"}); len(got) != lacking {
			t.Errorf("%q lacks %q", args, got)
		}
	}
}

func TestParseArgs(t *testing.T) {
	got := boot.ParseArgs("  a=1\t\"b c\"=2 d=\"e  f\" \r\n")
	hosttest.Equal(t, boot.Args{"a=1", `"b c"=2`, `d="e  f"`}, got)
}

func FuzzParseArgs(f *testing.F) {
	f.Add(`a "b c" d="e f"`)
	f.Add("quiet -- single")
	f.Fuzz(func(t *testing.T, line string) {
		args := boot.ParseArgs(line)
		if strings.Count(line, `"`)%2 == 0 && !slices.Equal(boot.ParseArgs(args.String()), args) {
			t.Errorf("%q: %q", line, args)
		}
		// what follows "--" is for init: grub and entries refuse to write there
		want := intel.Change(args)
		if after := want.Apply(args); !intel.Change(after).IsZero() && !slices.Contains(after, "--") {
			t.Errorf("%q: again %v", after, intel.Change(after))
		}
	})
}
