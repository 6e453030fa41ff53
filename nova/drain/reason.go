package drain

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"gpustack/host"
)

// Reason is why gpustack has disabled a compute service, as Nova keeps it:
//
//	gpustack 2026-11-27T18:30:00Z 5e0c3a71: new kernel
//
// nova-compute of libvirt takes over services whose reason begins with "AUTO: "
// (nova/virt/libvirt/driver.py, DISABLE_PREFIX), which this one never does.
type Reason struct {
	// when the service was disabled, to the second; the first time, if undo of nova enable disabled it again
	Since time.Time `json:"since"`
	ID    string    `json:"drain_id"` // 8 hexadecimal digits, new each time a service is disabled
	Text  string    `json:"step"`     // the text of the reason, which may change: why, or at which step
}

const (
	begin = "gpustack "
	// longest is the length of a reason in characters (nova/api/openstack/compute/schemas/services.py,
	// disabled_reason).
	longest = 255
	idLen   = 8
)

// MaxText is the length of a reason's text in characters.
const MaxText = longest - len(begin) - len("2006-01-02T15:04:05Z ") - idLen - len(": ")

// String returns the reason as Nova keeps it.
func (r Reason) String() string {
	return begin + r.Since.UTC().Format(time.RFC3339) + " " + r.ID + ": " + r.Text
}

// ParseReason reads a reason. It returns false for one that gpustack has not written.
func ParseReason(s string) (Reason, bool) {
	rest, ours := strings.CutPrefix(s, begin)
	at, rest, _ := strings.Cut(rest, " ")
	id, text, named := strings.Cut(rest, ": ")
	since, err := time.Parse(time.RFC3339, at)
	r := Reason{since.UTC(), id, text}
	// Only what String returns: another form could not be found again.
	if !ours || !named || err != nil || r.String() != s || len(id) != idLen || strings.Trim(id, "0123456789abcdef") != "" {
		return Reason{}, false
	}
	return r, true
}

// same reports whether two reasons are of one time at which a service was disabled.
func (r Reason) same(other Reason) bool {
	return r.ID == other.ID && r.Since.Equal(other.Since)
}

// CheckText returns an error unless a text can be that of a reason.
func CheckText(text string) error {
	switch n := utf8.RuneCountInString(text); {
	case strings.TrimSpace(text) == "":
		return host.WithHint(errors.New("the text is empty"), "say why, or at which step: administrators see it in the list of services")
	case text != strings.TrimSpace(text) || strings.ContainsAny(text, "\n\t") || host.Printable(text) != text:
		return host.WithHint(fmt.Errorf("%q has control characters, or blanks at its ends", text), "write one line of text")
	case strings.ContainsFunc(text, func(r rune) bool { return r > 0xFFFF }):
		// The column is utf8mb3 (nova/db/main/migrations, mysql_charset).
		return host.WithHint(fmt.Errorf("%q has characters above U+FFFF", text), "Nova's database does not store them: leave out emoji")
	case n > MaxText:
		return host.WithHint(fmt.Errorf("the text has %d characters, more than %d", n, MaxText),
			"Nova keeps 255 characters, with the time and the id before the text")
	}
	return nil
}
