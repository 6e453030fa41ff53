package cloud

import (
	"context"
	"fmt"

	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/image/v2/images"
)

// Image is the requirements of an image for the flavors that boot it.
type Image struct {
	Name    string
	MinDisk int   // GiB; 0 for none
	MinRAM  int   // MiB; 0 for none
	Size    int64 // bytes of its disk, or of its file if Glance does not know the disk
}

// Image finds an image by its name or its ID.
//
// Errors: ErrNotFound; several images with the name.
func (c *Cloud) Image(ctx context.Context, nameOrID string) (Image, error) {
	what := "image " + nameOrID
	client, err := openstack.NewImageV2(c.provider, c.endpoint)
	if err != nil {
		return Image{}, doing(what, err)
	}
	var found []images.Image
	err = c.ask(ctx, what, func(ctx context.Context) error {
		if isUUID(nameOrID) {
			image, err := images.Get(ctx, client, nameOrID).Extract()
			if err == nil {
				found = []images.Image{*image}
			}
			return err
		}
		page, err := images.List(client, images.ListOpts{Name: nameOrID}).AllPages(ctx)
		if err != nil {
			return err
		}
		found, err = images.ExtractImages(page)
		return err
	})
	switch {
	case err != nil:
		return Image{}, err
	case len(found) == 0:
		return Image{}, &Error{Doing: what, Kind: ErrNotFound}
	case len(found) > 1:
		return Image{}, &Error{Doing: what, Reason: fmt.Sprintf("%d images have that name; use the id", len(found))}
	}
	i := found[0]
	return Image{i.Name, i.MinDiskGigabytes, i.MinRAMMegabytes, max(i.VirtualSize, i.SizeBytes)}, nil
}
