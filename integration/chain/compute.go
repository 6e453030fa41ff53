package chain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"gpustack/integration/nova"
	"gpustack/integration/service"
)

// novaConf is where Debian has it.
const novaConf = "/etc/nova/nova.conf"

// Inventory is the file of the machine that has its inventory, once Configure has written it: nova
// configure gets it on controllers too.
const Inventory = "/root/inventory.json"

// EmulateGuests has Nova run its guests by emulation, as a site does whose processors have no VMX,
// such as the one that is emulated here. host prepare asks for no KVM then.
func (m *Machine) EmulateGuests(ctx context.Context) error {
	_, err := m.Run(ctx, "sed", "-i", "s/^virt_type=kvm$/virt_type=qemu/", "/etc/nova/nova-compute.conf")
	return err
}

// Configure makes the machine a compute node of a site, and gpustack adds the PCI options for the
// machine's own inventory to its nova.conf.
func (m *Machine) Configure(ctx context.Context, lab *nova.Lab) error {
	if err := m.Join(ctx, lab); err != nil {
		return err
	}
	if _, err := m.Run(ctx, "sh", "-euc", `gpustack host scan -o json >"$1"`, "sh", Inventory); err != nil {
		return err
	}
	_, err := m.Run(ctx, "gpustack", "nova", "configure", "--role", "compute", "--inventory", Inventory, "--yes")
	return err
}

// Join makes the machine a compute node of a site: Debian's nova.conf gets what the site sets.
func (m *Machine) Join(ctx context.Context, lab *nova.Lab) (err error) {
	settings := site(lab, m.Host.MyIP)
	sections := headers(settings)
	found, err := m.Run(ctx, append([]string{"grep", "-xF", "-e", strings.Join(sections, "\n")}, novaConf)...)
	if err != nil {
		return err
	}
	if lines := strings.Fields(found); len(lines) != len(sections) {
		return fmt.Errorf("%s has the sections %q of %q", novaConf, lines, sections)
	}
	if _, err := m.Run(ctx, "sed", "-i", "-e", script(settings), novaConf); err != nil {
		return err
	}
	m.siteConf, err = m.digest(ctx, novaConf)
	return err
}

// digest identifies the contents of a file of the machine.
func (m *Machine) digest(ctx context.Context, name string) (string, error) {
	out, err := m.Run(ctx, "sha256sum", name)
	digest, _, _ := strings.Cut(out, " ")
	return digest, err
}

// StartCompute starts nova-compute, now and at each boot, and returns when it serves: it has told
// systemd so, and the host has rows of pci_devices for these addresses.
func (m *Machine) StartCompute(ctx context.Context, lab *nova.Lab, offered []string) error {
	if _, err := m.Run(ctx, "systemctl", "--quiet", "enable", "--now", "nova-compute.service"); err != nil {
		return m.computeFailure(ctx, err)
	}
	err := service.Wait(ctx, func(ctx context.Context) (again bool, err error) {
		addresses, err := m.rows(ctx, lab)
		if err != nil {
			return false, err
		}
		if !slices.Equal(addresses, offered) {
			err = fmt.Errorf("%s has rows of pci_devices for %q", m.Host.Name, addresses)
		}
		return true, err
	})
	if err != nil {
		return m.computeFailure(context.WithoutCancel(ctx), err)
	}
	return nil
}

// rows returns the addresses in the host's rows of pci_devices, which nova-compute has made from
// libvirt's node devices.
func (m *Machine) rows(ctx context.Context, lab *nova.Lab) (addresses []string, err error) {
	rows, err := lab.Database.Query(ctx, fmt.Sprintf("SELECT p.address FROM nova_cell1.pci_devices p JOIN nova_cell1.compute_nodes c ON c.id = p.compute_node_id"+
		" WHERE p.deleted = 0 AND c.deleted = 0 AND c.host = '%s' ORDER BY p.address", m.Host.Name))
	for _, row := range rows {
		addresses = append(addresses, row[0])
	}
	return addresses, err
}

// computeFailure is an error with the end of nova-compute's log.
func (m *Machine) computeFailure(ctx context.Context, err error) error {
	log, logErr := m.Run(ctx, "sh", "-c", "tail -n 40 /var/log/nova/nova-compute.log; journalctl --merge -u nova-compute -n 20 --no-pager")
	return errors.Join(fmt.Errorf("%w\nnova-compute:\n%s", err, log), logErr)
}

// LetIn has a user nova of another compute node log in here by ssh, with keys, as resizing guests
// needs (Nova's documentation, "Configure SSH between compute nodes").
func (m *Machine) LetIn(ctx context.Context, other *Machine) error {
	// A key that is there stays, so that both directions can be opened one after the other.
	key, err := other.Run(ctx, "su", "nova", "-c", `mkdir -p -m 700 ~/.ssh && cd ~/.ssh && { [ -e id_ed25519 ] || ssh-keygen -q -t ed25519 -N "" -f id_ed25519; } && cat id_ed25519.pub`)
	if err != nil {
		return err
	}
	if _, err := m.Run(ctx, "su", "nova", "-c", `mkdir -p -m 700 ~/.ssh && cd ~/.ssh && printf %s "$0" >>authorized_keys && chmod 600 authorized_keys`,
		key); err != nil {
		return err
	}
	host, err := m.Run(ctx, "cat", "/etc/ssh/ssh_host_ed25519_key.pub")
	if err != nil {
		return err
	}
	_, err = other.Run(ctx, "su", "nova", "-c", `printf "%s %s" "$0" "$1" >>~/.ssh/known_hosts`, m.Host.MyIP, host)
	return err
}
