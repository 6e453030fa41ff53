package chain

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/image/v2/imagedata"
	"github.com/gophercloud/gophercloud/v2/openstack/image/v2/images"

	"gpustack/integration/nova"
)

// Names of the images in Glance.
const (
	LinuxImage = "linux-that-counts" // runs the user_data of its config drive
	GRUBImage  = "grub-lspci"        // prints the ids of all functions
)

// StartControllers brings up a control plane below a folder, which must be empty and have a short
// name. It has no compute host, no options for PCI devices, and Glance has the guests' images.
func StartControllers(ctx context.Context, dir string, guests Guests) (*nova.Lab, error) {
	lab, err := nova.StartControllers(ctx, dir)
	if err != nil {
		return nil, err
	}
	if err := upload(ctx, lab, guests); err != nil {
		return nil, errors.Join(err, lab.Stop())
	}
	return lab, nil
}

// upload gives Glance the guests. Nova has QEMU start the kernel that an image names, beside the
// image's disk, which is empty.
func upload(ctx context.Context, lab *nova.Lab, guests Guests) error {
	session, err := lab.Client(ctx)
	if err != nil {
		return err
	}
	glance, err := openstack.NewImageV2(session, gophercloud.EndpointOpts{Region: nova.Region})
	if err != nil {
		return err
	}
	add := func(name, format, file string, properties map[string]string) (id string, err error) {
		container := format
		if format == "raw" {
			container = "bare"
		}
		public := images.ImageVisibilityPublic
		made, err := images.Create(ctx, glance, images.CreateOpts{
			Name: name, ContainerFormat: container, DiskFormat: format, Visibility: &public, Properties: properties,
		}).Extract()
		if err != nil {
			return "", fmt.Errorf("image %s: %w", name, err)
		}
		data, err := os.Open(file)
		if err != nil {
			return "", err
		}
		defer data.Close()
		if err := imagedata.Upload(ctx, glance, made.ID, data).ExtractErr(); err != nil {
			return "", fmt.Errorf("image %s: %w", name, err)
		}
		return made.ID, nil
	}
	kernel, err := add("kernel", "aki", guests.Kernel, nil)
	if err != nil {
		return err
	}
	initramfs, err := add("initramfs", "ari", guests.Initramfs, nil)
	if err != nil {
		return err
	}
	// The machine pc has the CD-ROM drive at a controller that the guest has a driver for; the
	// guest needs no display, and does not turn its power off when it is asked to.
	_, err = add(LinuxImage, "raw", guests.Empty, map[string]string{
		"kernel_id": kernel, "ramdisk_id": initramfs, "os_command_line": kernelArguments,
		"hw_machine_type": "pc", "hw_video_model": "none", "os_shutdown_timeout": "0",
	})
	if err != nil {
		return err
	}
	_, err = add(GRUBImage, "raw", guests.GRUB, map[string]string{"hw_machine_type": "pc", "hw_video_model": "none", "os_shutdown_timeout": "0"})
	return err
}
