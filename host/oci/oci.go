// Package oci unpacks what is of interest for drivers of the image in an OCI layout: the libraries
// of NVIDIA's driver, of CUDA and of RDMA, by name, and the configuration of the loader.
// [UnpackTemporary] streams layers, with their whiteouts.
//
// It needs neither root nor a container runtime, and fetches nothing.
package oci

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"gpustack/host"
)

// Config is what an image's configuration says about its loader. Other variables of its environment
// may be secret and are not kept.
type Config struct {
	LibraryPath  []string // LD_LIBRARY_PATH
	Architecture string   // "amd64", as Go names it; "" if the configuration names none
}

// Errors of images that are not OCI layouts.
var (
	ErrArchive = host.WithHint(errors.New("is a file, not a folder"), "save the image as a folder: podman save --format oci-dir -o DIR IMAGE")
	errDocker  = host.WithHint(errors.New("is an image in the format of docker save, not an OCI layout"),
		"convert it: skopeo copy docker-archive:FILE oci:DIR, or save it by podman save --format oci-dir -o DIR IMAGE")
	ErrChoice  = host.WithHint(errors.New("more than one image"), "copy the one to judge into a layout of its own: skopeo copy oci:DIR:TAG oci:OTHER")
	ErrDamaged = host.WithHint(errors.New("is damaged"), "save the image again")
	// ErrPlatform is the error of a layout without an image for the node.
	ErrPlatform = host.WithHint(errors.New("no image for this node"), "save the one for the node's architecture: podman pull --arch ARCHITECTURE IMAGE")
	// errEncrypted is the error of a layer that only a key can read.
	errEncrypted = host.WithHint(errors.New("is encrypted"), "decrypt the image: skopeo copy --decryption-key KEY oci:DIR oci:OTHER")
)

// descriptor points to a blob (OCI image-spec, descriptor.md).
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Annotations map[string]string `json:"annotations"`
	Platform    *platform         `json:"platform"`
}

// platform is what an image is for (OCI image-spec, image-index.md).
type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

func (p platform) String() string {
	if p.OS == "" {
		p.OS = linux
	}
	return p.OS + "/" + p.Architecture
}

const linux = "linux"

// document is an index or a manifest.
type document struct {
	Manifests []descriptor `json:"manifests"`
	Config    descriptor   `json:"config"`
	Layers    []descriptor `json:"layers"`
}

// layout is an OCI layout.
type layout struct {
	name         string
	architecture string // of the node
}

// index reads the layout's index and, if there is one, its version (OCI image-spec,
// image-layout.md).
func (l layout) index() (index document, err error) {
	read := func(file string, v any) error {
		data, err := readFile(filepath.Join(l.name, file))
		if err != nil {
			return fmt.Errorf("%s: %s: %w", l.name, file, host.Cause(err))
		}
		if err := json.Unmarshal(data, v); err != nil {
			return fmt.Errorf("%s: %s: malformed JSON: %w", l.name, file, err)
		}
		return nil
	}
	var version struct {
		Version string `json:"imageLayoutVersion"`
	}
	err = read("oci-layout", &version)
	switch {
	case host.IsAbsent(err): // older programs wrote none
	case err != nil:
		return index, err
	case !strings.HasPrefix(version.Version, "1."):
		return index, fmt.Errorf("%s: oci-layout: %w: imageLayoutVersion %q is not 1", l.name, ErrDamaged, version.Version)
	}
	return index, read("index.json", &index)
}

// maxDocument is the most bytes that a document has: the limit of registries (OCI
// distribution-spec).
const maxDocument = 4 << 20

