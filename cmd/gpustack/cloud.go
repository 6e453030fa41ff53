package main

import (
	"context"
	"time"

	"github.com/urfave/cli/v2"

	"gpustack/nova/cloud"
)

// cloudFlags are those of every command that speaks with a cloud, named as those of
// the openstack command are.
func cloudFlags() []cli.Flag {
	return cloudAndTimeoutFlags("wait `TIME` for each answer, with repetitions where the cloud is busy")
}

// databaseFlags are cloudFlags, for commands that connect to databases too.
func databaseFlags() []cli.Flag {
	return cloudAndTimeoutFlags(timeoutOfDatabases)
}

func cloudAndTimeoutFlags(timeout string) []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "os-cloud", Usage: "the `CLOUD` of clouds.yaml (unless given, OS_CLOUD, or OS_AUTH_URL and what goes with it)"},
		&cli.StringFlag{Name: "os-region-name", Usage: "the cloud's `REGION`"},
		&cli.StringFlag{Name: "os-cacert", Usage: "trust the certificates of `FILE`"},
		&cli.BoolFlag{Name: "insecure", Usage: "believe any certificate"},
		answerTimeoutFlag(timeout),
		&cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}, Usage: "tell of each request"},
	}
}

// timeoutOfDatabases is the help of --timeout where databases answer too.
const timeoutOfDatabases = "wait `TIME` for each answer of the cloud and the first one of each database"

func answerTimeoutFlag(usage string) cli.Flag {
	return &cli.DurationFlag{Name: "timeout", Value: time.Minute, Usage: usage}
}

// cloudHelp is for the description of a command that has these flags.
const cloudHelp = `The cloud is one of clouds.yaml, with secure.yaml, in the usual places (--os-cloud or
OS_CLOUD), or what an openrc file sets (OS_AUTH_URL and so on).`

type cloudOptions struct {
	cloud.Options
	verbose bool
}

func parseCloud(c *cli.Context, f *faults) cloudOptions {
	return cloudOptions{cloud.Options{
		Cloud: c.String("os-cloud"), Region: c.String("os-region-name"), CACert: c.String("os-cacert"),
		Insecure: c.Bool("insecure"), Timeout: parseTimeout(c, f),
	}, c.Bool("verbose")}
}

// signIn signs in.
func (u *ui) signIn(ctx context.Context, opts cloudOptions) (*cloud.Cloud, error) {
	o := opts.Options
	o.Warn = func(warning string) { u.warn(warning) }
	if opts.verbose {
		o.Trace = func(line string) { u.note("%s", printable(line)) }
	}
	return cloud.Connect(ctx, o)
}

// connect signs in, and finds Nova.
func (u *ui) connect(ctx context.Context, opts cloudOptions) (*cloud.Cloud, *cloud.Compute, error) {
	c, err := u.signIn(ctx, opts)
	if err != nil {
		return nil, nil, err
	}
	compute, err := c.Compute(ctx)
	return c, compute, err
}
