package containercheck

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/container"
	"gpustack/host/nvidia"
)

// injections returns what the specs in use and NVIDIA's runtimes give containers of an image, of
// each spec what its first device does.
func (v view) injections(i container.Image) (all []container.Given) {
	for _, g := range v.given {
		if g.Library != "" && !slices.ContainsFunc(all, func(o container.Given) bool { return o.File == g.File }) {
			all = append(all, g)
		}
	}
	for _, r := range v.Injectors.Value {
		all = append(all, r.Gives(v.Driver.Value, &i, v.Architecture))
	}
	return all
}

// images judges the images of --image: which libcuda their programs load, whether the driver runs
// their CUDA runtime, and whether their libraries see the adapters.
func (v view) images() []host.Finding {
	if len(v.Images) == 0 {
		return checklist.NA("no image is named: --image-dir judges one")
	}
	var findings []host.Finding
	for _, i := range v.Images {
		if i.Err != nil {
			findings = append(findings, host.Finding{
				Status: host.NA, File: i.Name, Seen: i.Err.Error(), Effect: "nothing of the image is known", Remedy: host.Plain("name the root folder of an image"),
			})
			continue
		}
		of := v.image(i)
		if len(of) == 0 {
			of = checklist.Pass("%s: nothing in it conflicts with this node", i.Name)
			of[0].File = i.Name
		}
		findings = append(findings, of...)
	}
	return findings
}

// image judges one image.
func (v view) image(i container.Image) (findings []host.Finding) {
	add := func(status host.Status, file, seen, effect string, remedy host.Text) {
		findings = append(findings, host.Finding{Status: status, File: file, Seen: i.Name + ": " + seen, Effect: effect, Remedy: remedy})
	}
	if node := v.Architecture; len(i.Architectures) > 0 && !slices.Contains(i.Architectures, node) {
		add(host.Fail, "", fmt.Sprintf("it is built for %s, and this node is %s", strings.Join(i.Architectures, ", "), node),
			`programs of the image do not start: "exec format error"`, host.Plain("use the image for the node: podman pull --arch "+node+" IMAGE"))
		return findings
	}
	usesCUDA := len(i.Runtimes) > 0 || len(i.Libraries) > 0
	if i.Musl && (usesCUDA || len(i.Verbs.Libraries()) == 0) {
		status := host.Warn
		if usesCUDA {
			status = host.Fail
		}
		add(status, "", "its loader is that of musl", "it does not load the driver's libraries, which are built for glibc, nor does nvidia-smi run: "+insufficient,
			host.Plain("use an image with glibc"))
	}
	if usesCUDA && v.Driver.Seen() {
		v.imageRuntimes(i, v.imageDrivers(i, add), add)
	}
	if v.Stack.Seen() {
		v.imageAdapters(i, add)
	}
	return findings
}

type adder func(status host.Status, file, seen, effect string, remedy host.Text)

// runs is a version of the driver that CUDA of an image runs with: that of the loaded module, or of
// libraries of forward compatibility that work with it.
type runs struct {
	with   string // the kind of the spec, or NVIDIA's runtime; "" without either
	driver nvidia.Version
}

