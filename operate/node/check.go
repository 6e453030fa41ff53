package node

import (
	"context"
	"errors"
	"fmt"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/check"
	"gpustack/host/checklist"
	"gpustack/host/container"
	"gpustack/host/container/containercheck"
	"gpustack/host/initramfs"
	"gpustack/host/machine"
	"gpustack/host/metrics"
	"gpustack/host/pci"
	"gpustack/host/steps"
)

// HostChecked is what host check finds of a machine.
type HostChecked struct {
	Machine   machine.Machine
	Verdict   checklist.Verdict
	Findings  []host.Finding
	Reboot    host.Bool    // whether it has to be rebooted
	Plan      host.Command // shows what host prepare would do
	Configure host.Command // offers what is prepared to Nova
	Metrics   []metrics.Sample
	NovaHost  *string // the host's name in Nova, nil if nova.conf cannot be read
}

// CheckHost checks whether a machine is ready for GPUs in guests. journal is a look at its journal.
func CheckHost(ctx context.Context, n Node, journal change.Seen) HostChecked {
	m := observeForCheck(n, journal)
	m.VirtType = ReadVirtType(n.Root)
	var configure host.Command
	m.Nova, configure = judgeOffers(n.Root, m, journal)
	refused := n.RefusedByPrepare(ctx, m, journal)
	findings, verdict := check.Verify(m, refused, steps.Observe(n.Root, m))
	reboot := check.RebootRequired(m)
	samples := append(checklist.Metrics("host check", findings, verdict, reboot), check.Metrics(m)...)
	name, warnings := nameInNova(n.Root, m.Facts.Hostname)
	m.Warnings = append(m.Warnings, warnings...)
	return HostChecked{m, verdict, findings, reboot, PlanCommand(n.Root, m, refused), configure, samples, name}
}

// observeForCheck observes a machine. Of the running machine it remembers what the initramfs images
// contain. In another tree, which may be evidence, it changes nothing.
func observeForCheck(n Node, journal change.Seen) machine.Machine {
	if !n.Root.IsMachine() {
		return machine.ObserveCheck(n.Root, nil, &journal)
	}
	images := initramfs.NewMemory(n.Root, n.Version)
	m := machine.ObserveCheck(n.Root, images, &journal)
	if err := images.Save(); err != nil {
		warning := fmt.Sprintf("the cache of initramfs images is not used: %v", err)
		if remedy := host.HintOf(err).String(); remedy != "" {
			warning += " (" + remedy + ")"
		}
		m.Warnings = append(m.Warnings, warning)
	}
	return m
}

// ContainersChecked is what container check finds of a machine.
type ContainersChecked struct {
	Machine  containercheck.Observed
	Verdict  checklist.Verdict
	Findings []host.Finding
	Warnings []string
}

// CheckContainers checks whether containers of the machine below root can use its devices, and
// images in these folders.
func CheckContainers(root host.Root, images []string) (ContainersChecked, error) {
	devices, warnings, err := pci.Scan(root, pci.Options{})
	if errors.Is(err, pci.ErrNoPCI) { // a tree without sysfs may have specs
		err = nil
	}
	root = root.Once()
	m := containercheck.Observe(root, machine.Saw(machine.DevicesDir, devices, err), Offered(root, devices))
	if m.Images, err = container.ReadImages(images, m.Architecture); err != nil {
		return ContainersChecked{}, err
	}
	findings, verdict, err := containercheck.Verify(m)
	if err != nil {
		return ContainersChecked{}, fmt.Errorf("%s: %w", root.Path("/"), err)
	}
	return ContainersChecked{m, verdict, findings, append(append([]string{}, warnings...), m.Driver.Value.Warnings...)}, nil
}
