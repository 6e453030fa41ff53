package conf_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host/hosttest"
	"gpustack/nova/conf"
)

func parse(t testing.TB, text string) *conf.File {
	t.Helper()
	f, err := conf.Parse([]byte(text))
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return f
}

// TestRevert: options are as before, others' edits remain, and an option that was changed by hand
// is named with its line.
func TestRevert(t *testing.T) {
	const before = "[DEFAULT]\nmy_ip = 1\n[pci]\n# help\nalias = {\"name\": \"a\"}\n[filter_scheduler]\nenabled_filters = A, B\n"
	const after = "[DEFAULT]\nmy_ip = 1\n[pci]\n# help\nalias = {\"name\": \"a\"}\nalias = {\"name\": \"k\"}\n[filter_scheduler]\nenabled_filters = A, B, P\n\n[compute]\nreport = true\n"
	const old, renamed = "[pci]\nwhitelist = {\"a\": 1}\nwhitelist = {\"b\": 2}\n", "[pci]\ndevice_spec = {\"a\": 1}\ndevice_spec = {\"b\": 2}\ndevice_spec = {\"c\": 3}\n"
	const several = "[pci]\nalias = {\"name\":\n    \"a\"}\nalias = \n    {\"name\": \"b\",\n    \"c\": 1}\n[filter_scheduler]\nenabled_filters = A,\n    B,\n    C\n"
	const one = "[pci]\nalias = {\"name\": \"c\"}\n[filter_scheduler]\nenabled_filters = A,C\n"
	for _, test := range []struct{ name, before, after, now, want string }{
		{"unchanged", before, after, after, before},
		{"already as before", before, after, before, before},
		{"another option edited", before, after, strings.Replace(after, "my_ip = 1", "my_ip: 2\n# mine\ndebug = true", 1), strings.Replace(before, "my_ip = 1", "my_ip: 2\n# mine\ndebug = true", 1)},
		{"sections moved", before, after,
			"[compute]\nreport = true\n[filter_scheduler]\nenabled_filters = A, B, P\n[pci]\nalias = {\"name\": \"k\"}\nalias = {\"name\": \"a\"}\n[DEFAULT]\nmy_ip = 1\n",
			"[filter_scheduler]\nenabled_filters = A, B\n[pci]\nalias = {\"name\": \"a\"}\n[DEFAULT]\nmy_ip = 1\n"},
		{"sections apart", before, after, after + "[PCI]\nalias = {\"name\": \"x\"}\n", before + "[PCI]\nalias = {\"name\": \"x\"}\n"},
		{"values added by others", before, after,
			strings.Replace(after, "alias = {\"name\": \"k\"}", "alias = {\"name\": \"x\"}\nalias: {\"name\":\"k\"}\nalias = {\"name\": \"y\"}", 1),
			strings.Replace(before, "alias = {\"name\": \"a\"}", "alias = {\"name\": \"a\"}\nalias = {\"name\": \"x\"}\nalias = {\"name\": \"y\"}", 1)},
		{"a value removed by others", before, after, strings.Replace(after, "alias = {\"name\": \"a\"}\n", "", 1), strings.Replace(before, "alias = {\"name\": \"a\"}\n", "", 1)},
		{"ours removed by hand", before, after, strings.Replace(after, "alias = {\"name\": \"k\"}\n", "", 1), before},
		{"all of ours twice", before, after, strings.Replace(after, "alias = {\"name\": \"k\"}\n", "alias = {\"name\": \"k\"}\nalias = {\"name\": \"k\"}\n", 1),
			strings.Replace(before, "alias = {\"name\": \"a\"}\n", "alias = {\"name\": \"a\"}\nalias = {\"name\": \"k\"}\n", 1)},
		{"our section used by others", before, after, after + "other = 1\n", before + "\n[compute]\nother = 1\n"},
		{"our section with a comment", before, after, after + "# mine\n", before + "\n[compute]\n# mine\n"},
		{"renamed", old, renamed, "# top\n" + renamed, "# top\n" + old},
		{"renamed, and one added", old, renamed, renamed + "device_spec = {\"d\": 4}\n", "[pci]\ndevice_spec = {\"d\": 4}\nwhitelist = {\"a\": 1}\nwhitelist = {\"b\": 2}\n"},
		{"several lines", several, one, "# top\n" + one, "# top\n" + several},
		{"several lines, with carriage returns", several, one, "# top\r\n" + strings.ReplaceAll(one, "\n", "\r\n"), "# top\r\n" + strings.ReplaceAll(several, "\n", "\r\n")},
		{"one of the renamed removed", old, renamed, strings.Replace(renamed, "device_spec = {\"a\": 1}\n", "", 1), `3: [pci] device_spec is `},
		{"all of the renamed removed", old, renamed, "[pci]\n", "1: [pci] device_spec is \n1: [pci] device_spec is "},
		{"one of the renamed changed", old, renamed, strings.Replace(renamed, `"a": 1`, `"a": 2`, 1), `2: [pci] device_spec is {"a": 2}`},
		{"one of the renamed renamed back", old, renamed, strings.Replace(renamed, "device_spec", "whitelist", 1), old},
		{"our alias changed", before, after, "# top\n" + strings.Replace(after, `"k"`, `"K"`, 1), `7: [pci] alias is {"name": "K"}`},
		{"several changed", before, after, strings.NewReplacer(`"k"`, `"K"`, "A, B, P", "A, P").Replace(after), "6: [pci] alias is {\"name\": \"K\"}\n8: [filter_scheduler] enabled_filters is A, P"},
		{"filters gone", before, after, strings.Replace(after, "enabled_filters = A, B, P\n", "", 1), "7: [filter_scheduler] enabled_filters is "},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, conflicts, err := parse(t, test.now).Revert(conf.Edits(parse(t, test.before), parse(t, test.after)))
			var text string
			hosttest.NoError(t, err)
			for _, c := range conflicts {
				text += fmt.Sprintf("%d: %s is %s\n", c.Line, c.Name, strings.Join(c.Now, " "))
			}
			if text = strings.TrimSuffix(text, "\n"); conflicts == nil {
				text = string(got.Bytes())
			}
			hosttest.Equal(t, test.want, text)
		})
	}
}

