package probe_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host/hosttest"
	"gpustack/host/pci"
	"gpustack/nova/probe"
)

const (
	nonce = "7f3a00c1"
	mark  = "GPUSTACK-PROBE v1 nonce=" + nonce
	two   = mark + " devices=2 0000:00:05.0=10de:11b4:ok 0000:00:06.0=10de:11b4:ok END"
	three = mark + " devices=3 0000:00:02.0=1af4:1041:ok 0000:00:05.0=10de:11b4:ok 0000:00:06.0=10de:11b4:unassigned END"
)

var k4200 = probe.ID{Vendor: 0x10de, Product: 0x11b4}

// words returns a report as the script prints it.
func words(r probe.Report) string {
	if r.Unread {
		return "unread"
	}
	list := []string{}
	for _, d := range r.Devices {
		state := "unassigned"
		if d.Unread {
			state = "unread"
		} else if d.Assigned {
			state = "ok"
		}
		list = append(list, fmt.Sprintf("%s=%s:%s", d.Address, d.ID, state))
	}
	return strings.Join(list, " ")
}

func TestParse(t *testing.T) {
	const (
		wantTwo   = "0000:00:05.0=10de:11b4:ok 0000:00:06.0=10de:11b4:ok"
		wantThree = "0000:00:02.0=1af4:1041:ok 0000:00:05.0=10de:11b4:ok 0000:00:06.0=10de:11b4:unassigned"
		none      = "none"
	)
	for _, test := range []struct{ name, console, want string }{
		{"a line", two + "\n", wantTwo},
		{"no end of line yet", two, wantTwo},
		{"CR LF", "Debian GNU/Linux 12 ttyS0\r\n\r\n" + two + "\r\n\r\nlogin: ", wantTwo},
		{"escape sequences", "\x1b[2J\x1b[1;31mlogin:\x1b[0m \x1b]0;title\x07" + strings.ReplaceAll(two, " ", "\x1b[0m \x1b(B") + "\x1b[K\r\n", wantTwo},
		{"kernel messages around", "[    9.1] pci 0000:00:05.0: x\n" + two + "\n[    9.2] random: crng init done\n", wantTwo},
		{"a prefix of systemd's", "[   12.345678] cloud-init[512]: " + two + "\n", wantTwo},
		{"a kernel message after END", two + "[   12.3] random: crng init done\r\n", wantTwo},
		{"the last one counts", two + "\n" + three + "\n", wantThree},
		{"the last one is cut", two + "\n" + three[:len(three)-2], wantTwo},
		{"the last one lacks a function", two + "\n" + strings.Replace(three, "0000:00:02.0=1af4:1041:ok ", "", 1) + "\n", wantTwo},
		{"a kernel message in the last one", two + "\n" + strings.Replace(three, "05.0", "0[   12.3] usb 1-1: new device\r\n5.0", 1) + "\n", wantTwo},
		{"one byte lost in the last one", two + "\n" + strings.Replace(three, "1041", "104", 1) + "\n", wantTwo},
		{"an address twice in the last one", two + "\n" + strings.Replace(two, "06.0", "05.0", 1) + "\n", wantTwo},
		{"another nonce after it", two + "\n" + strings.Replace(three, nonce, "7f3a00c2", 1) + "\n", wantTwo},
		{"a longer nonce after it", two + "\n" + strings.Replace(three, nonce, nonce+"00", 1) + "\n", wantTwo},
		{"no functions", mark + " devices=0 END\n", ""},
		{"no /sys", mark + " devices=unread END\n", "unread"},
		{"unread regions", mark + " devices=1 0000:00:05.0=10de:11b4:unread END\n", "0000:00:05.0=10de:11b4:unread"},
		{"a class", mark + " devices=1 0000:00:05.0=10de:11b4:ok:0300 END\n", "0000:00:05.0=10de:11b4:ok"},
		{"a class of three digits", mark + " devices=1 0000:00:05.0=10de:11b4:ok:030 END\n", none},
		{"a class of no digits", mark + " devices=1 0000:00:05.0=10de:11b4:ok:03xx END\n", none},
		{"an empty class", mark + " devices=1 0000:00:05.0=10de:11b4:ok: END\n", none},
		{"Hyper-V's domain", mark + " devices=1 20ab0000:00:00.0=10de:20b5:ok END\n", "20ab0000:00:00.0=10de:20b5:ok"},
		{"empty", "", none},
		{"no END", strings.TrimSuffix(two, " END") + "\n", none},
		{"END on the next line", strings.Replace(two, " END", "\n END", 1) + "\n", none},
		{"cut at the begin", two[4:] + "\n", none},
		{"more than announced", strings.Replace(two, "devices=2", "devices=1", 1) + "\n", none},
		{"a number with a zero", strings.Replace(two, "devices=2", "devices=02", 1) + "\n", none},
		{"no number", strings.Replace(two, "devices=2 ", "", 1) + "\n", none},
		{"another version", strings.Replace(two, "v1", "v2", 1) + "\n", none},
		{"another state", strings.Replace(two, ":ok", ":good", 1) + "\n", none},
		{"no address", strings.Replace(two, "0000:00:05.0", "5", 1) + "\n", none},
		{"functions of no /sys", mark + " devices=unread 0000:00:05.0=10de:11b4:ok END\n", none},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := none
			if r, whole := probe.Parse(test.console, nonce); whole {
				got = words(r)
			}
			hosttest.Equal(t, test.want, got)
		})
	}
}