// openFile opens a regular file. Anything else, such as a named pipe, may block for ever.
func openFile(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%w: not a regular file", ErrDamaged)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func readFile(name string) ([]byte, error) {
	f, err := openFile(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read from
	data, err := io.ReadAll(io.LimitReader(f, maxDocument+1))
	if len(data) > maxDocument {
		err = fmt.Errorf("%w: more than %d bytes", ErrDamaged, maxDocument)
	}
	return data, err
}

// Unpack unpacks the image of a layout for an architecture, as far as it is of interest, into an
// empty folder. Architectures are named as Go does. An image that names none is unpacked, too.
func Unpack(ctx context.Context, name, architecture, dir string) (Config, error) {
	l := layout{name, architecture}
	index, err := l.index()
	if err != nil {
		return Config{}, err
	}
	manifest, err := l.choose("index.json", index, 0)
	if err != nil {
		return Config{}, err
	}
	config, err := l.config(manifest.Config)
	if err != nil {
		return Config{}, err
	}
	if len(manifest.Layers) == 0 {
		return Config{}, fmt.Errorf("%s: %w: its manifest has no layers", name, ErrDamaged)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Config{}, err
	}
	defer root.Close() //nolint:errcheck // holds a folder, nothing that was written
	u := unpacker{root: root}
	for i, layer := range manifest.Layers {
		if err := l.layer(ctx, layer, &u); err != nil {
			return Config{}, fmt.Errorf("%s: layers[%d] %s: %w", name, i, layer.Digest, err)
		}
	}
	return config, nil
}

// UnpackTemporary unpacks the image of a layout into a temporary folder, which the caller removes
// with [Remove].
func UnpackTemporary(ctx context.Context, name, architecture string) (dir string, config Config, err error) {
	if dir, err = os.MkdirTemp("", "gpustack-image-"); err != nil {
		return "", Config{}, fmt.Errorf("cannot make a temporary folder: %w", err)
	}
	if config, err = Unpack(ctx, name, architecture, dir); err != nil {
		return "", Config{}, errors.Join(err, os.RemoveAll(dir))
	}
	return dir, config, nil
}

// Remove removes a folder of [UnpackTemporary]. What cannot be removed remains in the folder for
// temporary files.
func Remove(dir string) {
	_ = os.RemoveAll(dir)
}

// choose returns the manifest of an index for the node's architecture, following indexes in it. An
// index with several such images is an error.
func (l layout) choose(file string, index document, depth int) (document, error) {
	const most = 4
	fail := func(format string, args ...any) (document, error) {
		return document{}, fmt.Errorf("%s: %s: "+format, append([]any{l.name, file}, args...)...)
	}
	var fitting []descriptor
	var others, tags []string
	for _, m := range index.Manifests {
		p := m.Platform
		switch {
		case m.Annotations["vnd.docker.reference.type"] == "attestation-manifest":
		case p != nil && p.Architecture != "" && *p != platform{l.architecture, linux} && *p != platform{l.architecture, ""}:
			others = append(others, p.String())
		case !slices.ContainsFunc(fitting, func(d descriptor) bool { return d.Digest == m.Digest }): // two tags of one image
			fitting = append(fitting, m)
			tags = append(tags, strings.TrimLeft(m.Annotations["org.opencontainers.image.ref.name"]+" ("+m.Digest+")", " "))
		}
	}
	switch {
	case depth > most:
		return fail("%w: more than %d indexes in each other", ErrDamaged, most)
	case len(fitting) == 0 && others != nil:
		return fail("%w, which is %s: it has %s", ErrPlatform, platform{Architecture: l.architecture}, strings.Join(others, ", "))
	case len(fitting) == 0:
		return fail("%w: manifests is empty", ErrDamaged)
	case len(fitting) > 1:
		return fail("%w: %s", ErrChoice, strings.Join(tags, ", "))
	}
	data, err := l.small(fitting[0])
	if err != nil {
		return document{}, err
	}
	var found document
	if err := json.Unmarshal(data, &found); err != nil {
		return document{}, fmt.Errorf("%s: %s: malformed JSON: %w", l.name, fitting[0].Digest, err)
	}
	if found.Manifests != nil {
		return l.choose(fitting[0].Digest, found, depth+1)
	}
	return found, nil
}

// config reads LD_LIBRARY_PATH of the image's configuration.
func (l layout) config(d descriptor) (c Config, err error) {
	data, err := l.small(d)
	if err != nil {
		return c, err
	}
	var image struct {
		Architecture string
		Config       struct{ Env []string }
	}
	if err := json.Unmarshal(data, &image); err != nil {
		// The decoder's errors quote no values, which may be secrets.
		return c, fmt.Errorf("%s: config %s: malformed JSON: %w", l.name, d.Digest, err)
	}
	c.Architecture = image.Architecture
	for _, env := range image.Config.Env {
		if value, ok := strings.CutPrefix(env, "LD_LIBRARY_PATH="); ok && value != "" {
			c.LibraryPath = strings.Split(value, ":")
		}
	}
	return c, nil
}

var digestForm = host.LazyRegexp(`^sha256:[0-9a-f]{64}$`)

// open opens a blob. Its content is verified by [verified].
func (l layout) open(d descriptor) (*os.File, error) {
	if !digestForm().MatchString(d.Digest) {
		return nil, fmt.Errorf("%w: digest %q is not one of sha256", ErrDamaged, d.Digest)
	}
	f, err := openFile(filepath.Join(l.name, "blobs", "sha256", strings.TrimPrefix(d.Digest, "sha256:")))
	if errors.Is(err, ErrDamaged) {
		return nil, fmt.Errorf("its blob %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: its blob cannot be read: %w", ErrDamaged, host.Cause(err))
	}
	return f, nil
}

// small reads a blob of JSON.
func (l layout) small(d descriptor) ([]byte, error) {
	fail := func(err error) ([]byte, error) { return nil, fmt.Errorf("%s: %s: %w", l.name, d.Digest, err) }
	f, err := l.open(d)
	if err != nil {
		return fail(err)
	}
	defer f.Close() //nolint:errcheck // only read from
	if d.Size > maxDocument {
		return fail(fmt.Errorf("%w: its descriptor has a size of %d bytes", ErrDamaged, d.Size))
	}
	v := newVerified(f, d)
	data, err := io.ReadAll(v)
	if err == nil {
		err = v.finish()
	}
	if err != nil {
		return fail(err)
	}
	return data, nil
}

// layer applies a layer. Of a blob that is not the one of the descriptor that is the error, not
// what its content made of the layer.
func (l layout) layer(ctx context.Context, d descriptor, u *unpacker) error {
	if strings.HasSuffix(d.MediaType, "+encrypted") {
		return errEncrypted
	}
	f, err := l.open(d)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read from
	v := newVerified(&stoppable{ctx, f}, d)
	buffered := bufio.NewReaderSize(v, 64<<10)
	content, err := decompressed(buffered)
	if err == nil {
		defer content.Close() //nolint:errcheck // only read from
		err = u.apply(content)
	}
	if _, rest := io.Copy(io.Discard, buffered); rest != nil {
		return rest
	}
	if damage := v.finish(); damage != nil {
		return damage
	}
	return err
}

// decompressed returns the tar archive of a layer, whose first bytes show its compression.
func decompressed(r *bufio.Reader) (io.ReadCloser, error) {
	magic, err := r.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		d, err := gzip.NewReader(r)
		if err != nil {
			return nil, fmt.Errorf("malformed gzip stream: %w", err)
		}
		return &packed{d, "gzip"}, nil
	case bytes.Equal(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		const window = 16 << 20
		d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(window))
		if err != nil {
			return nil, fmt.Errorf("malformed zstd stream: %w", err)
		}
		return &packed{d.IOReadCloser(), "zstd"}, nil
	}
	return io.NopCloser(r), nil
}

