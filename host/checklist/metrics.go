package checklist

import (
	"gpustack/host"
	"gpustack/host/metrics"
)

var (
	checkStatus = metrics.Family{Name: "gpustack_check_status", Type: metrics.Gauge,
		Help: "The status of a check that has not passed; always 1.", Labels: []string{"command", "check", "status"}}
	checkCount = metrics.Family{Name: "gpustack_checks", Type: metrics.Gauge,
		Help: "Number of checks with a status.", Labels: []string{"command", "status"}}
	verdictOf = metrics.Family{Name: "gpustack_verdict", Type: metrics.Gauge,
		Help: "The verdict of a command that checks: 1 for its verdict, 0 for the other ones.", Labels: []string{"command", "verdict"}}
	rebootPending = metrics.Family{Name: "gpustack_reboot_pending", Type: metrics.Gauge,
		Help: "Whether what a command checks takes effect only at the next boot.", Labels: []string{"command"}}
)

// Metrics returns the samples of the results of a command: of each check that has not passed, of the
// numbers of checks by status, of the verdict, and of whether a reboot is required, unless that is
// unknown.
func Metrics(command string, findings []host.Finding, verdict Verdict, reboot host.Bool) (samples []metrics.Sample) {
	count := map[host.Status]int{}
	for _, r := range Results(findings) {
		if count[r.Status]++; r.Status != host.Pass {
			samples = append(samples, checkStatus.Of(1, command, r.Check, string(r.Status)))
		}
	}
	for _, s := range statuses {
		samples = append(samples, checkCount.Of(float64(count[s]), command, string(s)))
	}
	samples = append(samples, metrics.Set(verdictOf, Verdicts(), verdict, command)...)
	if reboot.Known() {
		samples = append(samples, rebootPending.OfBool(reboot == host.Yes, command))
	}
	return samples
}
