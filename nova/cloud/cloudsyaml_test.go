package cloud

import (
	"slices"
	"testing"
)

// TestFolders: clouds.yaml is looked for where openstacksdk does. No other test gets to /etc/openstack,
// which may have one.
func TestFolders(t *testing.T) {
	t.Setenv("HOME", "/home/me")
	for _, test := range []struct {
		config, site string
		want         []string
	}{
		{"", "", []string{".", "/home/me/.config/openstack", "/etc/xdg/openstack", "/etc/openstack"}},
		{"/c", "/s", []string{".", "/c/openstack", "/home/me/.config/openstack", "/s/openstack", "/etc/openstack"}},
	} {
		t.Setenv("XDG_CONFIG_HOME", test.config)
		t.Setenv("XDG_CONFIG_DIRS", test.site)
		if got := folders(); !slices.Equal(got, test.want) {
			t.Errorf("XDG_CONFIG_HOME=%s XDG_CONFIG_DIRS=%s: %q", test.config, test.site, got)
		}
	}
}
