package selection

import (
	"slices"

	"gpustack/host"
)

// Command returns the command with this name that selects these functions, with further flags. If
// it selects none, it is host prepare, which alone can return everything that is recorded.
func (o Options) Command(name string, flags ...string) host.Command {
	if o.None {
		name, flags = "host prepare", slices.DeleteFunc(slices.Clone(flags), func(f string) bool { return f == "live" })
	}
	command := host.NewCommand(name)
	add := func(flag string, value ...string) { command = command.Flag(flag, value...) }
	only := "only"
	if name != "host prepare" { // --device of another command is the whole selection
		only = "device"
	}
	for _, x := range o.Only {
		add(only, x.String())
	}
	for _, x := range o.Add {
		add("device", x.String())
	}
	for _, v := range o.Vendors {
		add("vendor", v.String())
	}
	for _, x := range o.Remove {
		add("remove", x.String())
	}
	if o.None {
		add("none")
	}
	if o.NVSwitch != "" {
		add("nvswitch", string(o.NVSwitch))
	}
	for _, a := range o.Allow {
		add("allow", a.String())
	}
	if o.Driver != "" {
		add("driver", o.Driver)
	}
	if o.Unsafe {
		add("allow-unsafe-interrupts")
	}
	if o.TakeOver {
		add("take-over")
	}
	for _, f := range flags {
		add(f)
	}
	return command
}
