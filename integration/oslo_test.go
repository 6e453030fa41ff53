package integration

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host/hosttest"
	"gpustack/nova"
	"gpustack/nova/conf"
)

// answerer is a program in Python, which answers each line it is asked with a line of JSON.
type answerer struct {
	in  io.WriteCloser
	out *bufio.Reader
	mu  sync.Mutex
}

func startAnswerer(t testing.TB, script string) *answerer {
	t.Helper()
	cmd := exec.Command("/usr/bin/python3", script)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	hosttest.NoError(t, err)
	out, err := cmd.StdoutPipe()
	hosttest.NoError(t, err)
	hosttest.NoError(t, cmd.Start())
	t.Cleanup(func() {
		in.Close()
		cmd.Wait()
	})
	return &answerer{in: in, out: bufio.NewReader(out)}
}

func (a *answerer) ask(t testing.TB, question string, answer any) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, err := io.WriteString(a.in, question+"\n"); err != nil {
		t.Fatal(err)
	}
	line, err := a.out.ReadBytes('\n')
	if err != nil {
		t.Fatalf("%v (make integration runs the tests where all that they need is installed)", err)
	}
	hosttest.NoError(t, json.Unmarshal(line, answer))
}

// oslo returns the options by section and key as oslo.config reads them, or false
// where it refuses the file.
func oslo(t testing.TB, a *answerer, text string) (map[string]map[string][]string, bool) {
	t.Helper()
	var answer struct {
		Error    string
		Sections map[string]map[string][]string
	}
	a.ask(t, base64.StdEncoding.EncodeToString([]byte(text)), &answer)
	return answer.Sections, answer.Error == ""
}

// ours returns the same of our reader.
func ours(text string) (map[string]map[string][]string, error) {
	f, err := conf.Parse([]byte(text))
	if err != nil {
		return nil, err
	}
	sections := map[string]map[string][]string{}
	for _, name := range f.Sections() {
		sections[name] = map[string][]string{}
	}
	for _, o := range f.Options() {
		sections[o.Section][o.Key] = append(sections[o.Section][o.Key], o.Value)
	}
	return sections, nil
}

// TestFilesAgainstOslo: each program of Nova reads the files that oslo.config finds for it, in that
// order, in random trees.
func TestFilesAgainstOslo(t *testing.T) {
	const home = "/var/lib/nova"
	peer := startAnswerer(t, "ask_oslo.py")
	random := rand.New(rand.NewPCG(19, 3))
	programs := nova.All.Programs()
	var candidates []string
	for _, base := range append([]string{"nova", "nova-cells", "other"}, programs...) {
		for _, dir := range []string{"/etc/nova", "/etc", home, home + "/.nova"} {
			if name := dir + "/" + base; name != "/etc/nova/nova" {
				candidates = append(candidates, name+".conf")
			}
			for _, file := range []string{"a.conf", "b.conf", ".c.conf", "d.conf.bak"} {
				candidates = append(candidates, dir+"/"+base+".conf.d/"+file)
			}
		}
	}
	differ, elsewhere := 0, 0
	for n := range 300 {
		tree := "-- etc/passwd --\nnova:x:1:1::" + home + ":/bin/sh\n-- etc/nova/nova.conf --\n"
		for _, name := range candidates {
			// Half of the trees have files in /etc/nova only.
			if random.IntN(4) == 0 && (n%2 == 0 || strings.HasPrefix(name, "/etc/nova/") && random.IntN(2) == 0) {
				tree += "-- " + name[1:] + " --\n"
			}
		}
		root := hosttest.Lay(t, tree)
		for _, program := range programs {
			role := nova.Controller
			if program == "nova-compute" {
				role = nova.Compute
			}
			var want struct{ Files []string }
			peer.ask(t, strings.Join([]string{"find", root.Path("/"), home, program}, "\t"), &want)
			all, err := nova.Files(root, nova.DefaultConf, role)
			hosttest.NoError(t, err)
			strays, err := nova.Elsewhere(root, role)
			hosttest.NoError(t, err)
			names := slices.DeleteFunc(all, func(name string) bool {
				by := nova.ReadBy(name, nova.DefaultConf)
				return by != "" && by != program
			})
			var got []string
			for _, extension := range []string{".conf", ".conf.d"} {
				for _, base := range []string{"nova", program} {
					i := slices.IndexFunc(strays, func(s nova.Stray) bool { return path.Base(s.Name) == base+extension })
					if i >= 0 {
						elsewhere++
						got = append(got, strays[i].Files...)
						// Those of /etc/nova that it hides are not read.
						names = slices.DeleteFunc(names, func(name string) bool {
							return name == strays[i].Hides || path.Dir(name) == strays[i].Hides
						})
						continue
					}
					for _, name := range names {
						if name == "/etc/nova/"+base+extension || path.Dir(name) == "/etc/nova/"+base+extension {
							got = append(got, name)
						}
					}
				}
			}
			if len(strays) == 0 { // then the order is that of Files itself
				got = names
			}
			if len(got) > 1 {
				differ++
			}
			if !slices.Equal(want.Files, got) {
				t.Fatalf("%s of\n%s\noslo.config finds %q, gpustack %q", program, tree, want.Files, got)
			}
		}
	}
	if differ < 100 || elsewhere < 100 {
		t.Errorf("only %d trees with several files, %d with files elsewhere", differ, elsewhere)
	}
}