// imageDrivers judges the driver's libraries that programs of the image load. It returns what their
// CUDA runs with, for each way in which containers get the driver; nothing if none is loaded.
func (v view) imageDrivers(i container.Image, add adder) (all []runs) {
	d := v.Driver.Value
	own := func(link string) (libraries []container.ImageLibrary) {
		return host.Filter(i.Libraries, func(l container.ImageLibrary) bool { return l.Link == link && !l.Forward })
	}
	if d.Loaded == nil {
		for _, l := range own(container.CUDALink) {
			add(host.Fail, l.Path, fmt.Sprintf("it has libcuda %s, and this node has no driver loaded", orUnknown(l.Version)),
				"libcuda alone finds no GPU: "+noDevice+", "+notLoaded, host.Plain("load the driver on the host: see module"))
		}
		return nil
	}
	injections, runtimes := v.injections(i), v.Injectors
	if !runtimes.Seen() {
		unread := checklist.Unread(runtimes.File, runtimes.Err)[0]
		add(unread.Status, unread.File, unread.Seen, "with NVIDIA's runtime, programs may load another libcuda, or none", unread.Remedy)
	}
	if len(injections) == 0 && runtimes.Seen() {
		driver := d.Loaded.Version
		switch copies := own(container.CUDALink); {
		case len(copies) == 0:
			add(host.Fail, "", "it has a CUDA runtime and no libcuda, and no CDI spec of this node gives it one", insufficient+"; nothing is too old",
				host.Textf("%s, and start containers with the device: podman run --device gpustack.local/gpu=ADDRESS", v.prepare()))
		default:
			driver = v.judgeOwn(copies[0], "no CDI spec of this node gives it another one", add)
		}
		all = append(all, runs{driver: driver})
	}
	for _, in := range injections {
		driver := d.Loaded.Version
		compat := v.compat(i, in)
		switch taken, found := i.Takes(in.Injection); {
		case compat != nil:
			driver = v.judgeOwn(*compat, "programs load it", add)
		case !found:
			add(host.Warn, in.File, fmt.Sprintf("%s mounts libcuda into %s, "+
				"where its loader looks only if LD_LIBRARY_PATH of the image names the folder", in.Kind, in.Folder),
				"otherwise CUDA finds no libcuda: "+insufficient, host.Textf("%s", v.prepare().Flag("library-path")))
		case taken != "":
			l := i.Libraries[slices.IndexFunc(i.Libraries, func(l container.ImageLibrary) bool { return l.Path == taken })]
			driver = v.judgeOwn(l, "programs load it instead of the one of "+in.Kind, add)
		}
		all = append(all, runs{in.Kind, driver})
	}
	for _, l := range own(container.NVMLLink) {
		if len(own(container.CUDALink)) == 0 && l.Version.Differs(d.Loaded.Version) {
			add(host.Warn, l.Path, fmt.Sprintf("it has its own %s %s, the loaded module is %s", container.NVMLLink, l.Version, d.Loaded.Version),
				"nvidia-smi may load it: "+mismatchNVML, host.Plain("remove the packages of the driver from the image"))
		}
	}
	return all
}

// compatFolder is the folder in which NVIDIA's runtime and its hook look for libraries of forward
// compatibility (nvidia-container-toolkit, cmd/nvidia-cdi-hook/cudacompat).
const compatFolder = "/usr/local/cuda/compat"

// compat returns the libcuda of forward compatibility that an injection has programs of the image
// load, nil if there is none for the loaded driver.
func (v view) compat(i container.Image, in container.Given) *container.ImageLibrary {
	if !in.Compat || in.Env {
		return nil
	}
	loaded := v.Driver.Value.Loaded.Version
	for k, l := range i.Libraries {
		if l.Link == container.CUDALink && path.Dir(l.Path) == compatFolder && l.Version.Branch() > loaded.Branch() {
			return &i.Libraries[k]
		}
	}
	return nil
}

// judgeOwn judges a libcuda of the image that its programs load, and returns the version of the
// driver that CUDA runs with.
func (v view) judgeOwn(l container.ImageLibrary, why string, add adder) (cuda nvidia.Version) {
	d := v.Driver.Value
	remedy := host.Textf("remove the packages of the driver from the image (libcuda1, nvidia-driver-*); %s has the host's loaded first",
		v.prepare().Flag("library-path"))
	switch {
	case l.Forward && v.refusesCompat(l, add):
	case l.Forward && l.Version.Compare(d.Loaded.Version) > 0:
		return l.Version
	case l.Version == "":
		add(host.Warn, l.Path, fmt.Sprintf("it has its own libcuda of an unknown version, and %s", why), "unless it is of version "+string(d.Loaded.Version)+": "+versionsDiffer, remedy)
	case l.Version.Differs(d.Loaded.Version):
		age := "newer"
		if l.Version.Compare(d.Loaded.Version) < 0 {
			age = "older"
		}
		add(host.Fail, l.Path, fmt.Sprintf("it has its own libcuda %s, which is %s than the loaded module %s, and %s", l.Version, age, d.Loaded.Version, why),
			versionsDiffer+"; "+kernelMismatch, remedy)
	}
	return d.Loaded.Version
}

