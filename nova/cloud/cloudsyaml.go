package cloud

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gpustack/host"
)

// errNoProfile says that the profile of a cloud was not found. openstacksdk has profiles of public
// clouds in its package, gpustack does not.
var errNoProfile = host.WithHint(errors.New("no such profile in clouds-public.yaml"), "write the keys of the profile into the cloud, or into clouds-public.yaml")

// errNoRegion says that clouds.yaml has another region, or other ones, than was chosen.
var errNoRegion = host.WithHint(errors.New("no such region"), "--os-region-name and OS_REGION_NAME choose one of the regions of the cloud in clouds.yaml: list them there, as in regions: [one, two]")

// cloudsFile is a clouds.yaml, secure.yaml or clouds-public.yaml.
type cloudsFile struct {
	name string // "": there is none
	keys keys
}

// Names returns the names of the clouds in clouds.yaml, sorted, none if it cannot be read.
func Names() []string {
	file, _ := readCloudsFile("clouds", os.Getenv("OS_CLIENT_CONFIG_FILE")) // a shell is offered what can be read
	clouds, _ := file.keys["clouds"].(keys)
	return slices.Sorted(maps.Keys(clouds))
}

// readCloud returns the keys of a cloud: those of its profile, of clouds.yaml and of secure.yaml,
// the later ones count (openstack/config/loader.py). known are the regions that it names.
func readCloud(name string) (cloud keys, known []region, err error) {
	found, err := readCloudsFile("clouds", os.Getenv("OS_CLIENT_CONFIG_FILE"))
	if err != nil {
		return nil, nil, err
	}
	secure, err := readSecure(found)
	if err != nil {
		return nil, nil, err
	}
	if found.name == "" && secure.name == "" {
		return nil, nil, fmt.Errorf("cloud %s: %w: no clouds.yaml in %s", name, errNoCloud, strings.Join(folders(), ", "))
	}
	clouds, err := found.merged(secure, "clouds")
	if err != nil {
		return nil, nil, err
	}
	entry, ok := clouds[name]
	if !ok {
		names := strings.Join(slices.Sorted(maps.Keys(clouds)), ", ")
		return nil, nil, fmt.Errorf("cloud %s: %w: %s contains %s", name, errNoCloud, cmp.Or(found.name, secure.name), cmp.Or(names, "none"))
	}
	from := found.name
	later, _ := secure.keys["clouds"].(keys)
	if value, there := later[name]; there {
		if _, ok := value.(keys); !ok {
			from = secure.name
		}
	}
	own, err := mapping(entry, from+": cloud "+name)
	if err != nil {
		return nil, nil, err
	}
	return withProfile(name, own)
}

// withProfile returns the keys of a cloud and of its profile.
func withProfile(name string, own keys) (cloud keys, known []region, err error) {
	cloud = keys{}
	profile, err := own.text("profile")
	if profile == "" && err == nil {
		profile, err = own.text("cloud") // its former name
	}
	if err != nil {
		return nil, nil, fmt.Errorf("cloud %s: %w", name, err)
	}
	if profile != "" {
		of, err := readProfile(profile)
		if err != nil {
			return nil, nil, fmt.Errorf("cloud %s: %w", name, err)
		}
		if err := cloud.overlay(of); err != nil {
			return nil, nil, fmt.Errorf("profile %s: %w", profile, err)
		}
	}
	ofProfile := maps.Clone(cloud)
	if err := cloud.overlay(own); err != nil {
		return nil, nil, fmt.Errorf("cloud %s: %w", name, err)
	}
	// The cloud's own region counts before the profile's list of regions.
	for _, source := range []keys{own, ofProfile} {
		if known, err = regions(source); err != nil || known != nil {
			break
		}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("cloud %s: %w", name, err)
	}
	return cloud, known, nil
}

func readProfile(name string) (keys, error) {
	file, err := readCloudsFile("clouds-public", "")
	if err != nil {
		return nil, err
	}
	public, err := mapping(file.keys["public-clouds"], file.name+": public-clouds")
	if err != nil {
		return nil, err
	}
	if _, there := public[name]; !there {
		return nil, fmt.Errorf("profile %s: %w", name, errNoProfile)
	}
	return mapping(public[name], "profile "+name)
}

// overlay sets the keys of others. Those in auth are set one by one.
func (k keys) overlay(others keys) error {
	auth, err := mapping(k["auth"], "auth")
	if err != nil {
		return err
	}
	more, err := mapping(others["auth"], "auth")
	if err != nil {
		return err
	}
	all := maps.Clone(auth)
	maps.Copy(all, more)
	maps.Copy(k, others)
	k["auth"] = all
	return nil
}

// merged returns the mapping with a name in both files, that of other counts.
func (f cloudsFile) merged(other cloudsFile, name string) (keys, error) {
	all := keys{}
	for _, file := range []cloudsFile{f, other} {
		m, err := mapping(file.keys[name], file.name+": "+name)
		if err != nil {
			return nil, err
		}
		all = merge(all, m)
	}
	return all, nil
}

