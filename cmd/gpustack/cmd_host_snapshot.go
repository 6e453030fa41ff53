package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"gpustack/host"
	"gpustack/host/machine"
	"gpustack/host/snapshot"
)

func newHostSnapshotCommand(u *ui) *cli.Command {
	return &cli.Command{
		Name:      "snapshot",
		Usage:     "save the files that host scan reads, for use on another machine",
		ArgsUsage: "FILE.txtar|FILE.tar.gz",
		Description: `
Scans the machine and stores each file, link and folder that the scan reads, and the
mounts, swap areas, routes and addresses from which host prepare and host bind derive
what the host needs. After 'gpustack host unpack', --root DIR shows the same scan on any
machine. The text form (.txtar) can be reviewed before it is sent.

Hostname and serial numbers are left out unless --identity is given. Processes, whose
arguments show which guests use functions, are always left out. FILE must not exist.

EXAMPLES
  gpustack host snapshot gpu1.txtar
  gpustack host snapshot gpu1.tar.gz --identity

EXIT STATUS
  0  FILE was written
  1  error: no file was written`,
		Flags: []cli.Flag{
			rootFlag(),
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

func parseHostSnapshot(c *cli.Context, f *faults) hostSnapshotOptions {
	file := f.arguments(c, "FILE")[0]
	return hostSnapshotOptions{
		root:     c.String("root"),
		file:     file,
		format:   snapshotFormat(f, file),
		identity: c.Bool("identity"),
	}
}

// snapshotFormat returns the format that a file's suffix stands for, if it has one.
func snapshotFormat(f *faults, file string) snapshot.Format {
	if file == "" {
		return 0 // the missing argument is already reported
	}
	format, err := snapshot.FormatOf(file)
	if err != nil {
		f.add(&usageError{err.Error(), "name the file so that it ends in one of them"})
	}
	return format
}

// identityFiles returns the files that identify a single machine.
func identityFiles() []string {
	return append(host.HostnameFiles(),
		"etc/machine-id",
		"sys/class/dmi/id/product_serial",
		"sys/class/dmi/id/product_uuid",
		"sys/class/dmi/id/board_serial",
		"sys/class/dmi/id/chassis_serial",
	)
}

func runHostSnapshot(ctx context.Context, u *ui, opts hostSnapshotOptions) error {
	root, err := host.NewRoot(opts.root)
	if err != nil {
		return err
	}
	if err := u.settled(ctx, root); err != nil {
		return err
	}
	var tree snapshot.Tree
	m := machine.Observe(root.Recorded(&tree), machine.Facts|machine.IOMMU|machine.Needs, machine.Options{})
	report, err := newScanReport(m)
	if err != nil {
		return err
	}
	u.warn(report.allWarnings()...)
	if err := m.Needs.Err; err != nil {
		u.warn(strings.Split(err.Error(), "\n")...)
	}
	if err := m.Mediated.Err; err != nil { // host prepare refuses functions with mediated devices
		u.warn(err.Error())
	}
	if opts.identity {
		for _, name := range identityFiles() {
			if _, err := root.Recorded(&tree).ReadFile(name); err != nil && !host.IsAbsent(err) {
				u.warn(fmt.Sprintf("/%s: %v", name, host.Cause(err)))
			}
		}
	} else {
		tree.Remove(identityFiles()...)
	}
	if err := u.begin(); err != nil {
		return err
	}
	if err := writeSnapshot(&tree, opts); err != nil {
		return err
	}
	u.note("stored %d functions in %s: review the file before you send it", len(report.Devices), opts.file)
	return nil
}

// writeSnapshot writes the file. On an error it leaves no file.
func writeSnapshot(tree *snapshot.Tree, opts hostSnapshotOptions) error {
	out, err := os.OpenFile(opts.file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return &usageError{opts.file + ": exists already", "choose another name, or remove it"}
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

func newHostUnpackCommand(u *ui) *cli.Command {
	return &cli.Command{
		Name:      "unpack",
		Usage:     "unpack a snapshot or an example into a file tree for --root",
		ArgsUsage: "FILE.txtar|FILE.tar.gz DIR",
		Description: `
Creates DIR, which must not exist or be empty, and unpacks a snapshot into it. Writes
nothing outside DIR.

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

func parseHostUnpack(c *cli.Context, f *faults) hostUnpackOptions {
	arguments := f.arguments(c, "FILE", "DIR")
	return hostUnpackOptions{arguments[0], arguments[1], snapshotFormat(f, arguments[0])}
}

func runHostUnpack(_ context.Context, u *ui, opts hostUnpackOptions) error {
	in, err := os.Open(opts.file)
	if err != nil {
		return fmt.Errorf("%s: %w", opts.file, host.Cause(err))
	}
	defer in.Close() //nolint:errcheck // only read from
	tree, err := snapshot.Read(in, opts.format)
	if err != nil {
		return fmt.Errorf("%s: %w", opts.file, err)
	}
	if err := u.begin(); err != nil {
		return err
	}
	if err := tree.Unpack(opts.dir); err != nil {
		return err
	}
	u.note("unpacked %s into %s", filepath.Base(opts.file), opts.dir)
	return nil
}
