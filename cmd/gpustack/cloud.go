package main

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/host/change"
	"gpustack/nova/cloud"
)

// The help of --timeout of commands that connect to a cloud, and to databases too.
const (
	timeoutOfCloud     = "wait `TIME` for each answer, including retries"
	timeoutOfDatabases = "wait `TIME` for each answer of the cloud and the first answer of each database"
)

// cloudFlags returns the flags of every command that connects to a cloud, named as in the openstack
// command. timeout is the help of --timeout.
func cloudFlags(timeout string) []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "os-cloud", Usage: "use `CLOUD` of clouds.yaml (default: OS_CLOUD, or OS_AUTH_URL and the other OS_ variables)"},
		&cli.StringFlag{Name: "os-region-name", Usage: "use `REGION` of the cloud"},
		args.Path(&cli.StringFlag{Name: "os-cacert", Usage: "trust the certificates in `FILE`"}, args.PathRules{Kind: args.HandedOver}),
		&cli.BoolFlag{Name: "insecure", Usage: "skip TLS certificate verification"},
		answerTimeoutFlag(timeout),
		&cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}, Usage: "log each API request"},
	}
}

func answerTimeoutFlag(usage string) cli.Flag {
	return &cli.DurationFlag{Name: "timeout", Value: time.Minute, Usage: usage}
}

// cloudHelp is part of the description of each command with cloudFlags.
const cloudHelp = `The cloud is selected by --os-cloud or OS_CLOUD from clouds.yaml and secure.yaml in the
usual folders, or by the OS_ variables of an openrc file (OS_AUTH_URL and others).`

// parseCloud reads the flags of a cloud. Its warnings are printed, and with --verbose its requests.
func parseCloud(c *cli.Context, f *args.Faults) cloud.Options {
	u := uiOf(c)
	o := cloud.Options{
		Cloud: c.String("os-cloud"), Region: c.String("os-region-name"), CACert: c.String("os-cacert"),
		Insecure: c.Bool("insecure"), Timeout: f.Positive(c, "timeout"), Warn: func(warning string) { u.Warn(warning) },
	}
	if c.Bool("verbose") {
		o.Trace = func(line string) { u.Note("%s", line) }
	}
	return o
}

// recordedCloud returns what the journal keeps of the cloud, nil if the undo has to be told.
func recordedCloud(c cloud.Options) *change.Cloud {
	name := cmp.Or(c.Cloud, os.Getenv("OS_CLOUD"))
	if name == "" && c.Region == "" && c.CACert == "" && !c.Insecure {
		return nil
	}
	region, cacert := c.Region, c.CACert
	if name != "" { // variables that count beside clouds.yaml
		region, cacert = cmp.Or(region, os.Getenv("OS_REGION_NAME")), cmp.Or(cacert, os.Getenv("OS_CACERT"))
	}
	if absolute, err := filepath.Abs(cacert); err == nil && cacert != "" {
		cacert = absolute
	}
	return &change.Cloud{Name: name, Region: region, CACert: cacert, Insecure: c.Insecure}
}

// orRecorded returns the options, and for those that are not given those of the entry that is
// undone, unless the options choose another cloud.
func orRecorded(c cloud.Options, origin change.Origin) cloud.Options {
	if origin.Cloud == nil || c.Cloud != "" {
		return c
	}
	is := origin.Cloud
	c.Cloud, c.Region, c.CACert, c.Insecure = is.Name, cmp.Or(c.Region, is.Region), cmp.Or(c.CACert, is.CACert), c.Insecure || is.Insecure
	return c
}

// connect authenticates and finds Nova.
func connect(ctx context.Context, o cloud.Options) (*cloud.Compute, error) {
	c, err := cloud.Connect(ctx, o)
	if err != nil {
		return nil, err
	}
	return c.Compute(ctx)
}
