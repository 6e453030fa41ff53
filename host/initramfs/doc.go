// Package initramfs gives functions to a driver of VFIO's while the kernel starts,
// before udev loads the host's drivers, through the program that makes the
// initramfs: initramfs-tools or dracut. It reads what an initramfs holds, and tells
// whether that is what was wanted.
//
// Does not: make the initramfs itself, or decide which functions to take
// (host/prepare).
package initramfs