// TestParseRealGuest: what the script printed in a virtual machine with a real H200 (a Firecracker
// guest, Linux 6.18, driver 580.159.04, 2026-11-27; the UUID is changed, and what nvidia-smi -L
// printed there stands in the records of today).
func TestParseRealGuest(t *testing.T) {
	const console = "GPUSTACK-PROBE v1 nonce=n0nce devices=7 0000:00:00.0=8086:0d57:ok 0000:00:01.0=1af4:1042:ok 0000:00:02.0=1af4:1042:ok " +
		"0000:00:03.0=1af4:1041:ok 0000:00:04.0=1af4:1053:ok 0000:00:05.0=1af4:1044:ok 0000:00:06.0=10de:2335:ok END\n" +
		"GPUSTACK-RUN v1 nonce=n0nce 1/1:67 GPU 0: NVIDIA H200 (UUID: GPU-11111111-2222-3333-4444-555555555555) END\n" +
		"GPUSTACK-RUN v1 nonce=n0nce ended exit=0 from= to= lines=1 gap=none END\n"
	r, whole := probe.Parse(console, "n0nce")
	run := probe.ParseRun(console, "n0nce")
	if !whole || said(run) != `ended 0 ["GPU 0: NVIDIA H200 (UUID: GPU-11111111-2222-3333-4444-555555555555)"]` {
		t.Fatalf("%+v, %t, %s", r, whole, said(run))
	}
	if got := run.Programs; len(got) != 1 || got[0].Name != "nvidia-smi" || !got[0].ListsAll || *got[0].GPUs != 1 ||
		!slices.Equal(got[0].Models, []string{"NVIDIA H200"}) {
		t.Errorf("%+v", got)
	}
	h200 := probe.ID{Vendor: 0x10de, Product: 0x2335}
	for count, want := range map[int]probe.Verdict{1: probe.Pass, 2: probe.Fail} {
		hosttest.EqualIn(t, fmt.Sprintf("%d wanted", count), want, probe.Compare(probe.Wanted{h200: count}, r).Verdict)
	}
}

// A console that shows the script, as one does where a shell traces it, is no report.
func TestParseScript(t *testing.T) {
	for _, o := range []probe.Options{{}, running(t, "nvidia-smi -L")} {
		console := probe.Script(nonce, o)
		if r, whole := probe.Parse(console, nonce); whole {
			t.Errorf("%+v", r)
		}
		if r := probe.ParseRun(console, nonce); r != nil {
			t.Errorf("%+v", r)
		}
		if r, whole := probe.Parse(console+"\n"+two, nonce); !whole {
			t.Errorf("%+v", r)
		}
	}
}

func TestPlain(t *testing.T) {
	hosttest.Equal(t, "redthen\ntwo", probe.Plain("\x1b[31mred\x1b[0m\tthen\r\n\x1b]0;title\x1b\\two\x00\xff\x1b"))
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{two, three, "\x1b[", mark + " devices=unread END"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, console string) {
		r, whole := probe.Parse(console, nonce)
		if !whole && r.Devices != nil {
			t.Fatalf("%q: half of %+v", console, r)
		}
		if len(r.Devices)*len("0:00.0=10de:11b4:ok") > len(console) {
			t.Fatalf("%q: %d devices", console, len(r.Devices))
		}
		// A report that is not disturbed is read whatever the console shows before it.
		if after, whole := probe.Parse(console+"\n"+two+"\n", nonce); !whole || words(after) != strings.TrimSuffix(two[len(mark+" devices=2 "):], " END") {
			t.Fatalf("%q hides what follows", console)
		}
		wanted := probe.Wanted{k4200: 1}
		if got := probe.Compare(wanted, r); got.Verdict == probe.Pass && got.Seen[k4200] != 1 {
			t.Fatalf("%q: %+v", console, got)
		}
		if plain := probe.Plain(console); probe.Plain(plain) != plain {
			t.Fatalf("%q is not plain", plain)
		}
	})
}

