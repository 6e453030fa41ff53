package cloud

import (
	"time"

	"gpustack/cleanup/novadb"
	"gpustack/host"
	"gpustack/nova"
)

// databasesOf returns the databases that nova.conf names. Each must answer within timeout.
func databasesOf(root host.Root, d nova.Databases, timeout time.Duration) novadb.Where {
	return novadb.Where{
		API: d.API, APIParameters: d.APIParameters, Local: d.Main, Parameters: d.MainParameters,
		Root: root, Limits: novadb.Limits{Connect: timeout},
	}
}
