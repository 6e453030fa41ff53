package guest

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestClock(t *testing.T) {
	for _, test := range []struct {
		name  string
		state int
		timex unix.Timex
		want  Clock
	}{
		{"synchronized", unix.TIME_OK, unix.Timex{Status: unix.STA_PLL, Maxerror: 1500}, Clock{true, 1500}},
		{"a leap second is near", unix.TIME_INS, unix.Timex{Status: unix.STA_PLL | unix.STA_INS, Maxerror: 1500}, Clock{true, 1500}},
		{"not synchronized", unix.TIME_ERROR, unix.Timex{Status: unix.STA_PLL | unix.STA_UNSYNC, Maxerror: 16000000}, Clock{false, 16000000}},
		{"unsynchronized by its status", unix.TIME_OK, unix.Timex{Status: unix.STA_UNSYNC}, Clock{}},
		{"a failed clock", unix.TIME_ERROR, unix.Timex{Status: unix.STA_CLOCKERR}, Clock{}},
	} {
		if got := clock(test.state, test.timex); *got != test.want {
			t.Errorf("%s: %+v, not %+v", test.name, *got, test.want)
		}
	}
	var timex unix.Timex
	if _, err := unix.Adjtimex(&timex); (err == nil) != (ReadClock() != nil) {
		t.Errorf("%v, but %+v", err, ReadClock())
	}
}