// refusesCompat reports libraries of forward compatibility that programs load on a GPU that does not
// support them.
func (v view) refusesCompat(l container.ImageLibrary, add adder) bool {
	i := slices.IndexFunc(v.Driver.Value.GPUs, nvidia.GPU.IsConsumer)
	if i < 0 {
		return false
	}
	g := v.Driver.Value.GPUs[i]
	add(host.Fail, l.Path, fmt.Sprintf("it has libraries of forward compatibility (%s), and %s is a %s", orUnknown(l.Version), g.Address, *g.Model),
		"forward compatibility is for data centre GPUs: "+noForward,
		host.Plain("remove the package cuda-compat from the image, or its folder from LD_LIBRARY_PATH and ld.so.conf.d"))
	return true
}

func orUnknown(version nvidia.Version) string {
	if version == "" {
		return "of an unknown version"
	}
	return string(version)
}

// imageRuntimes compares the CUDA runtimes of an image with the oldest driver that they run with.
// Whether programs have machine code for the GPU is not judged.
func (v view) imageRuntimes(i container.Image, all []runs, add adder) {
	if len(all) == 0 {
		return
	}
	byVersion := func(a, b runs) int { return a.driver.Compare(b.driver) }
	driver, best := slices.MinFunc(all, byVersion).driver, slices.MaxFunc(all, byVersion)
	for _, r := range i.Runtimes {
		switch accepted, needed := nvidia.Accepts(string(r.Release), driver); {
		case accepted == nvidia.TooOld:
			status, effect := host.Fail, insufficient
			if with, _ := nvidia.Accepts(string(r.Release), best.driver); with != nvidia.TooOld {
				status, effect = host.Warn, fmt.Sprintf("%s; with %s it runs by forward compatibility", insufficient, best.with)
			}
			add(status, r.Path, fmt.Sprintf("its CUDA runtime %s needs driver %s or later, loaded is %s", r.Release, needed, driver), effect,
				host.Plain("upgrade the driver, or use an image for CUDA "+string(nvidia.CUDA(driver))+" or earlier"))
		case accepted == nvidia.Minor && needed != "":
			add(host.Warn, r.Path, fmt.Sprintf("its CUDA runtime %s came with driver %s, loaded is %s", r.Release, needed, driver),
				"it runs by minor version compatibility: programs that bring PTX alone, or call functions of a later driver, fail",
				host.Plain("upgrade the driver, or use an image for CUDA "+string(nvidia.CUDA(driver))))
		case accepted == nvidia.Unknown:
			add(host.NA, r.Path, fmt.Sprintf("which driver its CUDA runtime %s needs is not known", orUnknown(r.Release)), "",
				host.Plain("see NVIDIA's release notes of the toolkit"))
		}
	}
}

// providers are the packages with the libraries of adapters' drivers.
var providers = host.Packages{host.DebianFamily: "ibverbs-providers", host.RHELFamily: "libibverbs", host.SUSEFamily: "libibverbs"}

// imageAdapters judges whether the libraries of an image see the adapters that its containers can
// get. An image without libibverbs does not use them.
func (v view) imageAdapters(i container.Image, add adder) {
	if len(i.Verbs.Libraries()) == 0 {
		return
	}
	if seen, file := i.Verbs.Mixed(); seen != "" {
		add(host.Fail, file, seen, "programs load the libraries of one release only; with the others they do not see adapters: "+noAdapters,
			host.Plain("keep one release of rdma-core in the image: that of its distribution, or the vendor's (MLNX_OFED, DOCA)"))
	}
	for _, a := range v.Stack.Value.Adapters {
		if a.Verbs == nil {
			continue
		}
		if why, message := i.Verbs.Refuses(a); why != "" {
			add(host.Fail, "", fmt.Sprintf("%s: %s", a.Title(), why), "programs in the container do not see the adapter: "+message,
				host.Plain("install the providers of the image's own rdma-core: "+i.Family.Install(providers)+"; never mount the host's library into it"))
		}
	}
	if !i.CM && len(v.Stack.Value.Adapters) > 0 {
		add(host.Warn, "", "it has libibverbs and no librdmacm", "programs that connect by address, such as rping, do not start",
			host.Plain("install librdmacm1 in the image"))
	}
}
