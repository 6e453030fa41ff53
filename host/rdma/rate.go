package rdma

import (
	"strconv"

	"gpustack/host"
)

// rateWords is the form of a port's rate (Linux, drivers/infiniband/core/sysfs.c, rate_show): older
// kernels name no speed for SDR.
var rateWords = host.LazyRegexp(`^([0-9]+(?:\.[0-9]+)?) Gb/sec \(([0-9]+)X(?: ([A-Z0-9]+))?\)$`)

// DataRate returns how much data the port can carry in each direction, in gigabits (10^9) per
// second, and the name of the encoding that its rate includes. The rate of InfiniBand's SDR, DDR,
// QDR and FDR is that of signals; the encoding takes a part of it (InfiniBand Architecture
// Specification, volume 2, 5.2). Other rates are those of data: their encoding is "". ok is false
// if the kernel shows no rate.
func (p Port) DataRate() (gbps float64, encoding string, ok bool) {
	words := rateWords().FindStringSubmatch(p.Rate)
	if words == nil {
		return 0, "", false
	}
	rate, err := strconv.ParseFloat(words[1], 64)
	lanes, tooMany := strconv.Atoi(words[2])
	if err != nil || tooMany != nil || rate <= 0 {
		return 0, "", false
	}
	if p.IsInfiniBand() {
		switch words[3] {
		case "", "SDR", "DDR", "QDR":
			return rate * 8 / 10, "8b/10b", true
		case "FDR": // the kernel rounds 14.0625 Gb/s of a lane to 14
			return 14.0625 * float64(lanes) * 64 / 66, "64b/66b", true
		}
	}
	return rate, "", true
}
