package service

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// Ports returns free TCP ports of 127.0.0.1. They lie below those that Linux takes
// for outgoing connections (32768 on, ip_local_port_range in ip(7)): else, while a
// service is down, a client's connection could sit on the port that the service is
// to have again.
func Ports(n int) ([]int, error) {
	const first, end, tries = 10240, 32768, 1000
	var ports []int
	for range tries {
		if len(ports) == n {
			return ports, nil
		}
		port := first + rand.IntN(end-first)
		listener, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		defer listener.Close() // held until all are found, so that none comes twice
		ports = append(ports, port)
	}
	return nil, fmt.Errorf("%d free ports are not to be had on 127.0.0.1", n)
}
