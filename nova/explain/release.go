package explain

import (
	"gpustack/nova"
	"gpustack/nova/cloud"
)

// ReleaseOf returns the oldest release of Nova whose newest microversion is that of a cloud
// (nova/doc/source/reference/api-microversion-history.rst), or the last one before it.
func ReleaseOf(newest cloud.Microversion) nova.Release {
	release := nova.Mitaka
	for _, r := range []struct {
		first   cloud.Microversion
		release nova.Release
	}{
		{38, nova.Newton}, {42, nova.Ocata}, {53, nova.Pike}, {60, nova.Queens}, {65, nova.Rocky}, {72, nova.Stein}, {79, nova.Train},
		{87, nova.Train + 1}, {88, nova.Wallaby}, {90, nova.Xena}, {93, nova.Zed}, {95, nova.Antelope}, {96, nova.Bobcat + 1},
		{100, nova.Epoxy}, {103, nova.Gazpacho}, {104, nova.Hibiscus},
	} {
		if newest >= r.first {
			release = r.release
		}
	}
	return release
}
