package ansible

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"testing"

	"gpustack/host/hosttest"
)

// BenchmarkModule times one task of the collection on many nodes, which are all on this machine:
// the controller's share is in the time of the processor, and so is that of the nodes. The goal is
// 1200 ms for each node.
func BenchmarkModule(b *testing.B) {
	r := newRun(b, 0)
	root := r.newNode(b, "node")
	for _, nodes := range []int{20, 100} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			hosts := map[string]any{}
			for i := range nodes {
				hosts[fmt.Sprintf("gpu%03d", i)] = map[string]any{}
			}
			inventory, err := json.Marshal(map[string]any{"all": map[string]any{"hosts": hosts,
				"vars": map[string]any{"ansible_connection": "local", "ansible_python_interpreter": "/usr/bin/python3"}}})
			hosttest.NoError(b, err)
			playbook, err := json.Marshal([]any{map[string]any{"hosts": "all", "gather_facts": false, "tasks": []task{
				{"name": "plan", "gpustack.nova.prepare": map[string]any{"binary": gpustack, "root": root}}}}})
			hosttest.NoError(b, err)
			args := []string{"--check", "--diff", "--forks", "10", "-i", r.write(b, "inventory.json", string(inventory), 0o644),
				r.write(b, "playbook.json", string(playbook), 0o644)}
			for b.Loop() {
				cmd := exec.Command("ansible-playbook", args...)
				cmd.Dir, cmd.Env = r.dir, r.env
				if out, err := cmd.CombinedOutput(); err != nil {
					b.Fatalf("%v\n%s", err, out)
				}
				used := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
				b.ReportMetric(float64(used.Milliseconds())/float64(nodes), "cpu-ms/node")
			}
		})
	}
}
