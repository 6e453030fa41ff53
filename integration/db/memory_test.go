package db

import (
	"os/exec"
	"syscall"
)

// maxRSS is the most memory that a process that has ended has had, in MiB (getrusage(2)).
func maxRSS(cmd *exec.Cmd) float64 {
	return float64(cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss) / 1024
}
