package containercheck

import (
	"fmt"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/nvidia"
	"gpustack/host/pci"
)

// gpus checks that the GPUs which are not for guests are bound to NVIDIA's driver; it shows MIG.
func (v view) gpus() []host.Finding {
	if why := v.noDriver(); why != nil {
		return why
	}
	var findings []host.Finding
	bound, others := 0, []*pci.Device{}
	for _, d := range v.cards {
		driver := d.DriverName()
		file := "/sys/bus/pci/devices/" + d.Address.String() + "/driver"
		switch {
		case d.DriverUnread():
			findings = append(findings, host.Finding{Status: host.NA, File: file, Seen: fmt.Sprintf("the driver of %s cannot be read", d.Address)})
		case nvidia.IsDriver(driver):
			bound++
		case v.isForContainers(d.Address):
			remedy := host.NewCommand("host release").Flag("to", "container").Flag("device", d.Address.String()).Text()
			if driver != "" && pci.LeavesAlone(driver) {
				remedy = host.Textf("%s, once no guest has it: %s shows that", remedy, host.NewCommand("host guests"))
			}
			findings = append(findings, host.Finding{
				Status: host.Fail, File: file, Seen: fmt.Sprintf("%s is recorded for containers and bound to %s instead of nvidia", d.Address, orNone(driver)),
				Effect: "containers that request it do not start, or find no GPU: " + noDevice, Remedy: remedy,
			})
		case v.Contract.Value.At(d.Address) == nil:
			others = append(others, d)
		}
		if on := v.Driver.Value.MIG[d.Address]; on {
			findings = append(findings, host.Finding{
				Status: host.Warn, File: informationFile(d.Address), Seen: "MIG is enabled on " + d.Address.String(),
				Effect: "a container needs a MIG device and its two nodes in /dev/nvidia-caps; with the node of the GPU alone it finds no GPU: " + noDevice,
				Remedy: host.Plain("use the devices that nvidia-ctk cdi generate names, or disable MIG: nvidia-smi -i " + d.Address.String() + " -mig 0"),
			})
		}
	}
	if bound == 0 && !slices.ContainsFunc(findings, func(f host.Finding) bool { return f.Status == host.Fail || f.Status == host.NA }) {
		f := host.Finding{
			Status: host.Fail, Seen: "no GPU is bound to NVIDIA's driver", Effect: "containers find no GPU: " + noDevice,
			Remedy: host.Textf("leave a GPU to the host: %s shows drivers and roles", host.NewCommand("host scan")),
		}
		switch {
		case len(others) > 0:
			f.Seen += ": " + titles(others)
			f.Remedy = bind(others)
		case len(v.cards) > 0:
			f.Remedy = host.Textf("%s, %s returns one to its driver until the next boot", f.Remedy,
				host.NewCommand("host release").Flag("device", v.cards[0].Address.String()))
		}
		return append(findings, f)
	}
	if bound > 0 && len(others) > 0 {
		findings = append(findings, host.Finding{
			Status: host.Warn, Seen: "not bound to NVIDIA's driver, and not for guests: " + titles(others), Effect: "containers do not see these GPUs",
			Remedy: bind(others),
		})
	}
	return checklist.OrPass(findings, "%s bound to NVIDIA's driver", host.Numbered(bound, "GPU"))
}

// titles names GPUs with their drivers.
func titles(gpus []*pci.Device) string {
	all := host.Map(gpus, func(d *pci.Device) string { return fmt.Sprintf("%s (%s)", d.Address, orNone(d.DriverName())) })
	return strings.Join(all, ", ")
}

// bind returns how GPUs get NVIDIA's driver, which is loaded. host release returns those that are
// bound for passthrough; it leaves a driver of the host alone.
func bind(gpus []*pci.Device) (remedy host.Text) {
	add := func(how host.Text) {
		if remedy != nil {
			how = host.Textf("%s; %s", remedy, how)
		}
		remedy = how
	}
	release := host.NewCommand("host release")
	var drivers []string
	for _, d := range gpus {
		driver := d.DriverName()
		switch {
		case driver == "":
			if d.DriverOverride != nil {
				add(host.Textf("echo > /sys/bus/pci/devices/%s/driver_override", d.Address))
			}
			add(host.Textf("echo %s > /sys/bus/pci/drivers/nvidia/bind", d.Address))
		case pci.LeavesAlone(driver):
			release = release.Flag("device", d.Address.String())
		case !slices.Contains(drivers, driver):
			drivers = append(drivers, driver)
		}
	}
	if release.HasFlag("device") {
		add(host.Textf("bind them: %s", release))
	}
	if drivers != nil {
		add(host.Textf("unload %s, or blacklist it and reboot: %s shows which driver has each GPU",
			strings.Join(drivers, " and "), host.NewCommand("host scan")))
	}
	return remedy
}

func informationFile(a pci.Address) string {
	return "/proc/driver/nvidia/gpus/" + a.String() + "/information"
}

func orNone(driver string) string {
	if driver == "" {
		return "no driver"
	}
	return driver
}
