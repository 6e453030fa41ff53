#!/bin/sh
# boot.sh ROOT: does to an unpacked example with Ubuntu what update-initramfs, update-grub and a reboot
# do to a server: the initramfs has the hook's script, modprobe.d and the modules, the boot menu and
# the running kernel have the arguments, and vfio-pci has the devices that its ids= match.
set -eu

cd "$1"
kernel=$(cat proc/sys/kernel/osrelease)
vfio=$(sed -n 's/^options vfio-pci ids=//p' etc/modprobe.d/zz-gpustack.conf 2>/dev/null || :)

# pad SIZE: fills up to a multiple of four bytes.
pad() {
	head -c $(((4 - $1 % 4) % 4)) /dev/zero
}
# entry NAME FILE: writes an entry of a cpio archive (cpio(5), New ASCII Format).
entry() {
	size=$(wc -c <"$2")
	printf '070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X' \
		0 0100644 0 0 1 0 "$size" 0 0 0 0 $((${#1} + 1)) 0
	printf '%s\0' "$1"
	pad $((110 + ${#1} + 1))
	cat "$2"
	pad "$size"
}
# update-initramfs
{
	for file in etc/modprobe.d/*; do
		[ ! -f "$file" ] || entry "$file" "$file"
	done
	if [ -e etc/initramfs-tools/scripts/init-top/gpustack ]; then
		entry scripts/init-top/gpustack etc/initramfs-tools/scripts/init-top/gpustack
		printf '/scripts/init-top/%s "$@"\n' gpustack udev >boot/order
		entry scripts/init-top/ORDER boot/order
		rm boot/order
		grep -o '^kernel/drivers/vfio/[^:]*' "lib/modules/$kernel/modules.dep" | while IFS= read -r module; do
			entry "lib/modules/$kernel/$module" /dev/null
		done
	fi
	entry 'TRAILER!!!' /dev/null
} >"boot/initrd.img-$kernel"

# update-grub
GRUB_CMDLINE_LINUX='' GRUB_CMDLINE_LINUX_DEFAULT=''
# shellcheck source=/dev/null
. ./etc/default/grub
for file in etc/default/grub.d/*.cfg; do
	# shellcheck source=/dev/null
	[ ! -e "$file" ] || . "./$file"
done
root=$(sed -n 's/.* \(root=[^ ]* ro\).*/\1/p' proc/cmdline)
# shellcheck disable=SC2086 # lists of words
arguments=$(echo $root $GRUB_CMDLINE_LINUX $GRUB_CMDLINE_LINUX_DEFAULT)
sed -i "s|^\(.*linux /boot/vmlinuz-$kernel\) .*|\1 $arguments|" boot/grub/grub.cfg

# The reboot.
echo "BOOT_IMAGE=/boot/vmlinuz-$kernel $arguments" >proc/cmdline
printf 'cpu  0 0 0 0 0 0 0 0 0 0\nbtime %s\n' $(($(date +%s) + 60)) >proc/stat
for device in sys/bus/pci/devices/*; do
	ids=$(sed 's/^0x//' "$device/vendor"):$(sed 's/^0x//' "$device/device")
	case ,$vfio, in
	*,"$ids",*)
		mkdir -p sys/bus/pci/drivers/vfio-pci
		ln -sfn "$(readlink "$device/driver" | sed 's,[^/]*$,vfio-pci,')" "$device/driver"
		;;
	esac
done
