package conf_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/nova/conf"
)

// TestParse holds the odd forms of the grammar; integration holds the parser
// against oslo.config itself.
func TestParse(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"an option", "[pci]\nalias = {}\n", "pci/alias=\"{}\"@2"},
		{"a colon", "[pci]\nalias: a=b\n", "pci/alias=\"a=b\"@2"},
		{"no value", "[pci]\nalias =\n", "pci/alias=\"\"@2"},
		{"continued", "[pci]\nalias = {\n  \"name\": 1,\n\t}\n", "pci/alias=\"{\\n\\\"name\\\": 1,\\n}\"@2"},
		{"a blank line ends it", "[a]\nb = c\n\n[d]\n", "a/b=\"c\"@2"},
		{"quotes around", "[a]\nb = 'c'\nd = \"e\nf='\n", "a/b=\"c\"@2 a/d=\"\\\"e\"@3 a/f=\"\"@4"},
		{"a hash in a value", "[a]\nb = c # d\n", "a/b=\"c # d\"@2"},
		{"comments", "# x\n; y\n[a]\n#b = c\n", ""},
		{"an indented comment continues", "[a]\nb = c\n # d\n", "a/b=\"c\\n# d\"@2"},
		{"sections again", "[a]\nb = 1\n[c]\n[a]\nb = 2\n", "a/b=\"1\"@2 a/b=\"2\"@5"},
		{"DOS line ends", "[a]\r\nb = c\r\n", "a/b=\"c\"@2"},
		{"old Mac line ends", "[a]\rb = c\r", "a/b=\"c\"@2"},
		{"no final newline", "[a]\nb = c", "a/b=\"c\"@2"},
		{"nothing", "", ""},
		{"a byte order mark", "\ufeff[a]\n", "line 1: byte order mark at the beginning of the file"},
		{"no section", "\na = b\n", "line 2: option before the first section header"},
		{"no equals sign", "[a]\nsecret\n", "line 2: not an option, a section header or a comment"},
		{"no name", "[a]\n= b\n", "line 2: option without a name"},
		{"nothing to continue", "[a]\n b\n", "line 2: continuation line without an option before it"},
		{"nothing to continue after a comment", "[a]\nb = c\n#\n d\n", "line 4: continuation line without an option before it"},
		{"no bracket", "[a\n", "line 1: section header does not end with ]"},
		{"a comment behind a section", "[a] # b\n", "line 1: section header does not end with ]"},
		{"an empty section name", "[]\n", "line 1: section header without a name"},
		{"Latin-1", "[a]\n# \xe9\n", "line 2: not UTF-8"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f, err := conf.Parse([]byte(test.text))
			var got []string
			if err != nil {
				got = append(got, err.Error())
			} else {
				for _, o := range f.Options() {
					got = append(got, fmt.Sprintf("%s/%s=%q@%d", o.Section, o.Key, o.Value, o.Line()))
				}
				hosttest.EqualIn(t, "written as", test.text, string(f.Bytes()))
			}
			hosttest.Equal(t, test.want, strings.Join(got, " "))
		})
	}
}

var alias = []conf.Name{{Section: "pci", Key: "alias"}, {Section: "DEFAULT", Key: "pci_alias"}}

