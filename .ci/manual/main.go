// Command manual writes the manual, in roff, from the pages that "gpustack help" prints.
//
//	manual PROGRAM FOLDER DATE
package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/cpuguy83/go-md2man/v2/md2man"
)

func main() {
	if err := write(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "manual:", err)
		os.Exit(1)
	}
}

// write writes gpustack(8), and a page for each command that it lists.
func write(program, dir, date string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	version, err := exec.Command(program, "--version").Output()
	if err != nil {
		return fmt.Errorf("gpustack --version: %w", err)
	}
	paths := []string{""}
	for i := 0; i < len(paths); i++ {
		c := exec.Command(program, append([]string{"help"}, strings.Fields(paths[i])...)...)
		c.Env = []string{"LANG=C.UTF-8"}
		text, err := c.Output()
		if err != nil {
			return fmt.Errorf("gpustack help %s: %w", paths[i], err)
		}
		if i == 0 {
			for _, m := range regexp.MustCompile(`(?m)^  ([a-z-]+(?: [a-z-]+)?)  +[a-z]`).FindAllSubmatch(text, -1) {
				paths = append(paths, string(m[1]))
			}
		}
		name := strings.ReplaceAll(strings.TrimSpace("gpustack "+paths[i]), " ", "-")
		page := fmt.Sprintf("%% %q \"8\" %q %q \"gpustack manual\"\n\n%s", strings.ToUpper(name), date, bytes.TrimSpace(version), markdown(name, string(text)))
		if err := os.WriteFile(filepath.Join(dir, name+".8"), escaped(md2man.Render([]byte(page))), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// escaped returns a page with letters outside ASCII as groff_char(7) writes them.
func escaped(page []byte) []byte {
	var b bytes.Buffer
	for _, r := range string(page) {
		if r < utf8.RuneSelf {
			b.WriteRune(r)
			continue
		}
		fmt.Fprintf(&b, `\[u%04X]`, r)
	}
	return b.Bytes()
}

// markdown returns a page of help in Markdown: its headings, and what is indented as it is.
func markdown(name, text string) string {
	_, usage, _ := strings.Cut(text, ": ")
	usage, rest, _ := strings.Cut(usage, "\n")
	lines := strings.Split(rest, "\n")
	for i, line := range lines {
		switch {
		case strings.HasPrefix(line, "  "):
			lines[i] = "  " + line // a block of code
		case line != "" && line == strings.ToUpper(line):
			lines[i] = "\n# " + line + "\n"
		default:
			lines[i] = regexp.MustCompile("[*_<>`\\[\\]\\\\]").ReplaceAllString(line, `\$0`)
		}
	}
	return "# NAME\n\n" + name + " - " + usage + "\n" + strings.Join(lines, "\n")
}
