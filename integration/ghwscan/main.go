// Command ghwscan lists the PCI functions below a root through jaypipes/ghw: the
// peer that make bench times the scan against, among Go programs.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/jaypipes/ghw"
)

func main() {
	if err := scan(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "ghwscan: %v\n", err)
		os.Exit(1)
	}
}

func scan(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("want one argument, the root, not %d", len(args))
	}
	info, err := ghw.PCI(ghw.WithChroot(args[0]), ghw.WithDisableWarnings())
	if err != nil {
		return err
	}
	if len(info.Devices) == 0 {
		return fmt.Errorf("no functions below %s", args[0]) // ghw says so with no error
	}
	return json.NewEncoder(os.Stdout).Encode(info.Devices)
}
