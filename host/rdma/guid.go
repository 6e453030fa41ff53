package rdma

import (
	"encoding/hex"
	"fmt"
	"strings"
)

// GUID is the 64-bit identifier (EUI-64) of an RDMA node or port, most significant byte first.
type GUID [8]byte

// ParseGUID parses a GUID in the form of sysfs, "0002:c903:0021:6e70", or in that of ip-link(8),
// "00:02:c9:03:00:21:6e:70".
func ParseGUID(s string) (GUID, error) {
	var g GUID
	width := 4
	if len(s) == 23 {
		width = 2
	}
	parts := strings.Split(s, ":")
	for _, part := range parts {
		if len(part) != width {
			return GUID{}, badGUID(s)
		}
	}
	data, err := hex.DecodeString(strings.Join(parts, ""))
	if err != nil || len(data) != len(g) {
		return GUID{}, badGUID(s)
	}
	return GUID(data), nil
}

func badGUID(s string) error {
	return fmt.Errorf("not a GUID such as 00:02:c9:03:00:21:6e:70: %q", s)
}

// String returns the GUID in the form of ip-link(8): eight pairs of lower-case digits.
func (g GUID) String() string {
	var b strings.Builder
	for i, octet := range g {
		if i > 0 {
			b.WriteByte(':')
		}
		fmt.Fprintf(&b, "%02x", octet)
	}
	return b.String()
}

// IsZero reports whether no GUID is assigned, as on an InfiniBand VF without identity.
func (g GUID) IsZero() bool {
	return g == GUID{}
}

// MarshalText returns the GUID as String does.
func (g GUID) MarshalText() ([]byte, error) {
	return []byte(g.String()), nil
}

// UnmarshalText accepts what ParseGUID accepts.
func (g *GUID) UnmarshalText(text []byte) (err error) {
	*g, err = ParseGUID(string(text))
	return err
}