func TestSet(t *testing.T) {
	multi := func(values ...string) conf.Setting { return conf.Setting{Names: alias, Values: values, Multi: true} }
	spec := func(values ...string) conf.Setting {
		return conf.Setting{Names: []conf.Name{{Section: "pci", Key: "device_spec"}, {Section: "pci", Key: "passthrough_whitelist"}}, Values: values, Multi: true}
	}
	ordered := func(values ...string) conf.Setting {
		s := spec(values...)
		s.Names = append(s.Names, conf.Name{Section: "DEFAULT", Key: "pci_passthrough_whitelist"})
		return s
	}
	single := func(values ...string) conf.Setting {
		return conf.Setting{Names: []conf.Name{{Section: "filter_scheduler", Key: "enabled_filters"},
			{Section: "DEFAULT", Key: "scheduler_default_filters"}}, Values: values}
	}
	for _, test := range []struct {
		name, in string
		setting  conf.Setting
		out      string
	}{
		{"into an empty file", "", multi("A"), "[pci]\nalias = A\n"},
		{"into a new section", "[DEFAULT]\na = b\n", multi("A", "B"), "[DEFAULT]\na = b\n\n[pci]\nalias = A\nalias = B\n"},
		{"after a last line without newline", "[DEFAULT]\na = b", multi("A"), "[DEFAULT]\na = b\n\n[pci]\nalias = A\n"},
		{"to the end of the section", "[pci]\nx = y\n\n# about the next\n[z]\n", multi("A"), "[pci]\nx = y\nalias = A\n\n# about the next\n[z]\n"},
		{"into a section with nothing in it", "[pci]\n\n# text\n[z]\n", multi("A"), "[pci]\nalias = A\n\n# text\n[z]\n"},
		{"into the last of the section's parts", "[pci]\nx = y\n[z]\n[pci]\nv = w\n", multi("A"), "[pci]\nx = y\n[z]\n[pci]\nv = w\nalias = A\n"},
		{"below its commented default", "[pci]\n# help\n#alias =\n\nx = y\n", multi("A"), "[pci]\n# help\n#alias =\nalias = A\n\nx = y\n"},
		{"below the others", "[pci]\nalias = B\nx = y\n", multi("B", "A"), "[pci]\nalias = B\nalias = A\nx = y\n"},
		{"there already", "[pci]\nalias = B\nalias: 'A'\n", multi("B", "A"), "[pci]\nalias = B\nalias: 'A'\n"},
		{"one for another, in its place", "[pci]\nalias   =   B\nx = y\n", multi("A"), "[pci]\nalias   =   A\nx = y\n"},
		{"one for another that took several lines", "[pci]\nalias = B\n  C\nx = y\n", multi("A"), "[pci]\nalias = A\nx = y\n"},
		{"fewer", "[pci]\nalias = A\nalias = B\nalias = C\nx = y\n", multi("B"), "[pci]\nalias = B\nx = y\n"},
		{"none", "[pci]\nalias = A\n  C\nx = y\n", multi(), "[pci]\nx = y\n"},
		{"from an old name in another section", "[DEFAULT]\npci_alias = A\nx = y\n[pci]\n#alias=\n", multi("A"), "[DEFAULT]\nx = y\n[pci]\n#alias=\nalias = A\n"},
		{"from an old name in its place", "[pci]\npassthrough_whitelist = A # x\n", spec("A # x", "B"), "[pci]\ndevice_spec = A # x\ndevice_spec = B\n"},
		{"in order: before another", "[pci]\nx = y\ndevice_spec=B\n", ordered("A", "B"), "[pci]\nx = y\ndevice_spec = A\ndevice_spec=B\n"},
		{"in order: between two", "[pci]\ndevice_spec = A\n# about C\ndevice_spec = C\n", ordered("A", "B", "C"),
			"[pci]\ndevice_spec = A\n# about C\ndevice_spec = B\ndevice_spec = C\n"},
		{"in order: exchanged", "[pci]\ndevice_spec = A\ndevice_spec = B\n", ordered("B", "A"), "[pci]\ndevice_spec = B\ndevice_spec = A\n"},
		{"in order: moved to the front", "[pci]\ndevice_spec = A\ndevice_spec = B\ndevice_spec = C\n", ordered("C", "A", "B"),
			"[pci]\ndevice_spec = C\ndevice_spec = A\ndevice_spec = B\n"},
		{"in order: in place of another", "[pci]\ndevice_spec: A\ndevice_spec: X\n  Y\nz = z\n", ordered("A", "B", "C"),
			"[pci]\ndevice_spec: A\ndevice_spec: B\ndevice_spec = C\nz = z\n"},
		{"in order: an old name is read first", "[pci]\ndevice_spec = B\npassthrough_whitelist = A\n", ordered("A", "B"),
			"[pci]\ndevice_spec = A\ndevice_spec = B\n"},
		{"in order: an old name in its place", "[pci]\npassthrough_whitelist=A\n", ordered("A", "B"), "[pci]\ndevice_spec=A\ndevice_spec = B\n"},
		{"in order: from DEFAULT", "[DEFAULT]\npci_passthrough_whitelist = A\n[pci]\n#device_spec =\ndevice_spec = B\n",
			ordered("A", "B"), "[DEFAULT]\n[pci]\n#device_spec =\ndevice_spec = A\ndevice_spec = B\n"},
		{"in order: sections again", "[pci]\ndevice_spec = B\n[z]\n[PCI]\ndevice_spec = C\n", ordered("A", "B", "C", "D"),
			"[pci]\ndevice_spec = A\ndevice_spec = B\n[z]\n[PCI]\ndevice_spec = C\ndevice_spec = D\n"},
		{"in order: twice the same", "[pci]\ndevice_spec = A\ndevice_spec = A\n", ordered("A", "B", "A"),
			"[pci]\ndevice_spec = A\ndevice_spec = B\ndevice_spec = A\n"},
		{"DOS line ends", "[pci]\r\nx = y\r\n", multi("A"), "[pci]\r\nx = y\r\nalias = A\r\n"},
		{"a section in capitals", "[PCI]\nALIAS = B\n", multi("A"), "[PCI]\nALIAS = B\nalias = A\n"},
		{"a value that needs quotes", "[pci]\n", multi("\"A\"", " B "), "[pci]\nalias = \"\"A\"\"\nalias = \" B \"\n"},
		{"a single value in place", "[filter_scheduler]\nenabled_filters=A,B\n", single("A,B,C"), "[filter_scheduler]\nenabled_filters=A,B,C\n"},
		{"a single value: the last counts", "[filter_scheduler]\nenabled_filters=A\nenabled_filters=B\n", single("B,C"),
			"[filter_scheduler]\nenabled_filters=A\nenabled_filters=B,C\n"},
		{"a single value from an old name", "[DEFAULT]\nscheduler_default_filters=A\n", single("A,B"), "[DEFAULT]\n\n[filter_scheduler]\nenabled_filters = A,B\n"},
		{"a single value away", "[filter_scheduler]\nenabled_filters=A\nenabled_filters=B\n[z]\n", single(), "[filter_scheduler]\n[z]\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f, err := conf.Parse([]byte(test.in))
			hosttest.NoError(t, err)
			after, err := f.Set(test.setting)
			hosttest.NoError(t, err)
			hosttest.Equal(t, test.out, string(after.Bytes()))
			again, err := after.Set(test.setting)
			hosttest.NoError(t, err)
			hosttest.EqualIn(t, "again", test.out, string(again.Bytes()))
		})
	}
	f, err := conf.Parse(nil)
	hosttest.NoError(t, err)
	if _, err := f.Set(multi("a\nb")); err == nil || err.Error() != "[pci] alias: the value contains control characters or is not UTF-8" {
		t.Errorf("%v", err)
	}
}

// FuzzSet: whatever oslo.config takes can be edited, or that is an error; then the
// option has just its values, and is not changed again.
func FuzzSet(f *testing.F) {
	f.Add("[DEFAULT]\na = b\npci_alias = x\n[pci]\n#alias =\nalias: 'y'\n  z\n", "{\"name\": \"A\"}")
	f.Fuzz(func(t *testing.T, text, value string) {
		file, err := conf.Parse([]byte(text))
		if err != nil {
			return
		}
		if string(file.Bytes()) != text {
			t.Fatalf("%q is written as %q", text, file.Bytes())
		}
		s := conf.Setting{Names: alias, Values: []string{value}, Multi: true}
		after, err := file.Set(s)
		if err != nil {
			if errors.Is(err, conf.ErrVerify) && !strings.ContainsAny(value, "'\"\x1c\x1d\x1e\x1f") &&
				strings.TrimSpace(value) == value && !strings.Contains(err.Error(), "go-ini") {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		again, err := after.Set(s)
		if err != nil || string(again.Bytes()) != string(after.Bytes()) {
			t.Errorf("%q, again %q, %v", after.Bytes(), again.Bytes(), err)
		}
	})
}
