package nova

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"gpustack/integration/service"
)

// A card is a PCI device as Nova's libvirt driver reports it: _get_pcidev_info in
// nova/virt/libvirt/host.py of Nova 26.
type card struct {
	Address   string `json:"address"`
	VendorID  string `json:"vendor_id"`
	ProductID string `json:"product_id"`
	DevID     string `json:"dev_id"`
	DevType   string `json:"dev_type"`
	Label     string `json:"label"`
	NUMANode  int    `json:"numa_node"`
}

// SetCards says which K4200s a host has from now on, by their PCI addresses.
// nova-compute looks when it starts.
func (l *Lab) SetCards(host string, addresses ...string) error {
	cards := []card{}
	for _, address := range addresses {
		var domain, bus, slot, function int
		if _, err := fmt.Sscanf(address, "%04x:%02x:%02x.%x", &domain, &bus, &slot, &function); err != nil {
			return fmt.Errorf("PCI address %s: %w", address, err)
		}
		cards = append(cards, card{
			Address:   address,
			VendorID:  "10de",
			ProductID: "11b4",
			DevID:     fmt.Sprintf("pci_%04x_%02x_%02x_%x", domain, bus, slot, function),
			DevType:   "type-PCI",
			Label:     "label_10de_11b4",
		})
	}
	text, err := json.Marshal(cards)
	if err != nil {
		return err
	}
	return os.WriteFile(l.host(host, "cards.json"), text, 0o600)
}

// Hold makes the next calls of a method of the host's driver wait, before they do
// anything, until Release. The calls that can be held are listed in
// python/lab/labdriver.py, such as spawn, migrate_disk_and_power_off and
// finish_migration.
func (l *Lab) Hold(host, call string) error {
	if err := os.Remove(l.host(host, "held-"+call)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.WriteFile(l.host(host, "hold-"+call), nil, 0o600)
}

// Release lets calls that are held, or would be, go on.
func (l *Lab) Release(host, call string) error {
	return os.Remove(l.host(host, "hold-"+call))
}

// Fail makes the next calls of a method of the host's driver fail, before they do anything, until
// Heal. The calls are those of Hold.
func (l *Lab) Fail(host, call string) error {
	return os.WriteFile(l.host(host, "fail-"+call), nil, 0o600)
}

// Heal lets calls that would fail succeed.
func (l *Lab) Heal(host, call string) error {
	return os.Remove(l.host(host, "fail-"+call))
}

// WaitHeld waits until a call is held.
func (l *Lab) WaitHeld(ctx context.Context, host, call string) error {
	err := service.Wait(ctx, func(context.Context) (again bool, err error) {
		_, err = os.Stat(l.host(host, "held-"+call))
		return errors.Is(err, fs.ErrNotExist), err
	})
	if err != nil {
		return fmt.Errorf("%s: no %s is held: %w", host, call, err)
	}
	return nil
}

// host is a path in the folder of a compute host.
func (l *Lab) host(host string, elem ...string) string {
	return l.state(append([]string{"hosts", host}, elem...)...)
}
