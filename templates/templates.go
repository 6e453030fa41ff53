// Package templates contains the texts of the files that gpustack writes, and nothing else.
//
// A change of a text of host prepare or rdma prepare, of a comment too, makes the next command on a
// prepared machine rewrite the file, and regenerate every initramfs with it.
package templates

import _ "embed" // for the texts

// Completion scripts. They ask the installed binary for completions, so they always match its
// commands.
var (
	//go:embed completion/bash
	BashCompletion string
	//go:embed completion/zsh
	ZshCompletion string
	//go:embed completion/fish
	FishCompletion string
)

// NovaJudge is a program in Python that asks the Nova beside it whether its filters accept hosts
// (nova/explain, Question and Answer).
//
//go:embed nova/judge.py
var NovaJudge string

// GrubArguments changes kernel arguments, as a file of its own or at the end of /etc/default/grub.
// grub-mkconfig runs it with "set -e", on Debian in dash, so it uses only POSIX shell. Its command
// substitution keeps its variables out of the calling shell.
//
//go:embed grub/arguments.cfg
var GrubArguments string

// Configuration of modprobe, and of modules to load at boot.
var (
	//go:embed modprobe/functions.conf
	ModprobeFunctions string
	//go:embed modprobe/load.conf
	ModulesLoad string
)

// InitramfsBind is the part of a script that binds functions before udev starts, common to all
// initramfs generators. The scripts below include it as the template "bind".
//
//go:embed initramfs/bind
var InitramfsBind string

// Files for initramfs-tools: a hook that runs when an initramfs is generated, and a script that
// runs in the initramfs.
var (
	//go:embed initramfs-tools/hook
	InitramfsHook string
	//go:embed initramfs-tools/init-top
	InitramfsScript string
)

// Files for dracut: a module, which consists of a script that runs when an initramfs is generated
// and a hook that runs in the initramfs, and configuration.
var (
	//go:embed dracut/module-setup
	DracutModule string
	//go:embed dracut/pre-udev
	DracutHook string
	//go:embed dracut/conf
	DracutConf string
)

// Probe is the script that gpustack flavor test has a guest run at its first boot, as user data. It
// contains {{nonce}}, {{run}}, which is yes or no, and for a command {{patience}}, its time in
// seconds, {{interpreter}}, the words that run it, and {{command}}, an argument of printf %b.
// Guests run the script in whatever sh they have, so it uses only POSIX shell and programs that
// minimal images have too.
//
//go:embed guest/probe
var Probe string

// Configuration for RDMA adapters: parameters of modules, and modules to load at boot.
var (
	//go:embed rdma/modprobe.conf
	RDMAModprobe string
	//go:embed rdma/load.conf
	RDMAModules string
)

// Unit of the steps of every boot, with {{.}} for its program's path and {{before}} for more units
// to order it before, and the drop-in of multi-user.target that pulls it in.
var (
	//go:embed systemd/gpustack-boot.service
	BootUnit string
	//go:embed systemd/wants.conf
	BootWants string
)

// Memlock is the drop-in of a service whose containers may lock any amount of memory.
//
//go:embed systemd/memlock.conf
var Memlock string

// Refresh is the drop-in of the unit of NVIDIA Container Toolkit that writes specs: it reads which
// GPUs are for containers, as each boot finds them.
//
//go:embed systemd/nvidia-cdi-refresh.conf
var Refresh string
