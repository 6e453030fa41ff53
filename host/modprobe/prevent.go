package modprobe

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"gpustack/host"
)

// CmdlineFile has the arguments of the running kernel (proc(5)).
const CmdlineFile = "/proc/cmdline"

// Kernel arguments with a list of modules. kmod reads modprobe.blacklist as it reads blacklist
// lines (modprobe.d(5), kmod's libkmod-config.c); with module_blacklist the kernel itself refuses
// modules (Linux, Documentation/admin-guide/kernel-parameters.txt).
const (
	blacklistArgument       = "modprobe.blacklist"
	moduleBlacklistArgument = "module_blacklist"
)

// ReadPreventing returns what keeps modules from being loaded at boot: lines of modprobe's
// configuration and arguments of the running kernel, which are lines without a number.
func ReadPreventing(root host.Root, modules ...string) ([]Line, error) {
	conf, err := ReadConf(root)
	if err != nil {
		return nil, err
	}
	data, err := root.ReadFile(CmdlineFile)
	if err != nil && !host.IsAbsent(err) {
		return nil, err
	}
	return Preventing(conf, string(data), modules...), nil
}

// Preventing returns what of modprobe's configuration and of a kernel command line keeps modules
// from being loaded at boot. Arguments are lines without a number.
func Preventing(conf Conf, cmdline string, modules ...string) (lines []Line) {
	return host.Filter(append(slices.Clone(conf), parseArguments(cmdline)...), func(line Line) bool {
		return line.prevents() && slices.ContainsFunc(modules, func(m string) bool { return Normal(m) == line.Module })
	})
}

// parseArguments returns a line for each module that kernel arguments name in a blacklist. Quotes
// may stand around an argument or its value (Linux, lib/cmdline.c, next_arg).
func parseArguments(cmdline string) (lines []Line) {
	for _, argument := range strings.Fields(cmdline) {
		name, list, _ := strings.Cut(strings.Trim(argument, `"`), "=")
		if name != blacklistArgument && name != moduleBlacklistArgument {
			continue
		}
		for module := range strings.SplitSeq(strings.Trim(list, `"`), ",") {
			lines = append(lines, Line{File: CmdlineFile, Command: name, Module: Normal(module)})
		}
	}
	return lines
}

// prevents reports whether a line keeps its module from being loaded at boot: a blacklist, or
// install with a program that does nothing (modprobe.d(5)).
func (l Line) prevents() bool {
	if l.Command == "install" && len(l.Rest) > 0 {
		program := path.Base(l.Rest[0])
		return program == "false" || program == "true"
	}
	return l.Command == "blacklist" || l.IsArgument()
}

// StopsNames reports whether a line that keeps a module from being loaded at boot applies to its name,
// too, by which gpustack's scripts load drivers for guests: a blacklist applies to aliases only
// (modprobe(8), -b; modprobe.d(5)).
func (l Line) StopsNames() bool {
	return l.Command != "blacklist" && l.Command != blacklistArgument
}

// IsArgument reports whether a line is an argument of the kernel.
func (l Line) IsArgument() bool {
	return l.File == CmdlineFile
}

// String returns a line's place and what it says of its module.
func (l Line) String() string {
	if l.IsArgument() {
		return fmt.Sprintf("%s: %s=%s", l.File, l.Command, l.Module)
	}
	return fmt.Sprintf("%s:%d: %s %s", l.File, l.Number, l.Command, l.Module)
}
