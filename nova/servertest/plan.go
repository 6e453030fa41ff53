package servertest

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"gpustack/host"
	"gpustack/nova/cloud"
	"gpustack/nova/probe"
)

// Microversions that a test needs for some of its options.
const (
	networkless   cloud.Microversion = 37 // a server may have no network (Newton)
	requestedHost cloud.Microversion = 74 // a server may be requested on a host, to which the filters apply (Train)
)

// Errors of plans.
var (
	// errNeedsTrain says that the cloud cannot create a server on a given host with its filters.
	errNeedsTrain = host.WithHint(errors.New("needs Train: older releases of Nova skip the scheduler's filters for a requested host"),
		"omit --host, or disable the other hosts: openstack compute service set --disable HOST nova-compute")
	// errNeedsNewton says that the cloud cannot create a server without a network.
	errNeedsNewton = host.WithHint(errors.New("needs Newton: older releases of Nova attach every server to a network"), "give a network: --network NAME")
	// errDoesNotFit says that the flavor is too small for the image.
	errDoesNotFit = host.WithHint(errors.New("does not fit into the flavor"), "test with a smaller image, or create a larger flavor")
	// errDisabled says that servers cannot be created with a flavor.
	errDisabled = host.WithHint(errors.New("is disabled: Nova creates no server with it"),
		host.Textf("create another one with the same properties: %s", host.NewCommand("flavor create")))
	// errImageStatus says that servers cannot boot an image.
	errImageStatus = host.WithHint(errors.New("is not active: Nova does not boot it"),
		"wait until it is uploaded, or reactivate it: openstack image set --activate IMAGE")
	// errQuota says that the project's quota is too small.
	errQuota = host.WithHint(errors.New("the quota of the project is too small"), "delete servers of the project, or raise its quota: openstack quota set PROJECT")
	// errOneTimeUse says that devices would stay reserved after the test.
	errOneTimeUse = host.WithHint(host.WithCode(errors.New("the devices can be used once: they stay reserved after the test, until an operator releases them"),
		host.CodeOneTimeUse, "--one-time-use-ok"), "--one-time-use-ok tests them nevertheless")
)

// Options are a test as it is requested.
type Options struct {
	FlavorName string // or its id
	ImageName  string // or its id
	Network    string // a name, an id, cloud.NetworkNone, cloud.NetworkAuto; "" for none where Nova supports that
	Host, Zone string // "" for any
	Count      int    // servers
	Timeout    time.Duration
	Keep       bool          // do not delete the servers
	OneTimeUse bool          // test devices that stay reserved
	Command    probe.Command // that each guest runs after its devices are counted
}

// Quota is a quota with what a test needs of it.
type Quota struct {
	cloud.Quota
	Needed int `json:"needed"` // what the test needs
}

// Plan is a planned test.
type Plan struct {
	Options
	Flavor  cloud.Flavor
	Image   cloud.Image
	Network string // the id of a network, cloud.NetworkNone or cloud.NetworkAuto; "" for what Nova does without one
	// NetworkName is the network as people call it.
	NetworkName string
	Wanted      Wanted
	Servers     []Server // to create
	Quotas      []Quota
	Free        *cloud.Free // of all wanted devices; nil: Placement does not show them
	Warnings    []string
	Ends        time.Time // when the servers are no longer used
}

// deleteTime is how long a server may take to be deleted. A guest with a terabyte of memory that is
// locked for its devices takes minutes.
const deleteTime = 5 * time.Minute

// reportTime is how long the report on a command may take after the command has ended: the guest
// waits for the rest of its output, and prints the report three times within ten seconds.
const reportTime = 30 * time.Second

// longest returns how long a test may wait for its servers.
func (o Options) longest() time.Duration {
	if o.Command.IsNone() {
		return o.Timeout
	}
	return o.Timeout + o.Command.Wait() + reportTime
}

