package ansible

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gpustack/host/hosttest"
)

// kill starts a playbook, waits until the program of a server has stopped at its fault, and kills
// the playbook with all that it has started, as a controller that loses its power does.
func (f *roleFleet) kill(s *server, name string, args ...string) {
	f.t.Helper()
	cmd := f.playbook(name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	hosttest.NoError(f.t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	file := s.dir + "/stopped"
	for deadline := time.After(20 * time.Minute); ; {
		text, _ := os.ReadFile(file)
		if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			syscall.Kill(pid, syscall.SIGKILL)
			<-ended
			hosttest.NoError(f.t, os.Remove(file))
			return
		}
		select {
		case err := <-ended:
			f.t.Fatalf("%s has ended before it was killed: %v", name, err)
		case <-deadline:
			syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			f.t.Fatalf("%s does not come to the fault", name)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// TestRolloutStops: a failure ends the wave where it is, a controller that is killed leaves every
// server disabled with its step, and the next run goes on to the end.
func TestRolloutStops(t *testing.T) {
	t.Parallel() // Ansible waits for one program after the other
	f := newRoleFleet(t, "first", "second")
	first, second := f.servers[0], f.servers[1]
	const rollout = "gpustack.nova.rollout"
	are := func(when, wantFirst, wantSecond string) {
		t.Helper()
		if first.reason() != wantFirst || second.reason() != wantSecond {
			t.Fatalf("%s: %q and %q, want %q and %q", when, first.reason(), second.reason(), wantFirst, wantSecond)
		}
	}

	// What can be refused is refused before the first of them is disabled, and in check mode too.
	f.cloud.AddServer(f.guestOn("second", "ACTIVE", 1, "K4200:1"))
	for _, args := range [][]string{{"--check"}, nil} {
		out, recap := f.play(rollout, args...)
		second.log(t, "controller")
		are("with a guest", "", "")
		if recap["second"].failed != "1" || !strings.Contains(out, "(train, running, owner u1)") || first.verdict(t) != "not prepared" {
			t.Errorf("%q: %+v\n%s", args, recap, out)
		}
	}
	f.cloud.Instances = nil

	// One that cannot be reached ends the wave, too.
	maps.Copy(f.inventory["first"], map[string]any{"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1})
	_, recap := f.play(rollout)
	are("without the first", "", "")
	if got := strings.Join(second.log(t, "controller"), "|"); recap["first"].unreachable != "1" || strings.Contains(got, "drain") {
		t.Errorf("%+v, %s", recap, got)
	}
	f.inventory["first"]["ansible_connection"] = "local"

	// host prepare makes its change, and the answer is lost. Both are disabled before the first wait.
	f.fault("node", "first", "late", 1, "* host prepare *--yes *")
	f.play(rollout)
	are("after a failure", "rollout: prepare", "rollout: prepare")
	hosttest.EqualIn(t, "first", "pending reboot", first.verdict(t))
	order, err := os.ReadFile(f.dir + "/order")
	if last, wait := strings.LastIndex(string(order), " --wait=0s "), strings.Index(string(order), " --wait=1s "); err != nil || last < 0 || wait < last {
		t.Errorf("%v: %s", err, order)
	}

	// Killed after the boot.
	f.fault("node", "second", "stop", 2, "* host check *")
	f.kill(second, rollout)
	are("after a kill", "rollout: host check", "rollout: host check")

	_, recap = f.play(rollout)
	if recap["first"].failed != "0" || recap["second"].failed != "0" {
		t.Errorf("%+v", recap)
	}
	are("in the end", "", "")
	for _, s := range f.servers {
		if boots := strings.Count(strings.Join(s.log(t, "node"), "|"), "booted"); s.verdict(t) != "ready" || boots != 1 {
			t.Errorf("%s: %s, booted %d times", s.name, s.verdict(t), boots)
		}
	}
}

// stop is the place of a command in a whole run: whose program it is, and its number from 1.
type stop struct {
	whose string
	nth   int
	words string
}

func (s stop) server() string { return fmt.Sprintf("%s%d", s.whose, s.nth) }

// upgrading lets all servers be upgraded, and tested in the end.
func (f *roleFleet) upgrading() {
	for _, variables := range f.inventory {
		maps.Copy(variables, map[string]any{"gpustack_node_upgrade": true, "gpustack_node_flavor": "gpu.k4200.2", "gpustack_node_image": "debian-12"})
	}
}

// TestRoleSteps lets each command of a whole run fail, before and after its work, and be the last
// one of a controller that is killed. Nothing is enabled that is not ready, what is disabled has
// the step as its reason, and the next run goes on to the end. It takes long: make test has some of
// these cases in TestRolloutStops, make test-full has this.
func TestRoleSteps(t *testing.T) {
	f := newRoleFleet(t, "whole")
	f.upgrading()
	f.play(f.table())
	var stops []stop
	var names []string
	for _, whose := range []string{"node", "controller"} {
		for _, words := range f.servers[0].log(t, whose) {
			if words != "booted" {
				stops = append(stops, stop{whose, len(stops) + 1, words})
			}
		}
		if whose == "node" {
			continue
		}
		nodes := slices.IndexFunc(stops, func(s stop) bool { return s.whose == whose })
		for i := range stops[nodes:] {
			stops[nodes+i].nth = i + 1
		}
	}
	if len(stops) < 20 {
		t.Fatalf("a whole run has these commands: %v", stops)
	}
	for _, s := range stops {
		names = append(names, s.server())
	}
	for _, how := range []string{"fail", "late", "stop"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			f := newRoleFleet(t, names...)
			f.upgrading()
			for i, s := range stops {
				f.fault(s.whose, s.server(), how, s.nth, "*")
				if how == "stop" {
					f.kill(f.servers[i], f.table(), "--limit", s.server())
				}
			}
			if how != "stop" {
				f.play(f.table())
			}
			for i, s := range f.servers {
				disabled := strings.HasPrefix(s.reason(), "rollout: ")
				verdict := s.verdict(t)
				if !disabled && (s.node.Disabled != "" || verdict != "not prepared" && verdict != "ready") {
					t.Errorf("at %q: %q, %s", stops[i].words, s.node.Disabled, verdict)
				}
			}
			out, recap := f.play(f.table())
			for i, s := range f.servers {
				if s.node.Disabled != "" || s.verdict(t) != "ready" || recap[s.name].failed+recap[s.name].unreachable != "00" {
					t.Errorf("at %q, continued: %q, %s, %+v", stops[i].words, s.node.Disabled, s.verdict(t), recap[s.name])
				}
			}
			if t.Failed() {
				t.Log(out)
			}
		})
	}
}
