package vm

import (
	"testing"

	"gpustack/host/hosttest"
)

// TestSpace: a configuration space answers what firmware and kernels ask.
func TestSpace(t *testing.T) {
	s := k4200.space(true)
	for _, test := range []struct {
		name     string
		at, size int
		want     uint64
	}{
		{"ids", 0, 4, 0x11b410de},
		{"class", 0x0a, 2, 0x0300},
		{"subsystem", 0x2c, 4, 0x109610de},
		{"many functions", 0x0e, 1, 0x80},
		{"beyond the end", 254, 4, 0},
	} {
		hosttest.EqualIn(t, test.name, test.want, s.read(test.at, test.size))
	}
	// How large a BAR is, is told by the bits that stay zero (PCI Local Bus
	// Specification 3.0, 6.2.5.1).
	s.write(0x10, 4, 0xffffffff)
	if got := s.read(0x10, 4); got != 1<<32-16<<20 {
		t.Errorf("first BAR: %#x", got)
	}
	s.write(0, 4, 0)
	if got := s.read(0, 2); got != 0x10de {
		t.Errorf("the vendor is written over: %#x", got)
	}
	if k4200Audio.space(false).bytes[pciHeaderType] != 0 {
		t.Error("a function that is alone says that it is not")
	}
}
