package nova

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Save keeps the state of the lab, its databases and all files, for Restore. What it
// kept before is gone. The services are stopped for it and started again.
func (l *Lab) Save(ctx context.Context) error {
	return l.timed("save", func(ctx context.Context) error {
		return l.swap(ctx, l.state(), l.saved())
	})(ctx)
}

// Restore brings back the state that was saved last: what was done since then is
// undone. Clients' tokens stay good.
func (l *Lab) Restore(ctx context.Context) error {
	if _, err := os.Stat(l.saved()); err != nil {
		return fmt.Errorf("nothing was saved: %w", err)
	}
	return l.timed("restore", func(ctx context.Context) error {
		return l.swap(ctx, l.saved(), l.state())
	})(ctx)
}

// swap puts one folder in the place of another while nothing runs.
func (l *Lab) swap(ctx context.Context, from, to string) error {
	if err := l.down(); err != nil {
		return err
	}
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	// cp keeps modes, which RabbitMQ insists on, and holes in files.
	if out, err := exec.CommandContext(ctx, "cp", "--archive", "--reflink=auto", from, to).CombinedOutput(); err != nil {
		return fmt.Errorf("cp: %w: %s", err, out)
	}
	return l.up(ctx)
}

func (l *Lab) saved() string {
	return filepath.Join(l.dir, "saved")
}
