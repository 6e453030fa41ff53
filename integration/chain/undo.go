package chain

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/go-cmp/cmp"

	"gpustack/integration/vm/agent"
)

// Undo undoes all that gpustack did in the machine, the latest entry of its journal first, reboots
// it, and returns an error unless it boots as it did before host prepare, and nova.conf is as it
// was before nova configure. No guest may have a GPU of the machine.
func (m *Machine) Undo(ctx context.Context, before State) error {
	if _, err := m.Run(ctx, "systemctl", "--quiet", "disable", "--now", "nova-compute.service"); err != nil {
		return err
	}
	const most = 20 // entries, which is more than any test makes
	for entry := 0; ; entry++ {
		argv := []string{"gpustack", "undo", "--yes"}
		reply, err := m.Ask(ctx, agent.Request{Argv: argv})
		if err == nil && reply.Status == 1 && strings.Contains(reply.Stderr, "nothing to undo") {
			break
		}
		if _, err := outcome(argv, reply, err); err != nil {
			return err
		}
		if entry == most {
			return fmt.Errorf("%s: not all is undone after %d entries", m.Host.Name, most)
		}
	}
	if now, err := m.digest(ctx, novaConf); err != nil {
		return err
	} else if m.siteConf != "" && now != m.siteConf {
		return fmt.Errorf("%s: %s is not as the site left it", m.Host.Name, novaConf)
	}
	if err := m.Reboot(ctx, "systemctl", "reboot"); err != nil {
		return err
	}
	after, err := m.State(ctx)
	if err != nil {
		return err
	}
	if diff := cmp.Diff(before, after); diff != "" {
		return errors.New(m.Host.Name + ": differs from before host prepare (-before +now):\n" + diff)
	}
	return nil
}
