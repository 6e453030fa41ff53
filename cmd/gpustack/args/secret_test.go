package args_test

import (
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/host/hosttest"
)

// TestWithoutSecrets: the journal has the hash of a value that may contain secrets, however it is
// given, and every other word as it was typed.
func TestWithoutSecrets(t *testing.T) {
	app := func() *cli.App {
		return &cli.App{Name: "gpustack", Commands: []*cli.Command{
			{Name: "flavor", Subcommands: []*cli.Command{{Name: "test", ArgsUsage: "FLAVOR", Flags: []cli.Flag{
				args.Secret(&cli.StringFlag{Name: "run"}), &cli.StringFlag{Name: "run-file"}, &cli.DurationFlag{Name: "run-wait"}, args.AnswerFlags()[0],
			}}}},
			{Name: "host", Subcommands: []*cli.Command{{Name: "prepare", Flags: []cli.Flag{args.RootFlag(), &cli.StringFlag{Name: "device"}}}}},
		}}
	}
	for _, test := range []struct{ argv, want string }{
		{"flavor test gpu --run secret --yes", "flavor test gpu --run " + secretHash + " --yes"},
		{"flavor test gpu --run=secret --yes", "flavor test gpu --run=" + secretHash + " --yes"},
		{"flavor test gpu -run secret", "flavor test gpu -run " + secretHash},
		{"--run secret flavor test gpu --run secret", "--run " + secretHash + " flavor test gpu --run " + secretHash},
		{"flavor test gpu --run", "flavor test gpu --run"},
		{"flavor test gpu --run-file secret --run-wait 5m", "flavor test gpu --run-file secret --run-wait 5m"},
		{"flavor test gpu -- --run secret", "flavor test gpu -- --run secret"},
		{"host prepare --device run", "host prepare --device run"},
		{"host prepare --rooot run", "host prepare --rooot run"},
		{"", ""},
	} {
		argv := strings.Fields("gpustack " + test.argv)
		hosttest.Equal(t, test.want, strings.Join(args.Parse(app(), argv).Shown, " "))
		hosttest.EqualIn(t, "the arguments were changed", test.argv, strings.Join(argv[1:], " "))
	}
}
