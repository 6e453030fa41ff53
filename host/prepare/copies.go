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

// keptDir holds copies of the files that a program writes while it runs. It is on the root file
// system: a boot partition seldom has room for them. A run that ends removes its copies. A run
// that is killed, or that cannot put a file back, leaves them, and the program is run again by the
// next run, which may be weeks later: the distribution may have replaced the file meanwhile. So
// each copy has a record of the files that it stands for.
const keptDir = change.Dir + "/kept"

// keptCopy is the record of a copy. A copy without one was made by an earlier release.
type keptCopy struct {
	File   string  `json:"file"`
	Before string  `json:"before"` // stamp of the file that was copied
	After  *string `json:"after"`  // stamp of what the program left, "" for no file; null unless the program ended
	// Restoring is set while the file is put back, which may remove it first.
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

// recoverCopies puts files back that an earlier run left changed, and returns whether there were
// any. A file is put back only if it is what the program left then, or if it is incomplete or
// missing because the program or the run was killed while writing it. Any other content has come
// later and stays. No copy is left.
func recoverCopies(root host.Root, made product) (restored bool, err error) {
	for _, file := range made.files {
		copied, err := root.Exists(keptName(file))
		if err != nil {
			return restored, fmt.Errorf("%s: %w", keptName(file), host.Cause(err))
		}
		if copied {
			c, err := readCopy(root, file)
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

// restore puts the file back, and records that first: a missing file whose copy is left is then
// known not to be removed by others.
func (c keptCopy) restore(root host.Root) error {
	c.Restoring = true
	return errors.Join(c.write(root), edit.PutBack(root, keptName(c.File), c.File))
}

// recoverOrphans handles the copies of files that are missing, so that no program seems to make
// them. It puts a file back that an earlier run or its program removed, and returns whether there
// were any. The copies of others go, such as the initramfs of a kernel that was removed since.
func recoverOrphans(root host.Root) (restored bool, err error) {
	names, err := root.ReadDir(keptDir)
	if host.IsAbsent(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("%s: %w", keptDir, host.Cause(err))
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
			return restored, fmt.Errorf("%s: %w", c.File, host.Cause(err))
		}
		if there {
			continue
		}
		copied, err := root.Exists(keptName(c.File))
		if err != nil {
			return restored, fmt.Errorf("%s: %w", keptName(c.File), host.Cause(err))
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

// readCopy returns the record of the copy of a file.
func readCopy(root host.Root, file string) (keptCopy, error) {
	c, err := readRecord(root, recordName(file))
	if host.IsAbsent(err) {
		c = keptCopy{File: file}
		c.Before, err = edit.Stamp(root, keptName(file))
	}
	return c, err
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
		return keptCopy{}, fmt.Errorf("%s: %w", name, host.Cause(err))
	}
	return c, nil
}

// keepCopies copies those files that are there. Together with an error it returns the copies
// made so far.
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
		// The record comes first: a copy without one looks like that of an earlier release.
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

// recordResult records what the program left of each file, so that a later run can tell it from
// what came afterwards.
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

// putBack puts back the files that differ from their copies.
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
		// The copy goes before its record, for the reason given in keepCopies.
		for _, name := range []string{keptName(k.File), recordName(k.File)} {
			errs = append(errs, edit.RemoveLeftover(root, name), edit.RemoveFile(root, name))
		}
	}
	return errors.Join(append(errs, edit.RemoveDirs(root, []string{keptDir}))...)
}
