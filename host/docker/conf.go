// Package docker reads how dockerd is configured: [ReadConf]. It asks no running dockerd and
// changes nothing.
package docker

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"gpustack/host"
)

// ConfFile is the configuration of dockerd.
const ConfFile = "/etc/docker/daemon.json"

// Installed reports whether dockerd is installed, by Docker's packages or by Debian's.
func Installed(root host.Root) (bool, error) {
	for _, program := range []string{"/usr/bin/dockerd", "/usr/sbin/dockerd"} {
		if ok, err := root.Exists(program); ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}

// Conf is what gpustack uses of the configuration (dockerd(8), "Daemon configuration file").
type Conf struct {
	ExecOpts []string         `json:"exec-opts,omitempty"`       // "native.cgroupdriver=systemd"
	Ulimits  map[string]Limit `json:"default-ulimits,omitempty"` // of containers that set none
	Features Features         `json:"features"`
	CDIDirs  []string         `json:"cdi-spec-dirs,omitempty"` // instead of /etc/cdi and /var/run/cdi
	// Runtimes are the programs that containers can be started with, besides runc.
	Runtimes map[string]Runtime `json:"runtimes,omitempty"`
}

// Runtime is a program that starts containers.
type Runtime struct {
	Path string `json:"path,omitempty"`
}

// Limit is a limit of containers; a negative one is none.
type Limit struct{ Soft int64 }

// Features are the features of dockerd that can be switched.
type Features struct {
	CDI *bool `json:"cdi,omitempty"` // whether CDI specs are read, nil for the default
}

// ReadConf reads the configuration, nil if there is none. A snapshot contains only what Conf has:
// the file may have passwords of proxies. The error names the file.
func ReadConf(root host.Root) (*Conf, error) {
	data, err := root.ReadReduced(ConfFile, func(data []byte) []byte {
		c, err := parse(data)
		kept, failed := json.Marshal(c)
		if errors.Join(err, failed) != nil {
			return []byte("{") // malformed there too
		}
		return kept
	})
	if host.IsAbsent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	c, err := parse(data)
	if err != nil {
		return nil, host.OfFile(ConfFile, fmt.Errorf("malformed JSON: %w", err))
	}
	return &c, nil
}

func parse(data []byte) (c Conf, err error) {
	if len(strings.TrimSpace(string(data))) == 0 {
		return c, nil // dockerd accepts an empty file
	}
	return c, json.Unmarshal(data, &c)
}