// NewPlan plans a test. The error joins all errors.
//
// Errors: errNeedsTrain, errNeedsNewton, errDisabled, errDoesNotFit, errImageStatus, errQuota,
// errOneTimeUse.
func NewPlan(o Options, is Observed, now time.Time) (Plan, error) {
	p := Plan{Options: o, Flavor: is.Flavor, Image: is.Image, Network: cmp.Or(is.Network.ID, o.Network), Wanted: is.Wanted,
		Warnings: []string{}, Quotas: []Quota{}, Ends: now.Add(o.longest() + deleteTime).UTC().Truncate(time.Second)}
	p.NetworkName = cmp.Or(is.Network.Name, p.Network)
	var errs []error
	switch {
	case p.Network == "" && is.Newest >= networkless:
		p.Network = cloud.NetworkNone
	case p.Network == cloud.NetworkNone && is.Newest < networkless:
		errs = append(errs, fmt.Errorf("--network none %w (it supports %s)", errNeedsNewton, is.Newest))
	case p.Network == cloud.NetworkAuto && is.Newest < networkless:
		p.Network = "" // what Nova does then
	}
	p.NetworkName = cmp.Or(p.NetworkName, p.Network)
	if o.Host != "" && is.Newest < requestedHost {
		errs = append(errs, fmt.Errorf("--host %w (it supports %s)", errNeedsTrain, is.Newest))
	}
	if p.Flavor.Disabled {
		errs = append(errs, fmt.Errorf("flavor %s %w", p.Flavor.Name, errDisabled))
	}
	errs = append(errs, p.checkImage(), p.checkQuotas(is.Quotas), p.checkFree(is))
	for range o.Count {
		nonce, err := newNonce()
		errs = append(errs, err)
		p.Servers = append(p.Servers, Server{Nonce: nonce, Name: prefix + nonce})
	}
	return p, errors.Join(errs...)
}

// checkImage compares the image with the flavor as Nova does when it builds a server
// (nova/compute/api.py, _validate_flavor_image_nostatus), and its disk, which Nova compares only on
// the host. A flavor whose disk is 0 has a disk as large as the image.
func (p *Plan) checkImage() error {
	var errs []error
	i, f := p.Image, p.Flavor
	if p.windows() {
		p.Warnings = append(p.Warnings, fmt.Sprintf("image %s has os_type=windows: its guests do not run the script, so that no devices are counted; %s",
			i.Name, windowsHint))
	}
	if i.Status != "" && i.Status != "active" {
		errs = append(errs, fmt.Errorf("image %s is %s: it %w", i.Name, i.Status, errImageStatus))
	}
	if i.MinRAM > f.RAM {
		errs = append(errs, fmt.Errorf("image %s needs %d MiB of RAM, flavor %s has %d: it %w", i.Name, i.MinRAM, f.Name, f.RAM, errDoesNotFit))
	}
	if f.Disk == 0 {
		return errors.Join(errs...)
	}
	if i.MinDisk > f.Disk {
		errs = append(errs, fmt.Errorf("image %s needs a disk of %d GiB, flavor %s has %d: it %w", i.Name, i.MinDisk, f.Name, f.Disk, errDoesNotFit))
	} else if gib, known := i.DiskGiB(); known && gib > f.Disk {
		errs = append(errs, fmt.Errorf("image %s has a disk of %d GiB, flavor %s one of %d: it %w", i.Name, gib, f.Name, f.Disk, errDoesNotFit))
	}
	return errors.Join(errs...)
}

// windowsHint says how to test a flavor for Windows guests.
const windowsHint = "test the flavor with a Linux image that has the same hw_ properties"

// windows reports whether Nova knows that guests of the image run Windows (nova/objects/
// image_meta.py, os_type). Cloudbase-Init passes a script that begins with #! to bash, which
// Windows does not have (cloudbaseinit/plugins/common/userdatautils.py).
func (p *Plan) windows() bool {
	return p.Image.Properties["os_type"] == "windows"
}

func (p *Plan) checkQuotas(quotas []cloud.Quota) error {
	var errs []error
	needed := map[string]int{"instances": p.Count, "cores": p.Count * p.Flavor.VCPUs, "ram_mib": p.Count * p.Flavor.RAM}
	for _, q := range quotas {
		q := Quota{q, needed[q.Resource]}
		p.Quotas = append(p.Quotas, q)
		if q.Limit >= 0 && q.Used+q.Needed > q.Limit {
			errs = append(errs, fmt.Errorf("%s: %d in use, %d needed, but only %d allowed: %w", q.Resource, q.Used, q.Needed, q.Limit, errQuota))
		}
	}
	return errors.Join(errs...)
}

