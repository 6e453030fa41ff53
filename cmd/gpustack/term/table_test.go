package term

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"gpustack/host"
	"gpustack/host/hosttest"
)

// TestTableFits: tables fit the terminal. What is typed in commands and states are never cut, and
// elsewhere nothing is.
func TestTableFits(t *testing.T) {
	header := []string{"GROUP", "FUNCTION", "ID", "NAME", "DRIVER", "NUMA", "TYPE", "ALIAS", "STATE"}
	rows := [][]string{
		{"┌ 56", "0000:c7:00.0", "10de:20b2", "A100 SXM4 80GB", "nvidia", "5", "type-PF", "A100-SXM4-80GB",
			"blocked: shares group 56 with NIC 0000:c3:00.0 (mlx5_core) and 1 more"},
		{"└", "0000:c3:00.0", "15b3:101b", "MT28908 Family [ConnectX-6]", "mlx5_core", "5", "", "", "guest-ready"},
	}
	for _, test := range []struct {
		width int
		want  string
	}{
		{200, `
GROUP  FUNCTION      ID         NAME                         DRIVER     NUMA  TYPE     ALIAS           STATE
┌ 56   0000:c7:00.0  10de:20b2  A100 SXM4 80GB               nvidia     5     type-PF  A100-SXM4-80GB  blocked: shares group 56 with NIC 0000:c3:00.0 (mlx5_core) and 1 more
└      0000:c3:00.0  15b3:101b  MT28908 Family [ConnectX-6]  mlx5_core  5                              guest-ready
`},
		{120, `
GROUP  FUNCTION      ID         NAME                      DRIVER     TYPE     ALIAS           STATE
┌ 56   0000:c7:00.0  10de:20b2  A100 SXM4 80GB            nvidia     type-PF  A100-SXM4-80GB  blocked: shares group 56
│                                                                                             with NIC 0000:c3:00.0
│                                                                                             (mlx5_core) and 1 more
└      0000:c3:00.0  15b3:101b  MT28908 Family            mlx5_core                           guest-ready
                                [ConnectX-6]
`},
		{80, `
GROUP  FUNCTION      ID         DRIVER     STATE
┌ 56   0000:c7:00.0  10de:20b2  nvidia     blocked: shares group 56 with NIC
│                                          0000:c3:00.0 (mlx5_core) and 1 more
└      0000:c3:00.0  15b3:101b  mlx5_core  guest-ready
`},
		{60, `
GROUP  FUNCTION      DRIVER     STATE
┌ 56   0000:c7:00.0  nvidia     blocked: shares group 56
│                               with NIC 0000:c3:00.0
│                               (mlx5_core) and 1 more
└      0000:c3:00.0  mlx5_core  guest-ready
`},
		{40, `
┌ 56
  FUNCTION  0000:c7:00.0
  ID        10de:20b2
  NAME      A100 SXM4 80GB
  DRIVER    nvidia
  NUMA      5
  TYPE      type-PF
  ALIAS     A100-SXM4-80GB
  STATE     blocked: shares group 56
            with NIC 0000:c3:00.0
            (mlx5_core) and 1 more
└
  FUNCTION  0000:c3:00.0
  ID        15b3:101b
  NAME      MT28908 Family [ConnectX-6]
  DRIVER    mlx5_core
  NUMA      5
  STATE     guest-ready
`},
		{28, `
┌ 56
  FUNCTION  0000:c7:00.0
  ID        10de:20b2
  NAME      A100 SXM4 80GB
  DRIVER    nvidia
  NUMA      5
  TYPE      type-PF
  ALIAS     A100-SXM4-80GB
  STATE     blocked: shares
            group 56 with
            NIC 0000:c3:00.0
            (mlx5_core) and
            1 more
└
  FUNCTION  0000:c3:00.0
  ID        15b3:101b
  NAME      MT28908 Family
            [ConnectX-6]
  DRIVER    mlx5_core
  NUMA      5
  STATE     guest-ready
`},
	} {
		t.Run(fmt.Sprint(test.width), func(t *testing.T) {
			var b bytes.Buffer
			u := &UI{Out: bufio.NewWriter(&b), Page: Page{Width: test.width, Unicode: true}}
			u.Table(header, rows)
			if err := u.Out.Flush(); err != nil || b.String() != test.want[1:] {
				t.Errorf("got\n%swant%s%v", b.String(), test.want, err)
			}
			for line := range strings.Lines(b.String()) {
				if length(line) > test.width+1 {
					t.Errorf("%d characters: %s", length(line), line)
				}
			}
		})
	}
}

