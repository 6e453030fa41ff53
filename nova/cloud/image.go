package cloud

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/image/v2/images"

	"gpustack/host"
)

// Image is an image of Glance, without its data.
type Image struct {
	ID    string `json:"id"`    // the id in the API
	Name  string `json:"name"`  // the name, which commands accept too
	Owner string `json:"owner"` // the id of the owner's project
	// as Glance names it: "active", "deactivated", "queued" and others
	Status string `json:"status"`
	// "public", "community", "shared" or "private"
	Visibility string `json:"visibility"`
	// protected from deletion; its values can be changed
	Protected bool `json:"protected"`
	Hidden    bool `json:"hidden"` // lists of images do not show it
	// as Glance names it: "qcow2", "raw" and others
	DiskFormat string `json:"disk_format"`
	// the size of the file; nil until it is uploaded
	Size *int64 `json:"size_bytes"`
	// the size of the disk in the file; nil where Glance does not know it
	VirtualSize *int64 `json:"virtual_size_bytes"`
	// the disk that flavors must have at least; 0 for any
	MinDisk int `json:"min_disk_gib"`
	// the memory that flavors must have at least; 0 for any
	MinRAM     int               `json:"min_ram_mib"`
	Properties map[string]string `json:"properties"` // all other properties, as text
}

// imageAnswer is an image as Glance prints it (api-ref/source/v2/images-parameters.yaml). The type
// of gophercloud has 0 for a virtual size that is null.
type imageAnswer struct {
	images.Image
	Size    *int64
	Virtual *int64
	Format  *string
}

// UnmarshalJSON reads the fields that an image of gophercloud lacks.
func (a *imageAnswer) UnmarshalJSON(text []byte) error {
	var nullable struct {
		Size    *int64  `json:"size"`
		Virtual *int64  `json:"virtual_size"`
		Format  *string `json:"disk_format"`
	}
	if err := json.Unmarshal(text, &nullable); err != nil {
		return err
	}
	a.Size, a.Virtual, a.Format = nullable.Size, nullable.Virtual, nullable.Format
	return json.Unmarshal(text, &a.Image)
}

// notProperties are fields of an image that are not properties, although gophercloud lists them
// there, as it does every field that it does not know.
var notProperties = []string{"os_hash_algo", "os_hash_value", "direct_url", "locations", "stores"}

func (a *imageAnswer) image() Image {
	i := Image{
		ID: a.ID, Name: a.Name, Owner: a.Owner, Status: string(a.Status), Visibility: string(a.Visibility), Protected: a.Protected, Hidden: a.Hidden,
		Size: a.Size, VirtualSize: a.Virtual, MinDisk: a.MinDiskGigabytes, MinRAM: a.MinRAMMegabytes, Properties: map[string]string{},
	}
	i.DiskFormat = host.Value(a.Format)
	for name, value := range a.Properties {
		if text, ok := value.(string); ok && !slices.Contains(notProperties, name) {
			i.Properties[name] = text
		}
	}
	return i
}

// Disk returns the size in bytes of the disk that guests boot from, and false if Glance does not
// know it. A file in the format raw is the disk itself, and so is that of a partition (ami).
func (i Image) Disk() (bytes int64, known bool) {
	switch {
	case i.VirtualSize != nil:
		return *i.VirtualSize, true
	case i.Size != nil && (i.DiskFormat == "raw" || i.DiskFormat == "ami" || i.DiskFormat == "iso"):
		return *i.Size, true
	}
	return 0, false
}

// DiskGiB returns the size of the disk in GiB, rounded up, as flavors count it.
func (i Image) DiskGiB() (gib int, known bool) {
	const unit = 1 << 30
	bytes, known := i.Disk()
	return int((bytes + unit - 1) / unit), known
}

// Names of values of an image that are not properties.
const (
	MinDisk = "min_disk" // GiB
	MinRAM  = "min_ram"  // MiB
)

// Value returns a value of the image by its name, MinDisk and MinRAM as decimal numbers; nil for a
// property that it does not have.
func (i Image) Value(name string) *string {
	var value string
	switch name {
	case MinDisk:
		value = strconv.Itoa(i.MinDisk)
	case MinRAM:
		value = strconv.Itoa(i.MinRAM)
	default:
		has, ok := i.Properties[name]
		if !ok {
			return nil
		}
		value = has
	}
	return &value
}

// With returns the image with other values, each as [Image.Value] returns it.
func (i Image) With(values map[string]*string) (Image, error) {
	i.Properties = maps.Clone(i.Properties)
	if i.Properties == nil {
		i.Properties = map[string]string{}
	}
	for name, value := range values {
		switch {
		case name == MinDisk || name == MinRAM:
			n, err := number(name, value)
			if err != nil {
				return i, err
			}
			if name == MinDisk {
				i.MinDisk = n
			} else {
				i.MinRAM = n
			}
		case value == nil:
			delete(i.Properties, name)
		default:
			i.Properties[name] = *value
		}
	}
	return i, nil
}

