package main

import (
	"strings"
	"testing"

	"gpustack/host/hosttest"

	"github.com/urfave/cli/v2"
)

// TestRepeated: the command that a dry run of repair-migration ends with reads the same nova.conf, asks
// the same cloud and selects the same rows as that run. URLs may have passwords, and are not printed.
func TestRepeated(t *testing.T) {
	t.Parallel()
	same := func(options string) [2]string { return [2]string{options, options} }
	for _, test := range [][2]string{
		same(""),
		same("--conf /etc/kolla/nova-api/nova.conf"),
		same("--cell cell1 --host gpu1 --instance u1 --device 0000:84:00.0"),
		same("--os-cloud prod --os-region-name r1 --os-cacert /etc/ca.pem --insecure --timeout 5m0s"),
		same("--claim --inventory i.json --host-is-off gpu2 --guests gpu1.json"),
		{"--database mysql://nova:secret@db/nova --api-database mysql://nova:secret@db/api", "--api-database URL --database URL"},
		{"--all --busy-after 9h0m0s --metrics x.prom --output table -v -n", ""},
	} {
		var got string
		app := &cli.App{Flags: repairMigrationFlags(), Action: func(c *cli.Context) error {
			got = repeated(c).String()
			return nil
		}}
		hosttest.NoError(t, app.Run(append([]string{"x"}, strings.Fields(test[0])...)))
		hosttest.EqualIn(t, test[0], strings.TrimSpace("gpustack repair-migration "+test[1]), got)
	}
}
