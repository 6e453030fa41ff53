package guest_test

import (
	"strings"
	"testing"
	"time"

	"gpustack/host/guest"
)

func TestToken(t *testing.T) {
	at := time.Date(2026, 11, 23, 18, 40, 1, 123456789, time.FixedZone("CET", 3600))
	token := guest.NewToken(at)
	if want := "20261123T174001.123456Z-"; !strings.HasPrefix(token, want) || len(token) != len(want)+8 {
		t.Errorf("%s, not %s and a checksum", token, want)
	}
	if got, err := guest.ParseToken(token); err != nil || !got.Equal(at.Truncate(time.Microsecond)) {
		t.Errorf("%s, %v", got, err)
	}
	const unknown, mistyped = "not a token of gpustack repair-migration: ", "mistyped token, its checksum does not match: "
	for _, test := range []struct{ name, text, want string }{
		{"empty", "", unknown},
		{"a time", "2026-11-23T17:40:01Z", unknown},
		{"no checksum", token[:23], mistyped},
		{"cut off", token[:30], mistyped},
		{"another digit", strings.Replace(token, "174001", "174007", 1), mistyped},
		{"another checksum", token[:24] + "00000000", mistyped},
		{"upper case", strings.ToUpper(token), mistyped},
		{"fewer digits", strings.Replace(token, ".123456", ".123", 1), unknown},
		{"no such day", strings.Replace(token, "20261123", "20261131", 1), unknown},
		{"a blank", token + " ", mistyped},
	} {
		if _, err := guest.ParseToken(test.text); err == nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

// FuzzToken: only what NewToken returns is a token.
func FuzzToken(f *testing.F) {
	f.Add(guest.NewToken(now))
	f.Add("20261123T174001.123456Z-1a2b3c4d")
	f.Fuzz(func(t *testing.T, text string) {
		if at, err := guest.ParseToken(text); err == nil && guest.NewToken(at) != text {
			t.Errorf("%q is a token of %s", text, at)
		}
	})
}