// checkFree counts the free devices where Placement shows them. Too few are no error: hosts that do
// not report their devices may have others.
func (p *Plan) checkFree(is Observed) error {
	once := ""
	if len(p.Wanted.OneTimeUse) > 0 {
		once = p.Wanted.OneTimeUse[0]
	}
	seen := is.Unread == nil
	for _, class := range slices.Sorted(maps.Keys(p.Wanted.Classes)) {
		free := is.Free[class]
		if free == nil {
			seen = false
			continue
		}
		if p.Free == nil {
			p.Free = &cloud.Free{}
		}
		p.Free.Devices, p.Free.Hosts = p.Free.Devices+free.Devices, max(p.Free.Hosts, free.Hosts)
		if p.Free.OneTimeUse = p.Free.OneTimeUse || free.OneTimeUse; free.OneTimeUse {
			once = "Placement (trait HW_PCI_ONE_TIME_USE)"
		}
		if needed := p.Wanted.Classes[class] * p.Count; free.Devices < needed {
			p.Warnings = append(p.Warnings, fmt.Sprintf("Placement shows %d free devices of %s, and %d are needed: "+
				"other hosts may have some that they do not report", free.Devices, class, needed))
		}
	}
	for _, waiting := range is.ToClean {
		p.Warnings = append(p.Warnings, fmt.Sprintf("%s; run '%s'", waiting, host.NewCommand("nova devices").Flag("state", "to-clean")))
	}
	switch {
	case once != "" && !p.OneTimeUse:
		return fmt.Errorf("by %s: %w", once, errOneTimeUse)
	case once != "":
		p.Warnings = append(p.Warnings, "the devices can be used once: they stay reserved after the test, by "+once)
	case is.Unread != nil:
		p.Warnings = append(p.Warnings, fmt.Sprintf("free devices and one-time-use devices are unknown: %v", is.Unread))
	case !seen:
		p.Free = nil
	}
	return nil
}

// Requests returns the requests that create and delete the servers, to be shown. A command, which
// may contain secrets, is not in them.
func (p *Plan) Requests() ([]cloud.Request, error) {
	requests := []cloud.Request{}
	for _, s := range p.Servers {
		body, err := p.newServer(s).ToServerCreateMap()
		if err != nil {
			return nil, err
		}
		if server, ok := body["server"].(map[string]any); ok && !p.Command.IsNone() {
			server["user_data"] = "***"
		}
		requests = append(requests, cloud.Request{Method: "POST", Path: "/servers", Body: body})
	}
	for range p.Servers {
		if !p.Keep {
			requests = append(requests, cloud.Request{Method: "DELETE", Path: "/servers/ID"})
		}
	}
	return requests, nil
}

// newServer returns the request for a server. The guest gets its script from a drive: it needs
// neither a network nor a metadata service.
func (p *Plan) newServer(s Server) cloud.NewServer {
	ends := p.Ends.Format(time.RFC3339)
	if p.Keep {
		ends = endsNever
	}
	return cloud.NewServer{
		Name: s.Name, Image: p.Image.ID, Flavor: p.Flavor.ID, Network: p.Network, Host: p.Host, Zone: p.Zone, ConfigDrive: true,
		UserData: probe.Script(s.Nonce, probe.Options{Command: p.Command}),
		Metadata: map[string]string{metadataNonce: s.Nonce, metadataEnds: ends},
	}
}

// Names of test servers and their metadata. A server is one of a test if its name and its metadata
// have the same nonce.
const (
	prefix        = "gpustack-test-"
	metadataNonce = "gpustack-test"
	metadataEnds  = "gpustack-test-ends" // when the run that created the server no longer uses it
	endsNever     = "never"              // of a server that is kept
)

// newNonce returns 8 random hexadecimal digits.
func newNonce() (string, error) {
	var b [4]byte
	_, err := rand.Read(b[:])
	return hex.EncodeToString(b[:]), err
}
