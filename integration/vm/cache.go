package vm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Cache returns the folder in which what is slow to make is kept, with what machines of failed
// tests printed: the one that GPUSTACK_VM_CACHE names, or one in the user's own cache. It may be
// deleted at any time.
func Cache() (string, error) {
	if dir := os.Getenv("GPUSTACK_VM_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	return filepath.Join(dir, "gpustack-vm"), err
}

// cached returns a folder that is made once for each key. The key must identify everything that
// the folder depends on. The folder is made under another name and then renamed, so that other
// processes only find it when it is complete. Processes that make the same kind at the same time
// wait for each other.
func cached(ctx context.Context, kind, key string, build func(ctx context.Context, dir string) error) (string, error) {
	cache, err := Cache()
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(key))
	dir := filepath.Join(cache, kind+"-"+hex.EncodeToString(sum[:8]))
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	lock, err := os.OpenFile(filepath.Join(cache, kind+".lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return "", err
	}
	defer lock.Close() // which unlocks
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("%s: %w", lock.Name(), err)
	}
	if _, err := os.Stat(dir); err == nil {
		return dir, nil // made while this process waited
	}
	// This process has the lock, so these folders are left by processes that were killed.
	left, err := filepath.Glob(filepath.Join(cache, ".making-"+kind+"-*"))
	if err != nil {
		return "", err
	}
	for _, old := range left {
		if err := os.RemoveAll(old); err != nil {
			return "", err
		}
	}
	making, err := os.MkdirTemp(cache, ".making-"+kind+"-")
	if err != nil {
		return "", err
	}
	if err := os.Chmod(making, 0o755); err != nil {
		return "", err
	}
	if err := build(ctx, making); err != nil {
		return "", errors.Join(fmt.Errorf("make %s: %w", kind, err), os.RemoveAll(making))
	}
	return dir, os.Rename(making, dir)
}

// Cached returns a folder of the cache that build makes once for each kind and key. The parts of
// the key must identify everything that the folder depends on.
func Cached(ctx context.Context, kind string, key []string, build func(ctx context.Context, dir string) error) (string, error) {
	return cached(ctx, kind, recipe(key...), build)
}

// recipe is a key made of what goes into a thing.
func recipe(parts ...string) string {
	return strings.Join(parts, "\x00")
}
