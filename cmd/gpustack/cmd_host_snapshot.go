package main

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/host/snapshot"
	"gpustack/operate/node"
)

func newHostSnapshotCommand(u *term.UI) *cli.Command {
	return &cli.Command{
		Name:      "snapshot",
		Usage:     "save what scan, check and prepare read, as one file",
		ArgsUsage: "FILE.txtar|FILE.tar.gz|-",
		Description: `
Scans and checks the machine and plans its preparation, without a change, and stores each
file, link and folder that was read. After 'gpustack host unpack', host scan, host check,
host prepare --dry-run, rdma scan, rdma check, rdma prepare --dry-run, container check and
container prepare --dry-run with --root DIR show the same on any machine. Run as root: much
of the boot configuration can be read by root only.
The text form (.txtar) can be reviewed before it is sent; "-" writes it to standard output.

Of initramfs images, lists of modules and packages, pci.ids, libibverbs, the driver's
libraries, settings of container runtimes and units of services only the parts that are used
are stored, of device nodes their numbers and permissions. Passwords of GRUB, kernel
arguments, mounts and nova.conf are replaced by ***. Hostname and serial numbers are left out
unless --identity is given. Processes and libvirt's domains, which show the guests, are
always left out. GUIDs and GIDs of RDMA adapters are stored, as rdma check
compares them: they may contain MAC and IP addresses. CDI specs are stored as they are.
FILE must not exist.

EXAMPLES
  gpustack host snapshot gpu1.txtar
  gpustack host snapshot gpu1.tar.gz --identity
  ssh root@gpu1 gpustack host snapshot - > gpu1.txtar`,
		Flags: []cli.Flag{
			args.RootFlag(),
			&cli.BoolFlag{Name: "identity", Usage: "also store hostname, machine id and serial numbers"},
		},
		Action: action(u, parseHostSnapshot, runHostSnapshot),
	}
}

type hostSnapshotOptions struct {
	file     string
	identity bool
}

func parseHostSnapshot(c *cli.Context, f *args.Faults) hostSnapshotOptions {
	return hostSnapshotOptions{parseSnapshot(c, f, "FILE")[0], c.Bool("identity")}
}

// parseSnapshot returns the arguments of a command, of which the first one is a snapshot. Its name
// has to show its format.
func parseSnapshot(c *cli.Context, f *args.Faults, names ...string) []string {
	given := f.Arguments(c, names...)
	if file := given[0]; file != "" && file != snapshot.Standard { // a missing argument is already reported
		_, err := snapshot.FormatOf(file)
		f.Add(err)
	}
	return given
}

func runHostSnapshot(ctx context.Context, u *term.UI, o given, opts hostSnapshotOptions) error {
	taken, err := node.TakeSnapshot(ctx, newNode(u, o.root), opts.identity)
	if err != nil {
		return err
	}
	u.Warn(taken.Warnings...)
	if err := u.Run.Begin(nil); err != nil {
		return err
	}
	if opts.file == snapshot.Standard {
		return taken.Tree.Write(u.Out, snapshot.Txtar)
	}
	if err := taken.Tree.WriteFile(opts.file); err != nil {
		return err
	}
	u.Note("stored %d functions in %s: review the file before you send it", taken.Functions, opts.file)
	return nil
}

func newHostUnpackCommand(u *term.UI) *cli.Command {
	return &cli.Command{
		Name:      "unpack",
		Usage:     "unpack a snapshot into a file tree for --root",
		ArgsUsage: "FILE.txtar|FILE.tar.gz|- DIR",
		Description: `
Creates DIR, which must not exist or be empty, and unpacks a snapshot into it. "-" reads a
snapshot in either form from standard input. Writes nothing outside DIR.

EXAMPLES
  gpustack host unpack examples/talk-2xk4200.txtar /tmp/node
  gpustack host scan --root /tmp/node`,
		Action: action(u, parseHostUnpack, runHostUnpack),
	}
}

func parseHostUnpack(c *cli.Context, f *args.Faults) []string {
	return parseSnapshot(c, f, "FILE", "DIR")
}

func runHostUnpack(_ context.Context, u *term.UI, _ given, arguments []string) error {
	file, dir := arguments[0], arguments[1]
	tree, err := snapshot.ReadFile(file, u.In)
	if err != nil {
		return err
	}
	if err := u.Run.Begin(nil); err != nil {
		return err
	}
	if err := tree.Unpack(dir); err != nil {
		return err
	}
	if unread := tree.Unreadable(); len(unread) > 0 {
		u.Warn(fmt.Sprintf("not readable where the snapshot was taken, and so not here: %s, such as /%s", host.Numbered(len(unread), "file"), unread[0]))
	}
	u.Note("unpacked %s into %s", filepath.Base(file), dir)
	return nil
}
