package docker_test

import (
	"strings"
	"testing"

	"gpustack/host/docker"
	"gpustack/host/hosttest"
)

func TestReadConf(t *testing.T) {
	t.Parallel()
	on := true
	for name, test := range map[string]struct {
		text string
		want docker.Conf
		err  string
	}{
		"all": {`{"exec-opts":["native.cgroupdriver=systemd"],"features":{"cdi":true,"x":false},"default-ulimits":{"memlock":{"Name":"memlock","Soft":-1,"Hard":-1}},"proxies":{"http-proxy":"http://u:hunter2@p"}}`,
			docker.Conf{ExecOpts: []string{"native.cgroupdriver=systemd"}, Features: docker.Features{CDI: &on},
				Ulimits: map[string]docker.Limit{"memlock": {Soft: -1}}}, ""},
		"empty":     {"\n", docker.Conf{}, ""},
		"malformed": {`{"features":`, docker.Conf{}, "/etc/docker/daemon.json: malformed JSON: unexpected end of JSON input"},
	} {
		c, err := docker.ReadConf(hosttest.Lay(t, "-- etc/docker/daemon.json --\n"+test.text+"\n"))
		if test.err != "" {
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		hosttest.NoError(t, err)
		hosttest.EqualIn(t, name, test.want, *c)
	}
	if c, err := docker.ReadConf(hosttest.Lay(t, "-- etc/hostname --\nx\n")); c != nil || err != nil {
		t.Errorf("absent: %v, %v", c, err)
	}
}