// FuzzConfAgainstOslo: what oslo.config takes we take, with the same options, and
// the other way round; and what an edit leaves says to oslo.config what it should.
func FuzzConfAgainstOslo(f *testing.F) {
	for _, text := range []string{
		"[DEFAULT]\na = b\n", "[pci]\nalias: 'x'\n  y\n\n#alias = \n", "[a]\r\nb\t=\tc \r\n d\r", "a = b\n", "[a]\n b\n", "[a\n", "[]\n", "[a]\n=\n",
		"\ufeff[a]\n", "[a]\n# \xff\n", "[a]\nb = \"\n", "[a]\nb = c\x0bd\x1c\n\x0c[e]\n", "[ a ]\nb=\u00a0c\u2028d\u0085\n", "[PCI]\nalias={}\n[pci]\npci_alias=1\n",
	} {
		f.Add(text)
	}
	peer := startAnswerer(f, "ask_oslo.py")
	f.Fuzz(func(t *testing.T, text string) {
		want, taken := oslo(t, peer, text)
		got, err := ours(text)
		if taken != (err == nil) {
			t.Fatalf("oslo.config takes %q: %v, we: %v", text, taken, err)
		}
		if err != nil {
			return
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%q (-oslo.config +gpustack):\n%s", text, diff)
		}
		file, err := conf.Parse([]byte(text))
		hosttest.NoError(t, err)
		const value = `{"name": "K4200", "vendor_id": "10de"}`
		after, err := file.Set(conf.Setting{
			Names:  []conf.Name{{Section: "pci", Key: "alias"}, {Section: "DEFAULT", Key: "pci_alias"}},
			Values: []string{value}, Multi: true,
		})
		if errors.Is(err, conf.ErrVerify) && strings.Contains(err.Error(), "go-ini") {
			return
		}
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		edited, taken := oslo(t, peer, string(after.Bytes()))
		if !taken {
			t.Fatalf("oslo.config refuses %q, made of %q", after.Bytes(), text)
		}
		var aliases []string
		for section, options := range edited {
			if strings.ToLower(section) == "pci" && section != "DEFAULT" {
				aliases = append(aliases, options["alias"]...)
				delete(options, "alias")
			}
		}
		aliases = append(aliases, edited["DEFAULT"]["pci_alias"]...)
		if diff := cmp.Diff([]string{value}, aliases); diff != "" {
			t.Fatalf("aliases of %q, made of %q:\n%s", after.Bytes(), text, diff)
		}
		for section, options := range want {
			for key, values := range options {
				if key == "alias" && strings.ToLower(section) == "pci" || key == "pci_alias" && section == "DEFAULT" {
					continue
				}
				if diff := cmp.Diff(values, edited[section][key]); diff != "" {
					t.Fatalf("[%s] %s of %q, made of %q:\n%s", section, key, after.Bytes(), text, diff)
				}
			}
		}
	})
}