// FuzzRevert: after random edits of lines that are not gpustack's, only gpustack's lines differ
// between the files before and after the reverting.
func FuzzRevert(f *testing.F) {
	for seed := range uint64(200) {
		f.Add(seed, "x = 1")
	}
	const before = "[DEFAULT]\nmy_ip = 1\n[pci]\n# help\nalias = {\"name\": \"a\"}\n[filter_scheduler]\nenabled_filters = A, B\n"
	first := parse(f, before)
	after := first
	for _, s := range []conf.Setting{
		{Names: []conf.Name{{Section: "pci", Key: "alias"}}, Values: []string{`{"name": "a"}`, `{"name": "k"}`}, Multi: true},
		{Names: []conf.Name{{Section: "pci", Key: "device_spec"}}, Values: []string{`{"a": 1}`, `{"b": 2}`}, Multi: true},
		{Names: []conf.Name{{Section: "filter_scheduler", Key: "enabled_filters"}}, Values: []string{"A, B, P"}},
		{Names: []conf.Name{{Section: "compute", Key: "report"}}, Values: []string{"true"}},
	} {
		var err error
		if after, err = after.Set(s); err != nil {
			f.Fatal(err)
		}
	}
	edits := conf.Edits(first, after)
	ours := []string{`alias = {"name": "k"}`, `device_spec = {"a": 1}`, `device_spec = {"b": 2}`, "enabled_filters = A, B, P", "enabled_filters = A, B", "[compute]", "report = true", ""}
	others := func(text string) []string {
		return slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool { return slices.Contains(ours, line) })
	}
	f.Fuzz(func(t *testing.T, seed uint64, line string) {
		key, _, _ := strings.Cut(strings.TrimSpace(line), "=")
		if strings.ContainsAny(line, "\n\r[]") || strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t") ||
			slices.Contains([]string{"alias", "device_spec", "enabled_filters", "report"}, strings.Trim(key, " \t:")) {
			return
		}
		lines := strings.Split(strings.TrimSuffix(string(after.Bytes()), "\n"), "\n")
		random := rand.New(rand.NewPCG(seed, 0))
		for range random.IntN(6) {
			at := 1 + random.IntN(len(lines))
			switch random.IntN(3) {
			case 0:
				lines = slices.Insert(lines, at, line)
			case 1:
				lines = slices.Insert(lines, at, "# "+line)
			default:
				if l := lines[at-1]; !slices.Contains(ours, l) && !strings.HasPrefix(l, "[") {
					lines = slices.Delete(lines, at-1, at)
				}
			}
		}
		now := strings.Join(lines, "\n") + "\n"
		file, err := conf.Parse([]byte(now))
		if err != nil {
			return
		}
		reverted, conflicts, err := file.Revert(edits)
		if err != nil {
			t.Fatalf("%q: %v", now, err)
		}
		if conflicts != nil {
			return // the alias of others was removed, or an option was continued
		}
		if diff := cmp.Diff(others(now), others(string(reverted.Bytes()))); diff != "" {
			t.Errorf("%q: lines of others (-before +after):\n%s", now, diff)
		}
		for _, l := range ours[:4] {
			if strings.Contains(string(reverted.Bytes()), "\n"+l+"\n") {
				t.Errorf("%q is left in %q", l, reverted.Bytes())
			}
		}
	})
}
