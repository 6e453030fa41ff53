package guest

import (
	"fmt"
	"hash/crc32"
	"strings"
	"time"
)

// tokenTime is the layout of the time in a token, with all six digits of the database's
// microseconds.
const tokenTime = "20060102T150405.000000Z"

// NewToken returns a token with the time t of the database, to the microsecond. A report with this
// token was made after t, whatever the clock of its host shows.
//
// A token is one word that shells do not change. Its checksum detects mistyping, and is no
// signature.
func NewToken(t time.Time) string {
	text := t.UTC().Format(tokenTime)
	return fmt.Sprintf("%s-%08x", text, crc32.ChecksumIEEE([]byte(text)))
}

// ParseToken returns the time in a token that NewToken made.
func ParseToken(text string) (time.Time, error) {
	stated, _, _ := strings.Cut(text, "-")
	t, err := time.Parse(tokenTime, stated)
	if err != nil {
		return time.Time{}, fmt.Errorf("not a token of gpustack repair-migration: %.60q", text)
	}
	if NewToken(t) != text {
		return time.Time{}, fmt.Errorf("mistyped token, its checksum does not match: %.60q", text)
	}
	return t, nil
}