func TestCompare(t *testing.T) {
	const mixed = " 0000:00:00.0=8086:29c0:ok 0000:00:02.0=1af4:1041:unassigned"
	for _, test := range []struct {
		name, functions, wanted string
		verdict                 probe.Verdict
		seen                    string
		reasons                 []string
	}{
		{"exact", "0000:00:05.0=10de:11b4:ok 0000:00:06.0=10de:11b4:ok" + mixed, "10de:11b4=2", probe.Pass, "10de:11b4=2", nil},
		{"fewer", "0000:00:05.0=10de:11b4:ok" + mixed, "10de:11b4=2", probe.Fail, "10de:11b4=1", []string{"10de:11b4: 2 wanted, 1 seen"}},
		{"none", "0000:00:02.0=1af4:1041:ok", "10de:11b4=2", probe.Fail, "10de:11b4=0", []string{"10de:11b4: 2 wanted, 0 seen"}},
		{"more", "0000:00:05.0=10de:11b4:ok 0000:00:06.0=10de:11b4:ok 0000:00:07.0=10de:11b4:ok", "10de:11b4=2", probe.Fail, "10de:11b4=3",
			[]string{"10de:11b4: 2 wanted, 3 seen"}},
		{"other ids", "0000:00:05.0=10de:1eb8:ok 0000:00:06.0=10de:1eb8:ok 0000:00:07.0=10de:0e0a:ok" + mixed, "10de:11b4=2", probe.Fail, "10de:11b4=0",
			[]string{"10de:11b4: 2 wanted, 0 seen", "other functions of the same vendor: 1 × 10de:0e0a, 2 × 10de:1eb8"}},
		{"unassigned", "0000:00:05.0=10de:11b4:ok 0000:00:06.0=10de:11b4:unassigned", "10de:11b4=2", probe.Fail, "10de:11b4=2",
			[]string{"no addresses for a memory region of 0000:00:06.0"}},
		{"fewer, and unassigned", "0000:00:06.0=10de:11b4:unassigned", "10de:11b4=2", probe.Fail, "10de:11b4=1",
			[]string{"10de:11b4: 2 wanted, 1 seen", "no addresses for a memory region of 0000:00:06.0"}},
		{"unread", "0000:00:05.0=10de:11b4:unread", "10de:11b4=1", probe.Unknown, "10de:11b4=1",
			[]string{"the guest's kernel does not show the memory regions of 0000:00:05.0"}},
		{"fewer, and unread", "0000:00:05.0=10de:11b4:unread", "10de:11b4=2", probe.Fail, "10de:11b4=1",
			[]string{"the guest's kernel does not show the memory regions of 0000:00:05.0", "10de:11b4: 2 wanted, 1 seen"}},
		{"two products", "0000:00:05.0=10de:11b4:ok 0000:00:06.0=15b3:101e:ok", "10de:11b4=1 15b3:101e=1", probe.Pass, "10de:11b4=1 15b3:101e=1", nil},
		{"the audio function came too", "0000:00:05.0=10de:11b4:ok 0000:00:06.0=10de:0e0a:ok", "10de:11b4=1", probe.Pass, "10de:11b4=1", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := len(strings.Fields(test.functions))
			r, whole := probe.Parse(fmt.Sprintf("%s devices=%d %s END", mark, n, test.functions), nonce)
			if !whole {
				t.Fatal("no report")
			}
			got := probe.Compare(counts(t, test.wanted), r)
			want := probe.Result{Verdict: test.verdict, Seen: counts(t, test.seen), Reasons: append([]string{}, test.reasons...)}
			hosttest.Equal(t, want.Verdict, got.Verdict)
			hosttest.EqualIn(t, "reasons", want.Reasons, got.Reasons)
			hosttest.EqualIn(t, "seen", want.Seen, got.Seen)
			bad := strings.Contains(test.functions, "10de:11b4:unassigned")
			if bad != cmp.Equal(got.Unassigned, []pci.Address{hosttest.Address(t, "0000:00:06.0")}) ||
				bad != strings.Contains(got.Remedy, "hw_maxphysaddr_mode=passthrough") {
				t.Errorf("unassigned: %v, %q", got.Unassigned, got.Remedy)
			}
			sum := 0
			for _, seen := range []map[probe.ID]int{got.Seen, got.Others} {
				for _, count := range seen {
					sum += count
				}
			}
			hosttest.EqualIn(t, "functions", n, sum)
		})
	}
	t.Run("no /sys", func(t *testing.T) {
		if got := probe.Compare(probe.Wanted{k4200: 0}, probe.Report{Unread: true}); got.Verdict != probe.Unknown {
			t.Errorf("%+v", got)
		}
	})
}

// counts parses "10de:11b4=2 …".
func counts(t *testing.T, s string) map[probe.ID]int {
	t.Helper()
	m := map[probe.ID]int{}
	for word := range strings.FieldsSeq(s) {
		product, count, _ := strings.Cut(word, "=")
		var id probe.ID
		hosttest.NoError(t, id.UnmarshalText([]byte(product)))
		n, err := strconv.Atoi(count)
		hosttest.NoError(t, err)
		m[id] = n
	}
	return m
}

func TestIDIsJSON(t *testing.T) {
	data, err := json.Marshal(map[probe.ID]int{k4200: 2})
	if err != nil || string(data) != `{"10de:11b4":2}` {
		t.Fatalf("%s, %v", data, err)
	}
	var back map[probe.ID]int
	if err := json.Unmarshal(data, &back); err != nil || back[k4200] != 2 {
		t.Errorf("%v, %v", back, err)
	}
	for _, bad := range []string{"", "10de", "10de:", ":11b4", "10de:11b4:", "10de:11b4x", "10de:11b"} {
		if id, err := probe.ParseID(bad); err == nil {
			t.Errorf("%q: %s", bad, id)
		}
	}
}