func TestUnbroken(t *testing.T) {
	for _, test := range []struct {
		text string
		want []string
	}{
		{"", nil},
		{"reboot without it", []string{"reboot", "without", "it"}},
		{"run 'gpustack host prepare --dry-run' for details", []string{"run", "'gpustack host prepare --dry-run'", "for", "details"}},
		{"in the firmware's setup, or GRUB's", []string{"in", "the", "firmware's", "setup,", "or", "GRUB's"}},
		{"an ' alone", []string{"an", "'", "alone"}},
	} {
		if got := unbroken(test.text); !slices.Equal(got, test.want) {
			t.Errorf("%q: got %q, want %q", test.text, got, test.want)
		}
	}
}

// TestCommandsAreNotBroken: a command of a text is one word wherever the text is printed, whatever
// its arguments are, and the mark that keeps it so is printed nowhere.
func TestCommandsAreNotBroken(t *testing.T) {
	const odd = "/srv/a\u2800b c"
	command := host.NewCommand("nova check").Flag("conf", odd).Arg("a-file")
	text := host.Textf("see %s and then restart what it names in %s", command, odd)
	hinted := host.WithHint(errors.New("no file "+odd), text)
	var data, messages bytes.Buffer
	u := &UI{Out: bufio.NewWriter(&data), Talk: &messages, Page: Page{Width: 30}, TalkPage: Page{Width: 30}}
	u.Printf("the next is %s\n", u.Command(command))
	u.Table([]string{"A", "SEEN"}, [][]string{{"b", u.Text(text)}, {"c", Elsewhere(text)}})
	u.Note("done: '%s' undoes it, later or now", u.Command(command))
	u.Fail(hinted)
	hosttest.NoError(t, u.Out.Flush())
	const wantData = `the next is
  gpustack nova check --conf '/srv/a?b c' a-file
A  SEEN
b  see
   gpustack nova check --conf '/srv/a?b c' a-file
   and then restart what it
   names in /srv/a b c
c  see
   gpustack nova check --conf '/srv/a?b c' a-file
   and then restart what it
   names in /srv/a b c
`
	const wantMessages = `gpustack: done:
  'gpustack nova check --conf '/srv/a?b c' a-file'
  undoes it, later or now
gpustack: error: no file
  /srv/a b c
gpustack: hint: see
  gpustack nova check --conf '/srv/a?b c' a-file
  and then restart what it
  names in /srv/a b c
`
	hosttest.EqualIn(t, "data", wantData, data.String())
	hosttest.EqualIn(t, "messages", wantMessages, messages.String())
	const wantPlain = "see gpustack nova check --conf '" + odd + "' a-file and then restart what it names in " + odd
	hosttest.EqualIn(t, "in a document", wantPlain, Plain(u, text))
}

func TestHelpFits(t *testing.T) {
	var b bytes.Buffer
	u := &UI{Out: bufio.NewWriter(&b), Page: Page{Width: 40}}
	u.Help("OPTIONS\n  -y, --yes  apply the plan without a question\n  --all      list all\n\n  a  b\n")
	const want = "OPTIONS\n  -y, --yes  apply the plan without a\n             question\n  --all      list all\n\n  a  b\n"
	if err := u.Out.Flush(); err != nil || b.String() != want {
		t.Errorf("got\n%swant\n%s%v", b.String(), want, err)
	}
}
