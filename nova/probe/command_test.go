package probe_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"gpustack/host/hosttest"
	"gpustack/nova/probe"
)

// running returns the options of a script that runs a command for at most a minute.
func running(t testing.TB, text string) probe.Options {
	t.Helper()
	c, err := probe.NewCommand(text, time.Minute)
	hosttest.NoError(t, err)
	return probe.Options{Command: c}
}

func TestNewCommand(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"a command", "nvidia-smi -L", ""},
		{"an interpreter", "#!/usr/bin/env python3\nprint(1)\n", ""},
		{"a comment", "# !\ntrue", ""},
		{"empty", "", "the command is empty"},
		{"white space", " \n\t", "the command is empty"},
		{"NUL", "a\x00b", "the command contains a NUL byte"},
		{"no interpreter", "#!\ntrue", `its first line does not name an interpreter: "#!"`},
		{"a relative interpreter", "#!python3\n", `its first line does not name an interpreter: "#!python3"`},
		{"line ends of Windows", "#!/bin/sh\r\ntrue\r\n", `its first line does not name an interpreter: "#!/bin/sh\r"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := ""
			if _, err := probe.NewCommand(test.text, time.Minute); err != nil {
				got = err.Error()
			}
			hosttest.Equal(t, test.want, got)
		})
	}
}

// TestCommandSize: the largest command that is accepted makes user data of at most 65535 bytes in
// base64, and one byte more than that is refused, with the figures.
func TestCommandSize(t *testing.T) {
	fits := func(n int) error {
		_, err := probe.NewCommand(strings.Repeat("x", n), time.Minute)
		return err
	}
	most := 0
	for step := 1 << 16; step > 0; step /= 2 {
		if fits(most+step) == nil {
			most += step
		}
	}
	script := len(probe.Script(nonce, running(t, strings.Repeat("x", most))))
	const nova = 65535 // MAX_USERDATA_SIZE
	if size := base64.StdEncoding.EncodedLen(script); size > nova || size < nova-4 || most < 32<<10 {
		t.Errorf("a command of %d bytes makes %d", most, size)
	}
	want := fmt.Sprintf("the command is too large for user data: a script of %d bytes, 65536 in base64, and Nova accepts 65535", script+1)
	hosttest.Equal(t, want, fmt.Sprint(fits(most+1)))
	// Each byte that is not printable takes five.
	if _, err := probe.NewCommand(strings.Repeat("\xff", most/4), time.Minute); err == nil {
		t.Error("binary text is not counted as it is sent")
	}
}

// TestCommandHash: the hash is that of sha256sum.
func TestCommandHash(t *testing.T) {
	hosttest.Equal(t, "sha256:5309af6a14f25d32f7da6745d9dd7e381a1b68f3b85d68cf3128b002195c153a", running(t, "nvidia-smi -L").Command.Hash())
	hosttest.EqualIn(t, "no command has a hash", "", (probe.Command{}).Hash())
}
