package prepare

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/edit"
)

// keptDir contains copies of the files that a program writes while it runs. It is on the root file
// system: a boot partition seldom has room for copies. A run removes its copies when it ends. A
// run that is killed, or that cannot restore a file, leaves them for the next run, which runs the
// program again. That may be weeks later, when the distribution has replaced the file. So each
// copy has a record of the file that it was made from.
const keptDir = change.Dir + "/kept"

// keptCopy is the record of a copy.
type keptCopy struct {
	File   string  `json:"file"`
	Before string  `json:"before"` // stamp of the file that was copied
	After  *string `json:"after"`  // stamp of the file that the program wrote, "" for no file; null unless the program ended
	// Restoring is set while the file is restored, which may remove it first.
	Restoring bool `json:"restoring,omitempty"`
}

func keptName(file string) string {
	return path.Join(keptDir, strings.ReplaceAll(strings.TrimPrefix(file, "/"), "/", "_"))
}

func recordName(file string) string {
	return keptName(file) + ".json"
}

// copies are the copies that a run made.
type copies []keptCopy

// recoverCopies restores files that an earlier run left changed, and returns whether there were
// any. It restores a file only if the file is as the program wrote it then, or if it is incomplete
// or missing because the program or the run was killed while writing it. Any other content is
// newer and remains. All copies are removed.
func recoverCopies(root host.Root, made product) (restored bool, err error) {
	for _, file := range made.files {
		copied, err := root.Exists(keptName(file))
		if err != nil {
			return restored, err
		}
		if copied {
			c, err := readRecord(root, recordName(file))
			if err != nil {
				return restored, err
			}
			back, err := c.recover(root, made)
			restored = restored || back
			if err != nil {
				return restored, err
			}
		}
		if err := (copies{{File: file}}).remove(root); err != nil {
			return restored, err
		}
	}
	back, err := recoverOrphans(root)
	return restored || back, err
}

func (c keptCopy) recover(root host.Root, made product) (restored bool, err error) {
	now, err := edit.Stamp(root, c.File)
	if err != nil || now == c.Before {
		return false, err
	}
	if c.After != nil && now == *c.After || now == "" || !made.whole(root, c.File) {
		return true, c.restore(root)
	}
	return false, nil
}

// restore restores the file. It records that first: if the file is missing later while its copy
// exists, then no other program has removed it.
func (c keptCopy) restore(root host.Root) error {
	c.Restoring = true
	return errors.Join(c.write(root), edit.PutBack(root, keptName(c.File), c.File))
}

// recoverOrphans handles the copies of missing files, which no program's list of products
// contains. It restores files that an earlier run or its program removed, and returns whether
// there were any. It removes the other copies, such as that of an initramfs whose kernel was
// removed since.
func recoverOrphans(root host.Root) (restored bool, err error) {
	names, err := host.IfPresent(root.ReadDir(keptDir))
	if err != nil {
		return false, err
	}
	for _, name := range names {
		if path.Ext(name) != ".json" {
			continue
		}
		c, err := readRecord(root, path.Join(keptDir, name))
		if err != nil {
			return restored, err
		}
		there, err := root.Exists(c.File)
		if err != nil {
			return restored, err
		}
		if there {
			continue
		}
		copied, err := root.Exists(keptName(c.File))
		if err != nil {
			return restored, err
		}
		if copied && (c.Restoring || c.After != nil && *c.After == "") {
			restored = true
			if err := c.restore(root); err != nil {
				return restored, err
			}
		}
		if err := (copies{c}).remove(root); err != nil {
			return restored, err
		}
	}
	return restored, nil
}

func readRecord(root host.Root, name string) (keptCopy, error) {
	var c keptCopy
	data, err := root.ReadFile(name)
	if err == nil {
		err = json.Unmarshal(data, &c)
	}
	if err == nil && recordName(c.File) != name {
		err = fmt.Errorf("is the record of the copy of %q", c.File)
	}
	if err != nil {
		return keptCopy{}, host.OfFile(name, err)
	}
	return c, nil
}

// keepCopies copies those of the files that exist. On an error it also returns the copies made so
// far.
func keepCopies(root host.Root, files []string) (copies, error) {
	var kept copies
	for _, file := range files {
		if slices.ContainsFunc(kept, func(c keptCopy) bool { return c.File == file }) {
			continue
		}
		stamp, err := edit.Stamp(root, file)
		if err != nil {
			return kept, err
		}
		if stamp == "" {
			continue
		}
		if err := edit.MakeDir(root, keptDir); err != nil {
			return kept, err
		}
		c := keptCopy{File: file, Before: stamp}
		kept = append(kept, c)
		// Write the record first: no copy is without one.
		if err := c.write(root); err != nil {
			return kept, err
		}
		if err := edit.Copy(root, file, keptName(file)); err != nil {
			return kept, err
		}
	}
	return kept, nil
}

func (c keptCopy) write(root host.Root) error {
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return edit.Write(root, recordName(c.File), append(text, '\n'), 0o600)
}

// recordResult records the files that the program wrote, so that a later run can distinguish them
// from later changes.
func (c copies) recordResult(root host.Root) error {
	var errs []error
	for i := range c {
		stamp, err := edit.Stamp(root, c[i].File)
		if err == nil {
			c[i].After = &stamp
			err = c[i].write(root)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// putBack restores the files that differ from their copies, and removes the copies.
func (c copies) putBack(root host.Root) error {
	var errs []error
	for _, k := range c {
		now, err := edit.Stamp(root, k.File)
		if err == nil && now != k.Before {
			err = k.restore(root)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (c copies) remove(root host.Root) error {
	var errs []error
	for _, k := range c {
		// Remove the copy before its record, for the reason given in keepCopies.
		for _, name := range []string{keptName(k.File), recordName(k.File)} {
			errs = append(errs, edit.RemoveLeftover(root, name), edit.RemoveFile(root, name))
		}
	}
	return errors.Join(append(errs, edit.RemoveDirs(root, []string{keptDir}))...)
}
