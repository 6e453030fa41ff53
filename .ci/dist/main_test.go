package main

import (
	"testing"
	"time"
)

func TestPackageVersion(t *testing.T) {
	committed := time.Date(2026, 11, 22, 18, 5, 9, 0, time.FixedZone("", 3600))
	for describe, want := range map[string]string{
		"v1.2.3":                       "1.2.3",
		"1.2":                          "1.2",
		"v1.2.3-dirty":                 "1.2.3+dirty",
		"v1.2.3-5-g0a1b2c3":            "1.2.3+5.g0a1b2c3",
		"v1.2.3-rc.1":                  "1.2.3~rc.1",
		"v1.2.3-rc1-12-g0a1b2c3-dirty": "1.2.3~rc1+12.g0a1b2c3+dirty",
		"4d2234a":                      "0~20261122170509.g4d2234a",
		"1234567":                      "0~20261122170509.g1234567",
		"4d2234a-dirty":                "0~20261122170509.g4d2234a+dirty",
	} {
		if got, err := packageVersion(describe, committed); got != want || err != nil {
			t.Errorf("%s: %q, %v, want %q", describe, got, err, want)
		}
	}
	for _, describe := range []string{"", "unreleased", "latest", "v1", "v1.2.3 ", "v1.2.3-x", "deadbee-1-gdeadbee", "v1.2.3\n"} {
		if got, err := packageVersion(describe, committed); err == nil {
			t.Errorf("%q: %q", describe, got)
		}
	}
}
