package boot_test

import (
	"strings"
	"testing"

	"gpustack/host/boot"
	"gpustack/host/hosttest"
)

// grubMenu is a menu as grub-mkconfig writes it, with an entry of the administrator's that names
// the same root file system in another notation, and one that boots another system.
const grubMenu = `
if [ "${next_entry}" ] ; then
   set default="${next_entry}"
   set next_entry=
   save_env next_entry
   set boot_once=true
else
   set default="DEFAULT"
fi
function load_video {
  if [ x$feature_all_video_module = xy ]; then
    insmod all_video
  fi
}
menuentry 'Debian GNU/Linux' --class debian --class os $menuentry_id_option 'gnulinux-simple-a' {
	linux	/vmlinuz-2 root=UUID=a ro quiet
}
submenu 'Advanced options for Debian GNU/Linux' $menuentry_id_option 'gnulinux-advanced-a' {
	menuentry 'Debian GNU/Linux, with Linux 2' --class debian $menuentry_id_option 'gnulinux-2-advanced-a' {
		linux	/vmlinuz-2 root=UUID=a ro quiet n2
	}
	menuentry 'Debian GNU/Linux, with Linux 2 (recovery mode)' $menuentry_id_option 'gnulinux-2-recovery-a' {
		linux	/vmlinuz-2 root=UUID=a ro single
	}
	menuentry 'Debian GNU/Linux, with Linux 1' --class debian $menuentry_id_option 'gnulinux-1-advanced-a' {
		linux	/vmlinuz-1 root=UUID=a ro quiet
	}
}
menuentry "It's \"mine\" > yours" --id mine {
	linux /vmlinuz root=/dev/sda1 ro
}
menuentry 'Windows Boot Manager' --class windows $menuentry_id_option 'osprober-efi' {
	chainloader /EFI/Microsoft/Boot/bootmgfw.efi
}
if [ -f  ${config_directory}/custom.cfg ]; then
  source ${config_directory}/custom.cfg
fi
`

