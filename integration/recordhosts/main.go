// Command recordhosts prints the answers of a Nova to the cases of nova/explain/explaintest, as
// nova/explain/testdata has them. Its arguments run Python where that Nova is:
//
//	go run ./integration/recordhosts chroot DIR python3 > nova/explain/testdata/hosts-31.0.0.txt
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"

	"gpustack/nova/explain/explaintest"
)

const (
	script = "integration/ask_host.py"
	seed   = 31
	cases  = 1500
)

func main() {
	if err := record(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "recordhosts:", err)
		os.Exit(1)
	}
}

func record(to io.Writer, command []string) error {
	text, err := os.ReadFile(script)
	if err != nil {
		return err
	}
	cmd := exec.Command(command[0], append(command[1:], "-c", string(text))...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	answers := bufio.NewReader(out)
	ask := func(question, answer any) error {
		line, err := json.Marshal(question)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(in, "%s\n", line); err != nil {
			return err
		}
		if line, err = answers.ReadBytes('\n'); err != nil {
			return err
		}
		return json.Unmarshal(line, answer)
	}
	var version string
	if err := ask(struct{}{}, &version); err != nil {
		return err
	}
	all, err := explaintest.All(seed, cases)
	if err != nil {
		return err
	}
	fmt.Fprintf(to, "# Nova %s, seed %d: a line for each kept and %d random cases of nova/explain/explaintest, by %s\n", version, seed, cases, script)
	for k := range all {
		var a explaintest.Answer
		if err := ask(k.Case, &a); err != nil {
			return fmt.Errorf("%s: %w", k.Name, err)
		}
		fmt.Fprintln(to, a.Record())
	}
	in.Close()
	return cmd.Wait()
}
