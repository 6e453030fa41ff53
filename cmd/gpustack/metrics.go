package main

import (
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/host/edit"
	"gpustack/host/metrics"
)

// metricsSuffix is the suffix of the names of the files that node_exporter reads (node_exporter,
// collector/textfile.go).
const metricsSuffix = ".prom"

// metricsFlag returns the flag --metrics.
func metricsFlag() cli.Flag {
	return args.Path(&cli.StringFlag{Name: "metrics", Usage: "also write metrics for node_exporter to `FILE`.prom, replacing it"},
		args.PathRules{Kind: args.HandedOver})
}

// parseMetrics returns the value of --metrics, "" if it is not given. A file that node_exporter
// would not read is a fault, so that no metrics are missing unnoticed.
func parseMetrics(c *cli.Context, f *args.Faults) string {
	file := c.String("metrics")
	if c.IsSet("metrics") && !strings.HasSuffix(file, metricsSuffix) {
		f.Add(args.UsageError("--metrics: "+strconv.Quote(file)+" does not end in "+metricsSuffix, "node_exporter reads no other files"))
	}
	return file
}

// writeMetrics writes the metrics of a command that has completed, unless file is "". Every user
// can read the file: node_exporter runs as a user of its own.
func writeMetrics(u *term.UI, file, command string, samples []metrics.Sample) error {
	if file == "" {
		return nil
	}
	text, err := metrics.Encode(append(metrics.OfRun(command, programVersion(), time.Now()), samples...))
	if err != nil {
		return err
	}
	if err := u.Run.Begin(nil); err != nil {
		return err
	}
	defer u.Run.End()
	return edit.Replace(file, text, 0o644)
}
