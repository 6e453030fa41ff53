package checklist

import (
	"gpustack/host"
	"gpustack/host/metrics"
)

var (
	checkStatus = metrics.Family{Name: "gpustack_check_status", Type: metrics.Gauge,
		Help: "The result of a check: 1 for its status, 0 for the other ones.", Labels: []string{"command", "check", "status"}}
	verdictOf = metrics.Family{Name: "gpustack_verdict", Type: metrics.Gauge,
		Help: "The verdict of a command that checks: 1 for its verdict, 0 for the other ones.", Labels: []string{"command", "verdict"}}
	rebootPending = metrics.Family{Name: "gpustack_reboot_pending", Type: metrics.Gauge,
		Help: "Whether what a command checks takes effect only at the next boot.", Labels: []string{"command"}}
)

// Metrics returns the samples of the results of a command: of each check, of the verdict, and of
// whether a reboot is required, unless that is unknown.
func Metrics(command string, findings []host.Finding, verdict Verdict, reboot host.Bool) (samples []metrics.Sample) {
	for _, r := range Results(findings) {
		samples = append(samples, metrics.Set(checkStatus, statuses, r.Status, command, r.Check)...)
	}
	samples = append(samples, metrics.Set(verdictOf, Verdicts(), verdict, command)...)
	if reboot.Known() {
		samples = append(samples, rebootPending.OfBool(reboot == host.Yes, command))
	}
	return samples
}
