// Package templates holds the literal texts of the files that gpustack owns, and
// nothing else.
package templates

import _ "embed" // for the texts

// Completion scripts. They ask the binary itself for what can come next, and so
// never fall behind its commands.
var (
	//go:embed completion/bash
	BashCompletion string
	//go:embed completion/zsh
	ZshCompletion string
	//go:embed completion/fish
	FishCompletion string
)

// GrubArguments is what changes kernel arguments, as a file of its own or as the
// end of /etc/default/grub. Dash runs it under "set -e" (grub-mkconfig), so it
// keeps to what POSIX has. Its command substitution leaves no variable behind.
//
//go:embed grub/arguments.cfg
var GrubArguments string

// What modprobe is told, and what is loaded at boot.
var (
	//go:embed modprobe/functions.conf
	ModprobeFunctions string
	//go:embed modprobe/load.conf
	ModulesLoad string
)

// InitramfsTake is the part of a script, the same for each program that makes an
// initramfs, that takes functions before udev starts. It is a template named
// "take" to the scripts below.
//
//go:embed initramfs/take
var InitramfsTake string

// What initramfs-tools is given: a hook that runs when an initramfs is made, and a
// script that runs in it.
var (
	//go:embed initramfs-tools/hook
	InitramfsHook string
	//go:embed initramfs-tools/init-top
	InitramfsScript string
)

// What dracut is given: a module, which is a script that runs when an initramfs is
// made and a hook that runs in it, and configuration.
var (
	//go:embed dracut/module-setup
	DracutModule string
	//go:embed dracut/pre-udev
	DracutHook string
	//go:embed dracut/conf
	DracutConf string
)
