package initramfs

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"

	"gpustack/host"
	"gpustack/host/snapshot"
)

// maxRecorded is the size in bytes up to which an image that cannot be unpacked is recorded as it
// is, so that a snapshot shows the same error.
const maxRecorded = 1 << 20

// record records an image for a snapshot: a plain cpio archive with the names and files that Verify
// needs, a few kilobytes in place of a hundred megabytes.
func record(root host.Root, name string, content Content, err error) {
	if err == nil {
		root.Record(name, content.archive())
		return
	}
	data, tooLong := []byte(nil), false
	if f, openErr := root.Open(name); openErr == nil {
		var readErr error
		data, readErr = io.ReadAll(io.LimitReader(f, maxRecorded+1))
		tooLong = readErr != nil || len(data) > maxRecorded
		f.Close() //nolint:errcheck // only read from
	}
	if data != nil && !tooLong {
		root.Record(name, data)
		return
	}
	root.RecordMode(name, nil, 0, err)
}

// archive returns the content as a cpio archive (Linux,
// Documentation/driver-api/early-userspace/buffer-format.rst). Names without a content become
// directories. Passwords are hidden as in files outside of images.
func (c Content) archive() []byte {
	var b bytes.Buffer
	entry := func(number int, name string, data []byte, content bool) {
		mode := regular | 0o644
		if !content {
			mode = directory | 0o755
		}
		fmt.Fprintf(&b, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
			number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name)+1, 0, name)
		pad(&b)
		b.Write(data)
		pad(&b)
	}
	names := slices.Concat(c.Names, slices.Collect(maps.Keys(c.Files)))
	slices.Sort(names)
	for i, name := range slices.Compact(names) {
		data, content := c.Files[name]
		entry(i+1, name, snapshot.MaskBoot(name, data), content) // here, where the size of a file is not fixed yet
	}
	entry(0, trailer, nil, true)
	return b.Bytes()
}

// pad adds zeros up to a multiple of four bytes.
func pad(b *bytes.Buffer) {
	for b.Len()%4 != 0 {
		b.WriteByte(0)
	}
}
