package checklist

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"gpustack/host"
)

// Pass returns the finding of a check that has passed.
func Pass(format string, args ...any) []host.Finding {
	return []host.Finding{{Status: host.Pass, Seen: fmt.Sprintf(format, args...)}}
}

// NA returns a finding that says why a check does not apply.
func NA(format string, args ...any) []host.Finding {
	return []host.Finding{{Status: host.NA, Seen: fmt.Sprintf(format, args...)}}
}

// OrPass returns findings or, if there are none, that of a check that has passed.
func OrPass(findings []host.Finding, format string, args ...any) []host.Finding {
	if findings == nil {
		return Pass(format, args...)
	}
	return findings
}

// Unread returns the finding of a check whose subject, a file, is missing or cannot be read.
func Unread(file string, err error) []host.Finding {
	f := host.Finding{Status: host.NA, File: file, Seen: WithFile(file, err), Remedy: host.HintOf(err)}
	if host.IsAbsent(err) {
		f.Seen = file + " is missing"
	}
	if errors.Is(err, fs.ErrPermission) {
		f.Remedy = host.AsRoot()
	}
	return []host.Finding{f}
}

// Prevented returns the finding of a check that an error prevents, with the remedy for the error.
func Prevented(err error) host.Finding {
	f := host.Finding{Status: host.NA, Seen: err.Error(), Remedy: host.HintOf(err)}
	if errors.Is(err, fs.ErrPermission) {
		f.Remedy = host.AsRoot()
	}
	return f
}

// WithFile returns the text of an error, after the file unless the text names it already.
func WithFile(file string, err error) string {
	if of := (*host.FileError)(nil); !errors.As(err, &of) {
		err = host.Cause(err)
	}
	text := err.Error()
	if strings.Contains(text, file) {
		return text
	}
	return file + ": " + text
}

// File is a file that a prepare has written.
type File struct {
	Name     string
	Recorded string // the hash of what was written
	Now      string // that of what it contains, "" if it is missing
	Seen     bool   // whether it could be read
	Err      error  // why not
}

// Files compares files with their recorded hashes. prepare writes them again; missing is the effect
// of one that is missing.
func Files(files []File, prepare, missing string) (findings []host.Finding) {
	for _, f := range files {
		finding := host.Finding{File: f.Name, Remedy: host.Textf("%s writes it again", host.NewCommand(prepare))}
		switch {
		case !f.Seen:
			finding = Unread(f.Name, f.Err)[0]
		case f.Now == "":
			finding.Status, finding.Seen, finding.Effect = host.Fail, f.Name+" is missing", missing
		case f.Now != f.Recorded:
			finding.Status, finding.Seen = host.Warn, f.Name+" was changed by another program"
			finding.Effect = "the next boot may differ from the plan"
		default:
			continue
		}
		findings = append(findings, finding)
	}
	return OrPass(findings, "%s unchanged", host.Numbered(len(files), "file"))
}
