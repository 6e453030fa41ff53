package chain

import (
	"context"
	_ "embed" // for the recipe
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gpustack/integration/vm"
)

// prepareRecipe is this file: a disk in the cache was made as it says.
//
//go:embed prepare.go
var prepareRecipe string

// A Server is the disk of a compute node that host prepare has prepared, and that has booted since.
type Server struct {
	Overlay       string `json:"-"` // qcow2, above the disk of Image
	Before, After State  // of the boots before and after host prepare
}

// Prepared returns the disk of a compute node whose GPUs are bound to vfio-pci since it booted:
// prepared by the binary, with the machine's own update-initramfs and update-grub, and found ready
// by host check. The cache keeps one for each binary, image and machine. Steps are logged with the
// time since the first.
func Prepared(ctx context.Context, p vm.Programs, logf func(format string, args ...any)) (Server, error) {
	image, err := Image(ctx)
	if err != nil {
		return Server{}, err
	}
	binary, err := fingerprint(p.Gpustack)
	if err != nil {
		return Server{}, err
	}
	hosts, err := Pair()
	if err != nil {
		return Server{}, err
	}
	machine, err := hosts[0].recipe()
	if err != nil {
		return Server{}, err
	}
	dir, err := vm.Cached(ctx, "prepared", []string{prepareRecipe, image, binary, machine}, func(ctx context.Context, dir string) error {
		return prepare(ctx, dir, hosts[0], image, p, logf)
	})
	if err != nil {
		return Server{}, err
	}
	s := Server{Overlay: filepath.Join(dir, "overlay")}
	text, err := os.ReadFile(filepath.Join(dir, "states.json"))
	if err != nil {
		return Server{}, err
	}
	return s, json.Unmarshal(text, &s)
}

func prepare(ctx context.Context, dir string, h Host, image string, p vm.Programs, logf func(format string, args ...any)) (err error) {
	if err := forget(filepath.Dir(dir)); err != nil {
		return err
	}
	begin := time.Now()
	step := func(name string) { logf("%6.1f s: %s", time.Since(begin).Seconds(), name) }
	scratch, err := os.MkdirTemp("", "prepared-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	lab, err := Lab(ctx, scratch, p)
	if err != nil {
		return err
	}
	m, err := Start(ctx, scratch, h, image, "raw", lab)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Kill())
		}
	}()
	step("booted")
	var s Server
	if s.Before, err = m.State(ctx); err != nil {
		return err
	}
	if err := m.EmulateGuests(ctx); err != nil {
		return err
	}
	plan, err := m.Run(ctx, "gpustack", "host", "prepare", "--yes")
	if err != nil {
		return err
	}
	for _, program := range []string{"update-initramfs", "update-grub"} {
		if !strings.Contains(plan, program) {
			return fmt.Errorf("host prepare did not run %s:\n%s", program, plan)
		}
	}
	step("prepared")
	if err := m.Reboot(ctx, "systemctl", "reboot"); err != nil {
		return err
	}
	step("rebooted")
	if s.After, err = m.State(ctx); err != nil {
		return err
	}
	if err := m.Ready(ctx); err != nil {
		return err
	}
	step("ready")
	if err := m.PowerOff(ctx, "systemctl", "poweroff"); err != nil {
		return err
	}
	step("powered off")
	if err := vm.CheckOverlay(ctx, m.Overlay); err != nil {
		return err
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(dir, "states.json"), text, 0o644), copyFile(m.Overlay, filepath.Join(dir, "overlay")))
}

// forget deletes from the cache what binaries of more than a week ago have prepared: each binary
// has a disk there.
func forget(cache string) error {
	const age = 7 * 24 * time.Hour
	all, err := filepath.Glob(filepath.Join(cache, "prepared-*"))
	if err != nil {
		return err
	}
	for _, dir := range all {
		info, err := os.Stat(dir)
		if err != nil {
			return err
		}
		if time.Since(info.ModTime()) > age {
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
		}
	}
	return nil
}