// merge returns the keys of both, those of b count, and mappings in them are merged alike.
func merge(a, b keys) keys {
	all := maps.Clone(a)
	for key, value := range b {
		below, ok := value.(keys)
		old, both := all[key].(keys)
		if ok && both {
			value = merge(old, below)
		}
		all[key] = value
	}
	return all
}

// mapping returns a value that must be a mapping. nil is an empty one.
func mapping(value any, what string) (keys, error) {
	if value == nil {
		return keys{}, nil
	}
	m, ok := value.(keys)
	if !ok {
		return nil, errors.New(what + " is not a mapping")
	}
	return m, nil
}

// readSecure reads secure.yaml: the one of OS_CLIENT_SECURE_FILE or of the folders, otherwise the
// one beside the clouds.yaml that was named.
func readSecure(found cloudsFile) (cloudsFile, error) {
	secure, err := readCloudsFile("secure", os.Getenv("OS_CLIENT_SECURE_FILE"))
	if err != nil || secure.name != "" || os.Getenv("OS_CLIENT_CONFIG_FILE") == "" {
		return secure, err
	}
	return readFirst([]string{filepath.Join(filepath.Dir(found.name), "secure.yaml")})
}

// folders are where openstacksdk looks for clouds.yaml (CONFIG_SEARCH_PATH).
func folders() []string {
	home := filepath.Join(os.Getenv("HOME"), ".config")
	list := []string{"."}
	if config := os.Getenv("XDG_CONFIG_HOME"); config != "" {
		list = append(list, filepath.Join(config, "openstack"))
	}
	list = append(list, filepath.Join(home, "openstack"))
	return append(list, filepath.Join(cmp.Or(os.Getenv("XDG_CONFIG_DIRS"), "/etc/xdg"), "openstack"), "/etc/openstack")
}

// readCloudsFile reads the named file, or without a name the first one in the folders.
func readCloudsFile(stem, named string) (cloudsFile, error) {
	if named != "" {
		return readCloudsNamed(named)
	}
	var files []string
	for _, folder := range folders() {
		for _, extension := range []string{".yaml", ".yml", ".json"} {
			files = append(files, filepath.Join(folder, stem+extension))
		}
	}
	return readFirst(files)
}

// readFirst reads the first of these files that exists.
func readFirst(files []string) (cloudsFile, error) {
	for _, name := range files {
		file, err := readCloudsNamed(name)
		if !errors.Is(err, fs.ErrNotExist) {
			return file, err
		}
	}
	return cloudsFile{}, nil
}

func readCloudsNamed(name string) (cloudsFile, error) {
	text, err := os.ReadFile(name) //nolint:gosec // the user names it
	if errors.Is(err, fs.ErrNotExist) && name == os.Getenv("OS_CLIENT_CONFIG_FILE") {
		return cloudsFile{}, host.WithHint(err, "OS_CLIENT_CONFIG_FILE names this file: correct it, or unset it to read clouds.yaml of the usual folders")
	}
	if err != nil {
		return cloudsFile{}, err
	}
	parsed, err := parseKeys(text)
	if err != nil {
		return cloudsFile{}, fmt.Errorf("%s: %w", name, err)
	}
	return cloudsFile{name, parsed}, nil
}

// region is an element of regions in clouds.yaml: its keys count before those of the cloud.
type region struct {
	name   string
	values keys
}

// regions returns the regions that the keys of a cloud name, nil for none.
func regions(cloud keys) ([]region, error) {
	cloud, err := normalized(cloud)
	if err != nil {
		return nil, err
	}
	if listed, there := cloud["regions"]; there {
		list, ok := listed.([]any)
		if !ok && listed != nil {
			return nil, errors.New("regions is not a list")
		}
		return regionsOf(list)
	}
	switch named := cloud["region_name"].(type) {
	case nil:
		return nil, nil
	case string:
		var list []any
		for name := range strings.SplitSeq(named, ",") {
			list = append(list, name)
		}
		return regionsOf(list)
	case []any:
		return regionsOf(named)
	}
	return nil, errors.New("region_name is not a text")
}

func regionsOf(list []any) ([]region, error) {
	found := []region{}
	for _, element := range list {
		r := region{}
		name := element
		if m, ok := element.(keys); ok {
			var err error
			if r.values, err = mapping(m["values"], "regions: values"); err != nil {
				return nil, err
			}
			name = m["name"]
		}
		text, ok := name.(string)
		if !ok {
			return nil, errors.New("regions: an element has no name")
		}
		r.name = text
		found = append(found, r)
	}
	return found, nil
}

// choose returns the region with a name, or the first one without a name.
func choose(known []region, name string) (region, error) {
	if len(known) == 0 {
		return region{name: name}, nil
	}
	var names []string
	for _, r := range known {
		if r.name == name || name == "" {
			return r, nil
		}
		names = append(names, r.name)
	}
	return region{}, fmt.Errorf("region_name: %w: %s is none of %s", errNoRegion, name, strings.Join(names, ", "))
}