func number(name string, value *string) (int, error) {
	if value == nil {
		return 0, fmt.Errorf("%s: the value is missing", name)
	}
	n, err := strconv.Atoi(*value)
	if err != nil {
		return 0, fmt.Errorf("%s: not a number: %q", name, *value)
	}
	return n, nil
}

// glance finds Glance in the catalog.
func (c *Cloud) glance(what string) (*gophercloud.ServiceClient, error) {
	client, err := c.service("image", "v2/")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return client, nil
}

// Image finds an image by its name or its ID, hidden ones too.
//
// Errors: ErrNotFound; several images with the name.
func (c *Cloud) Image(ctx context.Context, nameOrID string) (Image, error) {
	what := "image " + nameOrID
	if isUUID(nameOrID) {
		i, err := c.GetImage(ctx, nameOrID)
		if !errors.Is(err, ErrNotFound) { // it may be a name
			return i, err
		}
	}
	client, err := c.glance(what)
	if err != nil {
		return Image{}, err
	}
	var found []Image
	for _, hidden := range []bool{false, true} { // no request of Glance finds both
		if len(found) > 0 {
			break
		}
		pager := images.List(client, images.ListOpts{Name: nameOrID, Hidden: hidden})
		if found, err = listOf(ctx, c, what, pager, objectsOf[imageAnswer]("images"), (*imageAnswer).image); err != nil {
			return Image{}, err
		}
		// Glance reads "in:" before a name as an operator.
		found = slices.DeleteFunc(found, func(i Image) bool { return i.Name != nameOrID })
	}
	switch len(found) {
	case 0:
		return Image{}, &Error{Doing: what, Kind: ErrNotFound, advice: "openstack image list shows the images that the user may see"}
	case 1:
		return found[0], nil
	}
	ids := host.Map(found, func(i Image) string { return fmt.Sprintf("%s of project %s", i.ID, i.Owner) })
	return Image{}, &Error{Doing: what, Reason: fmt.Sprintf("%d images have that name: %s", len(found), strings.Join(ids, ", ")),
		advice: "give the id instead of the name"}
}

// GetImage returns the image with an ID.
//
// Errors: ErrNotFound.
func (c *Cloud) GetImage(ctx context.Context, id string) (Image, error) {
	what := "image " + id
	client, err := c.glance(what)
	if err != nil {
		return Image{}, err
	}
	var answer imageAnswer
	err = c.ask(ctx, what, func(ctx context.Context) error {
		return images.Get(ctx, client, id).ExtractInto(&answer)
	})
	if err != nil {
		return Image{}, err
	}
	return answer.image(), nil
}

// ImagePatch changes one value of an image.
type ImagePatch struct {
	Name   string
	Exists bool    // the image has the value
	Value  *string // nil removes a property
}

// patch returns the operation of JSON patch as gophercloud has it. Glance has no operation that
// tests a value (RFC 6902, 4.6).
func (p ImagePatch) patch() (images.Patch, error) {
	switch p.Name {
	case MinDisk:
		n, err := number(p.Name, p.Value)
		return images.ReplaceImageMinDisk{NewMinDisk: n}, err
	case MinRAM:
		n, err := number(p.Name, p.Value)
		return images.ReplaceImageMinRam{NewMinRam: n}, err
	}
	op := images.UpdateImageProperty{Op: images.AddOp, Name: p.Name, Value: host.Value(p.Value)}
	switch {
	case p.Value == nil:
		op.Op = images.RemoveOp
	case p.Exists:
		op.Op = images.ReplaceOp
	}
	return op, nil
}

// PatchBody returns the body of the request that [Cloud.UpdateImage] makes.
func PatchBody(patches []ImagePatch) ([]any, error) {
	options, err := updateOpts(patches)
	if err != nil {
		return nil, err
	}
	return options.ToImageUpdateMap()
}

func updateOpts(patches []ImagePatch) (images.UpdateOpts, error) {
	options := images.UpdateOpts{}
	for _, p := range patches {
		op, err := p.patch()
		if err != nil {
			return nil, err
		}
		options = append(options, op)
	}
	return options, nil
}

// UpdateImage changes values of an image, all or none, with one request. Glance compares nothing
// with what was read before.
//
// Errors: ErrForbidden, for the image of another project or a property that a policy protects.
func (c *Cloud) UpdateImage(ctx context.Context, i Image, patches []ImagePatch) error {
	what := "changing image " + i.Name
	client, err := c.glance(what)
	if err != nil {
		return err
	}
	options, err := updateOpts(patches)
	if err != nil {
		return doing(what, err)
	}
	return c.ask(ctx, what, func(ctx context.Context) error {
		return images.Update(ctx, client, i.ID, options).Err
	})
}
