package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
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
		Usage:     "save the files that host scan, check and prepare read, for use on another machine",
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
unless --identity is given. Processes, the ssh session, and libvirt's domains, which show the
guests, are always left out. GUIDs and GIDs of RDMA adapters are stored, as rdma check
compares them: they may contain MAC and IP addresses. CDI specs are stored as they are. Of
scripts and units that may set VFs only those that do are stored.
FILE must not exist.

EXAMPLES
  gpustack host snapshot gpu1.txtar
  gpustack host snapshot gpu1.tar.gz --identity
  ssh root@gpu1 gpustack host snapshot - > gpu1.txtar

EXIT STATUS
  0  FILE was written
  1  error: no file was written`,
		Flags: []cli.Flag{
			args.RootFlag(),
			&cli.BoolFlag{Name: "identity", Usage: "also store hostname, machine id and serial numbers"},
		},
		Action: action(u, parseHostSnapshot, runHostSnapshot),
	}
}

type hostSnapshotOptions struct {
	root     string
	file     string
	format   snapshot.Format
	identity bool
}

func parseHostSnapshot(c *cli.Context, f *args.Faults) hostSnapshotOptions {
	file := f.Arguments(c, "FILE")[0]
	return hostSnapshotOptions{
		root:     c.String("root"),
		file:     file,
		format:   snapshotFormat(f, file),
		identity: c.Bool("identity"),
	}
}

// standard is the argument for standard output, or standard input.
const standard = "-"

// snapshotFormat returns the format that a file's suffix stands for, if it has one.
func snapshotFormat(f *args.Faults, file string) snapshot.Format {
	if file == "" || file == standard {
		return snapshot.Txtar // a missing argument is already reported
	}
	format, err := snapshot.FormatOf(file)
	if err != nil {
		f.Add(args.UsageError(err.Error(), "name the file so that it ends in one of them"))
	}
	return format
}

func runHostSnapshot(ctx context.Context, u *term.UI, opts hostSnapshotOptions) error {
	root, err := host.NewRoot(opts.root)
	if err != nil {
		return err
	}
	taken, err := node.TakeSnapshot(ctx, newNode(u, root), opts.identity)
	if err != nil {
		return err
	}
	u.Warn(taken.Warnings...)
	if err := u.Run.Begin(); err != nil {
		return err
	}
	if opts.file == standard {
		return taken.Tree.Write(u.Out, opts.format)
	}
	if err := writeSnapshot(taken.Tree, opts); err != nil {
		return err
	}
	u.Note("stored %d functions in %s: review the file before you send it", taken.Functions, opts.file)
	return nil
}

// writeSnapshot writes the file. On an error it leaves no file.
func writeSnapshot(tree *snapshot.Tree, opts hostSnapshotOptions) error {
	out, err := os.OpenFile(opts.file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return args.UsageError(opts.file+": exists already", "choose another name, or remove it")
	}
	if err != nil {
		return fmt.Errorf("%s: %w", opts.file, host.Cause(err))
	}
	err = errors.Join(tree.Write(out, opts.format), out.Sync(), out.Close())
	if err != nil {
		return errors.Join(fmt.Errorf("%s: %w", opts.file, err), os.Remove(opts.file))
	}
	return nil
}

func newHostUnpackCommand(u *term.UI) *cli.Command {
	return &cli.Command{
		Name:      "unpack",
		Usage:     "unpack a snapshot or an example into a file tree for --root",
		ArgsUsage: "FILE.txtar|FILE.tar.gz|- DIR",
		Description: `
Creates DIR, which must not exist or be empty, and unpacks a snapshot into it. "-" reads a
snapshot in either form from standard input. Writes nothing outside DIR.

EXAMPLES
  gpustack host unpack examples/talk-2xk4200.txtar /tmp/node
  gpustack host scan --root /tmp/node

EXIT STATUS
  0  DIR contains the whole tree
  1  error: DIR is missing or incomplete`,
		Action: action(u, parseHostUnpack, runHostUnpack),
	}
}

type hostUnpackOptions struct {
	file, dir string
	format    snapshot.Format
}

func parseHostUnpack(c *cli.Context, f *args.Faults) hostUnpackOptions {
	arguments := f.Arguments(c, "FILE", "DIR")
	return hostUnpackOptions{arguments[0], arguments[1], snapshotFormat(f, arguments[0])}
}

func runHostUnpack(_ context.Context, u *term.UI, opts hostUnpackOptions) error {
	tree, err := readSnapshot(u, opts)
	if err != nil {
		return err
	}
	if err := u.Run.Begin(); err != nil {
		return err
	}
	if err := tree.Unpack(opts.dir); err != nil {
		return err
	}
	if unread := tree.Unreadable(); len(unread) > 0 {
		u.Warn(fmt.Sprintf("not readable where the snapshot was taken, and so not here: %s, such as /%s", term.Numbered(len(unread), "file"), unread[0]))
	}
	u.Note("unpacked %s into %s", filepath.Base(opts.file), opts.dir)
	return nil
}

func readSnapshot(u *term.UI, opts hostUnpackOptions) (*snapshot.Tree, error) {
	if opts.file == standard {
		tree, err := snapshot.ReadAny(u.In)
		if err != nil {
			return nil, fmt.Errorf("standard input: %w", err)
		}
		return tree, nil
	}
	in, err := os.Open(opts.file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", opts.file, host.Cause(err))
	}
	defer in.Close() //nolint:errcheck // only read from
	tree, err := snapshot.Read(in, opts.format)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", opts.file, err)
	}
	return tree, nil
}
