// Package monitoring tests what is for monitoring with its real parts: metrics, the alerts and the
// dashboard in examples/monitoring, and the units. promtool judges metrics and rules; Prometheus
// scrapes node_exporter, which reads the files that the commands have written; and systemd's
// programs read the units. integration/vm starts a unit.
package monitoring
