package host_test

import (
	"strings"
	"testing"

	"gpustack/host"
	"gpustack/host/hosttest"
)

func TestReadFacts(t *testing.T) {
	const loaderInfo = "sys/firmware/efi/efivars/LoaderInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
	// Attributes, then "systemd-boot 252.4" and a zero in UTF-16.
	efi := "base64 " + loaderInfo + "\n"
	systemdBoot := "-- " + loaderInfo + " --\nBgAAAHMAeQBzAHQAZQBtAGQALQBiAG8AbwB0ACAAMgA1ADIALgA0AAAA\n"

	for _, test := range []struct {
		name, tree string
		want       string // "hostname|kernel|distribution|CPU vendor|boot loader", - for nil
		warnings   []string
	}{
		{"a bare tree", "mkdir sys\n", "-|-|-|-|-", nil},
		{"the running name counts before the one in etc",
			"-- etc/hostname --\nold\n-- proc/sys/kernel/hostname --\nnew\n", "new|-|-|-|-", nil},
		{"an image has the name in etc only", "-- etc/hostname --\ngpu1\n", "gpu1|-|-|-|-", nil},
		{"a name that is none", "-- proc/sys/kernel/hostname --\n{{ 7 }}\n", "-|-|-|-|-",
			[]string{`/proc/sys/kernel/hostname: "{{ 7 }}" ` + host.ErrName.Error()}},
		{"a kernel without a name", "-- proc/sys/kernel/hostname --\n(none)\n-- etc/hostname --\ngpu1\n", "gpu1|-|-|-|-", nil},
		{"kernel", "-- proc/sys/kernel/osrelease --\n6.1.0-28-amd64\n", "-|6.1.0-28-amd64|-|-|-", nil},
		{"quoted os-release", "-- etc/os-release --\n# remark\nID=\"rhel\"\nVERSION_ID='9.4'\n", "-|-|rhel 9.4|-|-", nil},
		{"os-release of a rolling distribution", "-- usr/lib/os-release --\nID=arch\n", "-|-|arch|-|-", nil},
		{"the first os-release counts", "-- etc/os-release --\nID=debian\nVERSION_ID=12\n-- usr/lib/os-release --\nID=other\n", "-|-|debian 12|-|-", nil},
		{"os-release without an ID", "-- etc/os-release --\nNAME=x\n", "-|-|-|-|-", []string{"/etc/os-release: no ID"}},
		{"os-release is a folder", "mkdir etc/os-release\n", "-|-|-|-|-", []string{"/etc/os-release: not a regular file"}},
		{"Intel", "-- proc/cpuinfo --\nprocessor\t: 0\nvendor_id\t: GenuineIntel\n", "-|-|-|intel|-", nil},
		{"AMD", "-- proc/cpuinfo --\nprocessor\t: 0\nvendor_id\t: AuthenticAMD\n", "-|-|-|amd|-", nil},
		{"arm64", "-- proc/cpuinfo --\nprocessor\t: 0\nCPU implementer\t: 0x41\n", "-|-|-|arm|-", nil},
		{"another x86 vendor", "-- proc/cpuinfo --\nvendor_id\t: Shanghai\n", "-|-|-|shanghai|-", nil},
		{"GRUB on Debian", "-- boot/grub/grub.cfg --\n", "-|-|-|-|grub", nil},
		{"GRUB on SUSE", "-- boot/grub2/grub.cfg --\n-- etc/default/grub --\nGRUB_TIMEOUT=8\n", "-|-|-|-|grub", nil},
		{"GRUB with entries on RHEL", "-- boot/grub2/grub.cfg --\n-- etc/default/grub --\nGRUB_ENABLE_BLSCFG=true\n", "-|-|-|-|grub-bls", nil},
		{"entries spoken of in a remark only", "-- boot/grub2/grub.cfg --\n-- etc/default/grub --\n#GRUB_ENABLE_BLSCFG=true\n", "-|-|-|-|grub", nil},
		{"systemd-boot on the system partition", "mkdir boot/efi/EFI/systemd\n", "-|-|-|-|systemd-boot", nil},
		{"the firmware's word counts before leftover files", efi + "-- boot/grub/grub.cfg --\n" + systemdBoot, "-|-|-|-|systemd-boot", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			facts, warnings := host.ReadFacts(hosttest.Lay(t, test.tree))
			got := strings.Join([]string{
				orDash(facts.Hostname), orDash(facts.Kernel), orDash(facts.Distribution), orDash(facts.CPUVendor), orDash(facts.BootLoader),
			}, "|")
			hosttest.EqualIn(t, "facts", test.want, got)
			hosttest.EqualIn(t, "warnings", test.warnings, warnings)
		})
	}
}

func orDash(s *string) string {
	if s == nil {
		return "-"
	}
	return *s
}
