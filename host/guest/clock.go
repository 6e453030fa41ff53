package guest

import "golang.org/x/sys/unix"

// ReadClock returns the state of this machine's clock, or nil if the kernel does not show it
// (adjtimex(2)). It changes nothing.
func ReadClock() *Clock {
	var t unix.Timex // without modes: only read
	state, err := unix.Adjtimex(&t)
	if err != nil {
		return nil
	}
	return clock(state, t)
}

func clock(state int, t unix.Timex) *Clock {
	return &Clock{
		Synchronized: state != unix.TIME_ERROR && t.Status&unix.STA_UNSYNC == 0,
		MaxErrorUS:   int64(t.Maxerror), //nolint:unconvert // 32 bits on some architectures
	}
}
