package cloud

import (
	"maps"
	"os"
	"slices"
)

// Names returns the names of the clouds in the clouds.yaml that Connect would read, sorted. Without
// such a file there are none.
func Names() ([]string, error) {
	found, err := readCloudsFile("clouds", os.Getenv("OS_CLIENT_CONFIG_FILE"))
	if err != nil {
		return nil, err
	}
	clouds, err := mapping(found.keys["clouds"], found.name+": clouds")
	return slices.Sorted(maps.Keys(clouds)), err
}