// TestBoots: the entry that boots is the one that GRUB selects by the menu and its environment.
func TestBoots(t *testing.T) {
	const advanced = "gnulinux-advanced-a>"
	for name, test := range map[string]struct {
		preset, env, more string
		want              string // kernel and arguments
	}{
		"the first":                       {"0", "", "", "/vmlinuz-2 root=UUID=a ro quiet"},
		"an index":                        {"2", "", "", "/vmlinuz root=/dev/sda1 ro"},
		"an index in a submenu":           {"1>2", "", "", "/vmlinuz-1 root=UUID=a ro quiet"},
		"a submenu":                       {"1", "", "", "/vmlinuz-2 root=UUID=a ro quiet n2"},
		"an index after the last":         {"9", "", "", "/vmlinuz-2 root=UUID=a ro quiet"},
		"an id":                           {"mine", "", "", "/vmlinuz root=/dev/sda1 ro"},
		"ids":                             {advanced + "gnulinux-1-advanced-a", "", "", "/vmlinuz-1 root=UUID=a ro quiet"},
		"titles":                          {"Advanced options for Debian GNU/Linux>Debian GNU/Linux, with Linux 1", "", "", "/vmlinuz-1 root=UUID=a ro quiet"},
		"a title that no entry has":       {"Debian", "", "", "/vmlinuz-2 root=UUID=a ro quiet"},
		"saved, none is":                  {"${saved_entry}", "", "", "/vmlinuz-2 root=UUID=a ro quiet"},
		"saved":                           {"${saved_entry}", "saved_entry=mine\n", "", "/vmlinuz root=/dev/sda1 ro"},
		"saved, and not used":             {"0", "saved_entry=mine\n", "", "/vmlinuz-2 root=UUID=a ro quiet"},
		"saved, a title":                  {"${saved_entry}", "saved_entry=It's \"mine\" >> yours\n", "", "/vmlinuz root=/dev/sda1 ro"},
		"next":                            {"0", "next_entry=" + advanced + "gnulinux-1-advanced-a\n", "", "/vmlinuz-1 root=UUID=a ro quiet"},
		"next, and saved":                 {"${saved_entry}", "saved_entry=0\nnext_entry=2\n", "", "/vmlinuz root=/dev/sda1 ro"},
		"next, used up":                   {"${saved_entry}", "saved_entry=0\nnext_entry=\n", "", "/vmlinuz-2 root=UUID=a ro quiet"},
		"recovery":                        {"1>1", "", "", "/vmlinuz-2 root=UUID=a ro single"},
		"another system":                  {"osprober-efi", "", "", "'Windows Boot Manager' "},
		"an entry of the administrator's": {"mine too", "", "-- boot/grub/custom.cfg --\nmenuentry 'mine too' {\nlinux /custom root=/dev/sda1\n}\n", "/custom root=/dev/sda1"},
		// GNU GRUB, util/grub.d/41_custom.in; Red Hat's 01_users; SUSE's 80_suse_btrfs_snapshot.
		"custom.cfg sets the default":            {"0", "", "-- boot/grub/custom.cfg --\n# mine\nset default=2\n", "/boot/grub/custom.cfg may set another"},
		"custom.cfg sets it on a condition":      {"0", "", "-- boot/grub/custom.cfg --\nif true; then default=mine; fi\n", "/boot/grub/custom.cfg may set another"},
		"custom.cfg reads another file":          {"0", "", "-- boot/grub/custom.cfg --\nsource $prefix/more.cfg\n", "/boot/grub/custom.cfg may set another"},
		"custom.cfg with variables and an entry": {"0", "", "-- boot/grub/custom.cfg --\nset timeout=3\nGRUB2_PASSWORD=grub.pbkdf2.x\nmenuentry 'a' {\n  set default=3\n}\n", "/vmlinuz-2 root=UUID=a ro quiet"},
		"another file":                           {"0", "", ". ($root)/x.cfg\n", "/boot/grub/grub.cfg may set another"},
		"another file in the menu's folder":      {"0", "", "if [ -f ${prefix}/user.cfg ]; then\n  source ${prefix}/user.cfg\nfi\n-- boot/grub/user.cfg --\nsavedefault\n", "/boot/grub/user.cfg may set another"},
		"another file that is missing":           {"0", "", "source /.snapshots/grub-snapshot.cfg\n", "/vmlinuz-2 root=UUID=a ro quiet"},
		"an environment that is empty":           {"${saved_entry}", "EMPTY", "", "/vmlinuz-2 root=UUID=a ro quiet"},
		"an environment that is no such":         {"${saved_entry}", "MALFORMED", "", "error"},
		"an environment that is a folder":        {"${saved_entry}", "", "-- boot/grub/grubenv/x --\n", "error"},
		"a folder instead of custom.cfg":         {"0", "", "-- boot/grub/custom.cfg/x --\n", "error"},
	} {
		t.Run(name, func(t *testing.T) {
			tree := hosttest.Distributions["debian"] + "-- boot/grub/grub.cfg --\n" + strings.Replace(grubMenu, "DEFAULT", test.preset, 1) + test.more
			switch test.env {
			case "":
			case "EMPTY", "MALFORMED":
				tree += "-- boot/grub/grubenv --\n" + strings.Trim(strings.ToLower(test.env), "empty")
			default:
				tree += "-- boot/grub/grubenv --\n# GRUB Environment Block\n" + test.env + "####\n"
			}
			root := hosttest.Lay(t, tree)
			grub, err := boot.ReadGrub(root)
			hosttest.NoError(t, err)
			entries, err := grub.Entries(root)
			if test.want == "error" {
				if err == nil {
					t.Error("no error")
				}
				return
			}
			hosttest.NoError(t, err)
			var got []string
			for _, e := range entries {
				if e.Boots {
					got = append(got, e.Kernel+" "+e.Args.String())
				}
				if e.Unsure {
					got = append(got, e.File+" may set another")
				}
			}
			if strings.Join(got, "; ") != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

// TestUnsureEntries: of the menus of a machine with boot entries, the one that loads them counts, with
// the files in its own folder.
func TestUnsureEntries(t *testing.T) {
	const (
		rhel   = "-- boot/loader/entries/f00d-4.18.0.conf --\nversion 4.18.0\nlinux /vmlinuz-4.18.0\noptions root=a\n"
		reads  = "set default=\"${saved_entry}\"\nblscfg\nif [ -z \"${config_directory}\" -a -f $prefix/custom.cfg ]; then\n  source $prefix/custom.cfg\nfi\n"
		link   = "symlink etc/grub2-efi.cfg -> ../boot/efi/EFI/redhat/grub.cfg\n"
		inEFI  = "-- boot/efi/EFI/redhat/grub.cfg --\n"
		custom = "custom.cfg --\nset default=2\n"
		stub   = "search --fs-uuid --set=dev 1234\nset prefix=($dev)/grub2\nexport $prefix\nconfigfile $prefix/grub.cfg\n"
	)
	for name, test := range map[string]struct{ tree, want string }{
		"RHEL 8 on EFI":                {link + rhel + inEFI + reads, ""},
		"RHEL 8 on EFI, a custom.cfg":  {link + rhel + inEFI + reads + "-- boot/efi/EFI/redhat/" + custom, "/boot/efi/EFI/redhat/custom.cfg"},
		"of another folder":            {link + rhel + inEFI + reads + "-- etc/" + custom, ""},
		"RHEL 9":                       {link + rhel + inEFI + stub + "-- boot/grub2/grub.cfg --\n" + reads, ""},
		"RHEL 9, a custom.cfg":         {link + rhel + inEFI + stub + "-- boot/grub2/grub.cfg --\n" + reads + "-- boot/grub2/" + custom, "/boot/grub2/custom.cfg"},
		"RHEL 9, password of the menu": {link + rhel + "-- boot/grub2/grub.cfg --\n" + reads + "-- boot/grub2/custom.cfg --\nGRUB2_PASSWORD=grub.pbkdf2.sha512.1.A.B\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			root := hosttest.Lay(t, test.tree)
			bls, err := boot.ReadBLS(root)
			hosttest.NoError(t, err)
			entries, err := bls.Entries(root)
			got := ""
			if last := entries[len(entries)-1]; last.Unsure {
				got = last.File
			}
			if err != nil || got != test.want {
				t.Errorf("%q, want %q: %v", got, test.want, err)
			}
		})
	}
}
