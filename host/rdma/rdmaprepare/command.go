package rdmaprepare

import (
	"strconv"

	"gpustack/host"
	"gpustack/host/pci"
)

// Command returns rdma prepare with these options, in the order of its help, so that a
// hint can repeat it.
func (o Options) Command(ifPresent bool) host.Command {
	command := host.NewCommand("rdma prepare")
	flag := func(given bool, name string, value ...string) {
		if given {
			command = command.Flag(name, value...)
		}
	}
	each := func(name string, addresses []pci.Address) {
		for _, a := range addresses {
			flag(true, name, a.String())
		}
	}
	each("device", o.Add)
	flag(o.VFs > 0, "vfs", strconv.Itoa(o.VFs))
	flag(o.Whole, "whole")
	flag(o.Use != "", "for", string(o.Use))
	if o.GUIDBase != nil {
		flag(true, "guid-base", o.GUIDBase.String())
	}
	flag(o.Netns != "", "netns", string(o.Netns))
	each("remove", o.Remove)
	flag(o.None, "none")
	flag(ifPresent, "if-present")
	each("allow", o.Allow)
	return command
}
