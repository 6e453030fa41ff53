#!/bin/sh
# boot.sh ROOT: plays the reboot of an unpacked example or snapshot. It does to the tree what
# update-initramfs, update-grub or dracut and a boot do to a server: each initramfs has the script,
# modprobe.d and the modules, the boot menu and the running kernel have the arguments, and vfio-pci
# or pci-stub has the functions that the script, ids= and the unit of every boot name.
#
# It reads the files of the tree and runs none of them. What it cannot play it refuses before it has
# changed anything.
set -eu

refuse() {
	echo "boot.sh: $*" >&2
	exit 1
}

[ $# = 1 ] || refuse "usage: boot.sh ROOT, the folder of an unpacked example"
[ -d "$1" ] || refuse "$1: no such folder"
cd "$1"
[ "$(pwd -P)" != / ] || refuse "/ is this machine: run update-initramfs and update-grub, or dracut, and reboot"
[ -r proc/sys/kernel/osrelease ] || refuse "$1: proc/sys/kernel/osrelease is missing: no tree of a machine"
kernel=$(cat proc/sys/kernel/osrelease)
new=$(mktemp -d)
trap 'rm -rf "$new"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# pad SIZE: fills up to a multiple of four bytes.
pad() {
	case $(($1 % 4)) in
	1) printf '\0\0\0' ;;
	2) printf '\0\0' ;;
	3) printf '\0' ;;
	esac
}
# entry NAME FILE: writes an entry of a cpio archive (cpio(5), New ASCII Format).
entry() {
	size=0
	[ ! -s "$2" ] || size=$(wc -c <"$2")
	printf '070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X' \
		0 0100644 0 0 1 0 "$size" 0 0 0 0 $((${#1} + 1)) 0
	printf '%s\0' "$1"
	pad $((110 + ${#1} + 1))
	[ ! -s "$2" ] || cat "$2"
	pad "$size"
}
# image KERNEL: writes the initramfs of a kernel, with $script as the name of gpustack's script.
image() {
	if [ -n "$source" ]; then
		entry "$script" "$source"
		sed -n 's,^\(kernel/drivers/vfio/[^:]*\):.*,\1,p' "lib/modules/$1/modules.dep" | while IFS= read -r module; do
			entry "lib/modules/$1/$module" /dev/null
		done
	fi
	for file in etc/modprobe.d/*; do
		[ ! -f "$file" ] || entry "$file" "$file"
	done
	if [ "$generator" = dracut ]; then
		entry init /dev/null
	elif [ -n "$source" ]; then
		# shellcheck disable=SC2016 # the list has the words "$@"
		printf '/scripts/init-top/%s "$@"\n' gpustack udev >"$new/order"
		entry scripts/init-top/ORDER "$new/order"
	fi
	entry 'TRAILER!!!' /dev/null
}
# grub_arguments VARIABLE: prints the value of a variable in the files of /etc/default, of which it
# reads assignments with one value and the part of gpustack that removes arguments.
grub_arguments() {
	set -- "$1" etc/default/grub
	for file in etc/default/grub.d/*.cfg; do
		[ ! -f "$file" ] || set -- "$@" "$file"
	done
	variable=$1
	shift
	awk -v variable="$variable" '
		function refuse() {
			print FILENAME ":" FNR ": boot.sh cannot evaluate this line" >"/dev/stderr"
			failed = 1
			exit
		}
		/^[^#]*GRUB_CMDLINE_LINUX[A-Z_]*\+=/ { refuse() }
		{ at = index($0, "=") }
		!filter && at && substr($0, 1, at - 1) == variable {
			text = substr($0, at + 1)
			if (text == "\"$(") {
				filter = 1
				next
			}
			quote = substr(text, 1, 1)
			if (quote == "\"" || quote == "\047")
				text = substr(text, 2, length(text) - 2)
			before = index(text, "$" variable)
			if (before == 1)
				text = value substr(text, length(variable) + 2)
			if (text ~ /[$`"\\]/)
				refuse()
			value = text
		}
		filter && /^\t\t\047.*\) ;;$/ {
			line = $0
			sub(/^\t\t/, "", line)
			sub(/\) ;;$/, "", line)
			gsub(/\047/, "", line)
			n = split(line, dropped, / \| /)
			m = split(value, words, /[ \t]+/)
			value = ""
			for (i = 1; i <= m; i++) {
				keep = words[i] != ""
				for (j = 1; j <= n; j++)
					keep = keep && words[i] != dropped[j]
				if (keep)
					value = value (value == "" ? "" : " ") words[i]
			}
		}
		filter && /^\)"$/ { filter = 0 }
		END {
			if (failed)
				exit 1
			print value
		}' "$@" || refuse "$(pwd): GRUB's arguments are unknown"
}

# The initramfs of each kernel.
source=
if [ -d etc/initramfs-tools ] || [ -d usr/share/initramfs-tools ]; then
	generator=initramfs-tools script=scripts/init-top/gpustack
	[ ! -f "etc/initramfs-tools/$script" ] || source=etc/initramfs-tools/$script
elif [ -e usr/bin/dracut ] || [ -d usr/lib/dracut ] || [ -d lib/dracut ]; then
	generator=dracut script=lib/dracut/hooks/pre-udev/00-gpustack.sh
	for file in usr/lib/dracut/modules.d/*gpustack/gpustack.sh lib/dracut/modules.d/*gpustack/gpustack.sh; do
		[ ! -f "$file" ] || source=$file
	done
else
	refuse "$1: neither initramfs-tools nor dracut is installed in it"
fi
kernels=
for file in boot/initrd.img-* boot/initramfs-*.img; do
	[ -f "$file" ] || continue
	release=${file#boot/initrd.img-}
	release=${release#boot/initramfs-}
	release=${release%.img}
	[ -f "lib/modules/$release/modules.dep" ] || continue # of a rescue entry, or of no kernel that is installed
	image "$release" >"$new/${file#boot/}"
	kernels="$kernels $release"
done
case "$kernels " in
*" $kernel "*) ;;
*) refuse "$1: the kernel $kernel has no initramfs in boot, or no modules.dep" ;;
esac

# The boot menu, and the arguments of the next boot.
if [ -d boot/loader/entries ]; then # host prepare has edited the entries
	entry=$(grep -l "^version $kernel\$" boot/loader/entries/*.conf || :)
	[ -f "$entry" ] || refuse "$1: boot/loader/entries has not one entry of $kernel"
	arguments=$(sed -n 's/^options //p' "$entry" | sed 's/\$[a-z_]*//g; s/  */ /g; s/ $//')
	image=$(sed -n 's/^linux //p' "$entry")
else
	[ -f boot/grub/grub.cfg ] || refuse "$1: boot/grub/grub.cfg is missing"
	[ -f etc/default/grub ] || refuse "$1: etc/default/grub is missing"
	image=/boot/vmlinuz-$kernel
	root=$(sed -n "s|.* $image \(root=[^ ]* ro\).*|\1|p" boot/grub/grub.cfg | sed q)
	[ -n "$root" ] || refuse "$1: boot/grub/grub.cfg has no entry of $kernel with root=… ro"
	always=$(grub_arguments GRUB_CMDLINE_LINUX)
	normal=$(grub_arguments GRUB_CMDLINE_LINUX_DEFAULT)
	# shellcheck disable=SC2086,SC2116 # lists of words
	arguments=$(set -f && echo $root $always $normal)
	awk -v image="$image" -v arguments="$arguments" '
		{ at = index($0, image " root=") }
		at { $0 = substr($0, 1, at + length(image)) arguments }
		{ print }' boot/grub/grub.cfg >"$new/grub.cfg"
fi

# From here on the tree is changed.
for file in "$new"/init*; do
	cat "$file" >"boot/${file##*/}"
done
[ ! -f "$new/grub.cfg" ] || cat "$new/grub.cfg" >boot/grub/grub.cfg
echo "BOOT_IMAGE=$image $arguments" >proc/cmdline
# Times of boots and records are whole seconds, those of records rounded. The boot is later than what
# is recorded now. The script ends when all that is recorded then is later than the boot.
booted=$(($(date +%s) + 2))
printf 'cpu  0 0 0 0 0 0 0 0 0 0\nbtime %s\n' $booted >proc/stat
if [ -d sys/class/misc ] && grep -qs '^kvm' etc/modules-load.d/gpustack.conf; then
	mkdir -p sys/class/misc/kvm
fi

# climb PLACE: sets $up to the relative path from a folder below sys/devices to sys/devices.
climb() {
	up='' rest=$1/
	while [ -n "$rest" ]; do
		up=$up../ rest=${rest#*/}
	done
}

# The IOMMU: where it was off, each slot becomes a group, and each PCI Express port. What is behind
# another bridge, a conventional one, is in the group of the bridge.
case " $arguments " in
*" intel_iommu=on "*) [ -e sys/kernel/iommu_groups/0 ] || turned_on=yes ;;
esac
if [ -n "${turned_on-}" ]; then
	mkdir -p sys/class/iommu/dmar0
	last=-1 before=
	for device in sys/bus/pci/devices/*; do
		address=${device##*/} slot=${device%.*}
		place=$(readlink "$device")
		place=${place#../../../devices/}
		case $(readlink "$device/driver" || :) in
		*/pcieport) slot=$device ;;
		esac
		bridge=sys/devices/${place%/*}
		if [ -e "$bridge/class" ] && [ ! -e "$bridge/driver" ]; then
			group=$(readlink "$bridge/iommu_group")
			group=${group##*/}
		else
			[ "$slot" = "$before" ] || last=$((last + 1))
			before=$slot group=$last
		fi
		mkdir -p "sys/kernel/iommu_groups/$group/devices"
		ln -sfn "../../../../devices/$place" "sys/kernel/iommu_groups/$group/devices/$address"
		climb "$place"
		ln -sfn "$up../kernel/iommu_groups/$group" "$device/iommu_group"
	done
fi

# The functions that vfio-pci or pci-stub claims: by ids=, by address in the script, and by address
# in gpustack-boot.service, which reads the record. What it claimed at an earlier boot has the driver
# of the host again. initramfs-tools loads the modules of its file after that, with or without
# gpustack=off, for functions that no driver has yet.
claimed=run/boot.sh
by_ids= by_address= by_hand=
for file in etc/modprobe.d/*gpustack.conf; do
	[ ! -f "$file" ] || by_ids="$by_ids $(sed -n 's/^options \(vfio-pci\|pci-stub\) ids=\(.*\)/\1,\2,/p' "$file")"
done
[ -z "$source" ] || by_address=" $(sed -n 's/^take \([^ ]*\) .* \([^ ]*\)$/\1=\2/p' "$source" | tr '\n' ' ')"
file=var/lib/gpustack/contract.json
if [ -f etc/systemd/system/gpustack-boot.service ] && [ -f $file ]; then
	by_address="$by_address $(sed -n 's/^ *{"address":"\([^"]*\)".*"driver":"\([^"]*\)","by":"service"}.*/\1=\2/p' $file | tr '\n' ' ')"
fi
file=etc/initramfs-tools/modules
if [ "$generator" = initramfs-tools ] && [ -f $file ]; then
	by_hand=$(sed -n 's/^\(vfio\|pci\)[-_]\(pci\|stub\) ids=\([^ ]*\)$/\1-\2,\3,/p' $file)
fi
# claimant PRODUCT DRIVER,IDS,...: sets $claimant to the first driver with the ids of a product.
claimant() {
	product=$1 claimant=
	shift
	for claim; do
		case $claim in
		*,"$product",*)
			claimant=${claim%%,*}
			return
			;;
		esac
	done
}
for device in sys/bus/pci/devices/*; do
	[ -e "$device/vendor" ] || continue
	address=${device##*/} console=
	read -r vendor <"$device/vendor"
	read -r product <"$device/device"
	product=${vendor#0x}:${product#0x}
	# shellcheck disable=SC2086 # a list of words
	claimant "$product" $by_hand
	hand=$claimant
	# shellcheck disable=SC2086 # a list of words
	claimant "$product" $by_ids
	driver=$claimant
	case $by_address in
	*" $address="*)
		driver=${by_address#* "$address"=}
		driver=${driver%% *}
		;;
	esac
	# The console remains with the host, unless the script names it as the one that was selected.
	[ ! -e "$device/boot_vga" ] || read -r console <"$device/boot_vga"
	if [ "$console" = 1 ] && ! grep -qs "^[[:space:]]*1/$address) ;;" "$source"; then
		driver=
	fi
	case " $arguments " in
	*" gpustack=off "*) driver= ;;
	esac
	driver=${driver:-$hand}
	if [ -n "$driver" ]; then
		now=$(readlink "$device/driver" || :)
		place=$(readlink "$device")
		climb "${place#../../../devices/}"
		for folder in "sys/bus/pci/drivers/$driver" "$claimed"; do
			[ -d "$folder" ] || mkdir -p "$folder"
		done
		case $now in
		*/vfio-pci | */pci-stub) ;;
		*) echo "$now" >"$claimed/$address" ;;
		esac
		ln -sfn "$up../bus/pci/drivers/$driver" "$device/driver"
	elif [ -f "$claimed/$address" ]; then
		read -r before <"$claimed/$address"
		rm -f "$device/driver" "$claimed/$address"
		[ -z "$before" ] || ln -s "$before" "$device/driver"
	fi
done

sleep 2
while [ "$(date +%s)" -le $booted ]; do sleep 0.1; done
