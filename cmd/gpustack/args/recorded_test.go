package args_test

import (
	"testing"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
)

const secretHash = "sha256:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b" // printf secret | sha256sum

// TestRecorded: the text of an entry has what was given and what it does, in the order of the help.
func TestRecorded(t *testing.T) {
	for _, test := range []struct {
		name string
		argv []string
		want string
	}{
		{"nothing", nil, "host change"},
		{"flags in another order", []string{"--unsafe", "--device", "b", "--device", "a"}, "host change --device b --device a --unsafe"},
		{"flags of the run", []string{"--root", "/mnt", "--yes", "--dry-run", "-o", "json", "--device", "a"}, "host change --device a"},
		{"a flag that is switched off", []string{"--unsafe=false"}, "host change --unsafe=false"},
		{"an argument", []string{"--driver", "vfio-pci", "K4200:2"}, "host change K4200:2 --driver vfio-pci"},
		{"words that a shell reads otherwise", []string{"--device", "a b", "--driver", ""}, "host change --device 'a b' --driver ''"},
		{"a secret", []string{"--run", "secret", "--device", "a"}, "host change --device a --run " + secretHash},
		{"a URL with a password", []string{"--device", "mysql://n:hunter2@h/d"}, "host change --device 'mysql://***@h/d'"},
	} {
		got := ""
		app := &cli.App{Name: "gpustack", Commands: []*cli.Command{{Name: "host", Subcommands: []*cli.Command{{
			Name: "change",
			Flags: append([]cli.Flag{
				args.RootFlag(), args.OutputFlag("table", "json"), &cli.StringSliceFlag{Name: "device"}, &cli.StringFlag{Name: "driver"},
				&cli.BoolFlag{Name: "unsafe"}, &cli.StringFlag{Name: "database"}, args.Secret(&cli.StringFlag{Name: "run"}),
			}, args.PlanFlags()...),
			Action: func(c *cli.Context) error { got = args.Recorded(c); return nil },
		}}}}}
		if err := app.Run(append([]string{"gpustack", "host", "change"}, test.argv...)); err != nil || got != test.want {
			t.Errorf("%s: %q, %v, want %q", test.name, got, err, test.want)
		}
	}
}
