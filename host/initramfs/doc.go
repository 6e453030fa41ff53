// Package initramfs configures initramfs-tools and dracut so that the initramfs binds functions to
// a VFIO driver before udev loads the host's drivers: [Early.Plan]. It also reads initramfs images
// ([Read]) and verifies that they do so ([Early.Verify]).
//
// It does not run the generator or decide which functions to bind: that is host/prepare's part.
package initramfs
