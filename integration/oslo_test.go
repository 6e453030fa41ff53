package integration

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

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
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
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
	if err := json.Unmarshal(line, answer); err != nil {
		t.Fatal(err)
	}
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
		if err != nil {
			t.Fatal(err)
		}
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