// asValues are the values that oslo.config reads from files.
type asValues struct {
	Error                     string
	Enabled, Available, Alias []string
}

func askValues(t *testing.T, peer *answerer, files ...string) (answer asValues) {
	t.Helper()
	texts, err := json.Marshal(files)
	hosttest.NoError(t, err)
	peer.ask(t, "values\t"+string(texts), &answer)
	return answer
}

// TestFiltersAgainstOslo: the filters of a nova-scheduler that reads several files, of which each
// may set the options by their older and their current names.
func TestFiltersAgainstOslo(t *testing.T) {
	peer := startAnswerer(t, "ask_oslo.py")
	random := rand.New(rand.NewPCG(34, 4))
	several := 0
	for range 1000 {
		var texts []string
		var side nova.Side
		value := 0
		for i := range 1 + random.IntN(3) {
			text := ""
			for _, name := range []string{"[filter_scheduler]\nenabled_filters", "[DEFAULT]\nscheduler_default_filters",
				"[filter_scheduler]\navailable_filters", "[DEFAULT]\nscheduler_available_filters"} {
				for range random.IntN(3) / 2 * (1 + random.IntN(2)) {
					value++
					text += fmt.Sprintf("%s = own.F%d, F0,\n", name, value)
				}
			}
			if random.IntN(4) == 0 {
				text += "[filter_scheduler]\nenabled_filters =\n"
			}
			file, err := conf.Parse([]byte(text))
			hosttest.NoError(t, err)
			texts, side.Files = append(texts, text), append(side.Files, conf.Source{Name: fmt.Sprint(i), File: file})
		}
		want, got := askValues(t, peer, texts...), side.Filters(nova.Wallaby)
		if want.Enabled == nil {
			want.Enabled = nova.Wallaby.DefaultFilters()
		} else {
			several++
		}
		slices.Sort(want.Available) // the order makes no difference
		slices.Sort(got.Available)
		if !slices.Equal(want.Enabled, got.Enabled) || !slices.Equal(want.Available, got.Available) {
			t.Fatalf("%q\noslo.config reads %q and %q\nwe read %q and %q", texts, want.Enabled, want.Available, got.Enabled, got.Available)
		}
	}
	if several < 300 {
		t.Errorf("only %d cases with enabled_filters", several)
	}
}

// TestReferencesAgainstOslo: a value refers to options where oslo.config looks for them, and else
// is read as oslo.config reads it.
func TestReferencesAgainstOslo(t *testing.T) {
	peer := startAnswerer(t, "ask_oslo.py")
	random := rand.New(rand.NewPCG(34, 2))
	refer, read := 0, 0
	for range 800 {
		var name strings.Builder
		for range random.IntN(9) {
			name.WriteString([]string{"$", "$", "$", "{", "}", "a", "a", "B", "1", ".", "-", `\$`, `\\`}[random.IntN(13)])
		}
		value := `{"name": "` + name.String() + `"}`
		want := askValues(t, peer, "[pci]\nalias = "+value+"\n")
		if names := conf.References(value); (len(names) > 0) != (want.Error != "") {
			t.Fatalf("%s refers to %q; oslo.config: %q", value, names, want.Error)
		}
		if want.Error != "" {
			refer++
			continue
		}
		var object map[string]any
		isObject := json.Unmarshal([]byte(want.Alias[0]), &object) == nil
		got := conf.ParseObjects(value)
		if isObject != (got != nil) || isObject && got[0]["name"] != object["name"] {
			t.Fatalf("%s is %v; oslo.config reads %s", value, got, want.Alias[0])
		}
		read++
	}
	if refer < 80 || read < 200 {
		t.Errorf("%d references, %d others", refer, read)
	}
}
