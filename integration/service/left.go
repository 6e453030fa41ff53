package service

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Left is an error if programs run that have a folder in their command line or
// environment, as all that are started with files in it have.
func Left(dir string) error {
	var left []error
	for _, proc := range Processes(dir) {
		cmdline, _ := os.ReadFile(filepath.Join(proc, "cmdline"))
		left = append(left, fmt.Errorf("%s is left: %q", proc, cmdline))
	}
	return errors.Join(left...)
}

// Processes are the folders in /proc of those programs.
func Processes(dir string) (list []string) {
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, proc := range all {
		// Both are empty for one that has just ended.
		cmdline, _ := os.ReadFile(filepath.Join(proc, "cmdline"))
		environ, _ := os.ReadFile(filepath.Join(proc, "environ"))
		if bytes.Contains(cmdline, []byte(dir)) || bytes.Contains(environ, []byte(dir)) {
			list = append(list, proc)
		}
	}
	return list
}