// packed names the compression in errors of a decompressor.
type packed struct {
	io.ReadCloser
	name string
}

func (p *packed) Read(b []byte) (int, error) {
	n, err := p.ReadCloser.Read(b)
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		err = fmt.Errorf("the %s stream ends early: %w", p.name, err)
	case err != nil && !errors.Is(err, io.EOF):
		err = fmt.Errorf("malformed %s stream: %w", p.name, err)
	}
	return n, err
}

// verified counts and hashes what is read of a blob.
type verified struct {
	r    io.Reader
	d    descriptor
	hash interface {
		io.Writer
		Sum([]byte) []byte
	}
	read int64
}

func newVerified(r io.Reader, d descriptor) *verified {
	return &verified{r: r, d: d, hash: sha256.New()}
}

func (v *verified) Read(p []byte) (int, error) {
	n, err := v.r.Read(p)
	v.read += int64(n)
	if v.read > v.d.Size {
		return 0, fmt.Errorf("%w: its blob is larger than the %d bytes of its descriptor", ErrDamaged, v.d.Size)
	}
	_, _ = v.hash.Write(p[:n]) // a hash returns no error
	return n, err
}

// finish returns an error unless the whole blob was read and is the one that the descriptor names.
func (v *verified) finish() error {
	if v.read != v.d.Size {
		return fmt.Errorf("%w: its blob has %d bytes instead of %d", ErrDamaged, v.read, v.d.Size)
	}
	if sum := "sha256:" + hex.EncodeToString(v.hash.Sum(nil)); sum != v.d.Digest {
		return fmt.Errorf("%w: the digest of its blob is %s", ErrDamaged, sum)
	}
	return nil
}

// stoppable ends reading when the context does.
type stoppable struct {
	ctx context.Context
	r   io.Reader
}

func (s *stoppable) Read(p []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	return s.r.Read(p)
}
