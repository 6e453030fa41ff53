package host_test

import (
	"encoding/json"
	"testing"

	"gpustack/host"
	"gpustack/host/hosttest"
)

// programs are all kinds, as journals of all releases hold them.
const programs = `[["update-grub"],["grub2-mkconfig","-o","/etc/grub2.cfg"],["update-initramfs","-u","-k","all"],` +
	`["dracut","--force","/boot/initramfs-5.14.img","5.14"],["kernel-install","add","6.1","/lib/modules/6.1/vmlinuz"],["gpustack","boot","--revert"],["mkinitcpio","-P"]]`

func TestProgramJSON(t *testing.T) {
	var read []host.Program
	hosttest.NoError(t, json.Unmarshal([]byte(programs), &read))
	want := []host.Program{
		{Kind: host.UpdateGrub}, {Kind: host.GrubMkconfig, File: "/etc/grub2.cfg"}, {Kind: host.UpdateInitramfs},
		{Kind: host.Dracut, File: "/boot/initramfs-5.14.img", Release: "5.14"},
		{Kind: host.KernelInstall, File: "/lib/modules/6.1/vmlinuz", Release: "6.1"}, {Kind: host.RevertBoot},
	}
	hosttest.Equal(t, want, read[:6])
	if read[6].Kind != host.OtherProgram || read[6].String() != "mkinitcpio -P" {
		t.Errorf("a program of a later release: %+v", read[6])
	}
	written, err := json.Marshal(read)
	if err != nil || string(written) != programs {
		t.Errorf("written as %s, %v", written, err)
	}
}

// TestOtherPrograms: a known program with arguments of a later release does not make the journal
// unreadable.
func TestOtherPrograms(t *testing.T) {
	for _, text := range []string{
		`["mkinitcpio"]`, `["update-grub","--now"]`, `["grub2-mkconfig"]`, `["grub2-mkconfig","-o"]`, `["grub2-mkconfig","-o",""]`, `["update-initramfs"]`,
		`["dracut","--force","/boot/i"]`, `["dracut","-f","/boot/i","5.14"]`, `["kernel-install","remove","6.1","/k"]`,
	} {
		var p host.Program
		err := json.Unmarshal([]byte(text), &p)
		written, writeErr := json.Marshal(p)
		if err != nil || writeErr != nil || p.Kind != host.OtherProgram || string(written) != text {
			t.Errorf("%s: %+v, written as %s: %v, %v", text, p, written, err, writeErr)
		}
	}
}

func TestParseProgramErrors(t *testing.T) {
	for _, text := range []string{`[]`, `[""]`, `null`, `"update-grub"`, `[1]`} {
		var p host.Program
		if err := json.Unmarshal([]byte(`[`+text+`]`), &[]*host.Program{&p}); err == nil && text != "null" {
			t.Errorf("%s: %+v", text, p)
		}
		if err := p.UnmarshalJSON([]byte(text)); err == nil {
			t.Errorf("%s: %+v", text, p)
		}
	}
}
