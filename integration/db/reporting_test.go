package db

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gpustack/cleanup/find"
	"gpustack/cleanup/novadb"
	"gpustack/host/hosttest"
	"gpustack/nova/cloud"
)

// reported is a Placement with providers of PCI devices and their consumers, by name.
// What integration/nova has is real.
type reported struct {
	sync.Mutex
	providers map[string][]string // consumers; roots are the names' nodes
	roots     map[string]string   // UUIDs of nodes
	asked     int
	failing   string // a provider whose consumers cannot be read
	fail      error
}

func (r *reported) PCIProviders(context.Context) (all []cloud.Provider, err error) {
	for name := range r.providers {
		node, _, _ := strings.Cut(name, "_")
		all = append(all, cloud.Provider{UUID: name, Name: name, Root: r.roots[node]})
	}
	return all, r.fail
}

func (r *reported) HeldOn(_ context.Context, provider string) (map[string]map[string]int, error) {
	r.Lock()
	defer r.Unlock()
	r.asked++
	if provider == r.failing {
		return nil, errors.New("503")
	}
	held := map[string]map[string]int{}
	for _, consumer := range r.providers[provider] {
		held[consumer] = nil
	}
	return held, nil
}

// TestNotReporting: compute nodes whose devices are not in Placement, by live rows of
// every cell.
func TestNotReporting(t *testing.T) {
	reset(t)
	cell := database.Cell1
	gpu1, gpu2, gpu3 := cell.Compute(t, "gpu1"), cell.Compute(t, "gpu2"), cell.Compute(t, "gpu3")
	gone := cell.Compute(t, "gone", ServiceDeleted(0))
	nics := cell.Compute(t, "nics")
	u, moving := UUID(1), UUID(2)
	cell.Instance(t, u, "gpu1", "active", "")
	cell.Instance(t, moving, "gpu2", "resized", "")
	cell.Card(t, gpu1, first, "allocated", u)
	cell.Card(t, gpu1, "0000:88:00.0", "available", "")
	cell.Card(t, gpu1, "0000:a1:00.0", "available", "", PF())
	cell.Card(t, gpu2, first, "allocated", moving)
	cell.Card(t, gpu2, "0000:a1:00.4", "allocated", u, VF("0000:a1:00.0"), Row{"product_id": "11b4", "vendor_id": "10de"})
	cell.Card(t, gpu2, "0000:a1:00.5", "available", "", VF("0000:a1:00.0"), Row{"product_id": "11b4", "vendor_id": "10de"})
	cell.Card(t, gpu3, first, "available", "")
	cell.Card(t, gone, first, "available", "")
	cell.Card(t, nics, first, "available", "", Row{"vendor_id": "8086", "product_id": "154d"})
	// Neutron's devices are not reported, and pci_stats tells which those are.
	const stats = `{"nova_object.name": "PciDevicePoolList", "nova_object.data": {"objects": [%s]}}`
	const pool = `{"nova_object.name": "PciDevicePool", "nova_object.data": {"vendor_id": "10de", "product_id": "11b4", "count": 1, "numa_node": 0, "tags": {"dev_type": "type-PCI"%s}}}`
	neutron, network := fmt.Sprintf(pool, `, "physical_network": "physnet1"`), cell.Compute(t, "network")
	cell.Card(t, network, first, "available", "")
	for node, pools := range map[int64]string{network: neutron, gpu3: neutron + ", " + fmt.Sprintf(pool, "")} {
		if _, err := database.rows(t.Context(), "UPDATE nova_cell1.compute_nodes SET pci_stats = ? WHERE id = ?", fmt.Sprintf(stats, pools), node); err != nil {
			t.Fatal(err)
		}
	}
	const migration = "the migration"
	cell.Migration(t, 3, moving, "migration", "finished", "gpu2", "gpu1", Row{"uuid": migration})

	roots := map[string]string{}
	for _, node := range []string{"gpu1", "gpu2", "gpu3"} {
		rows, err := database.rows(t.Context(), "SELECT uuid FROM nova_cell1.compute_nodes WHERE host = ?", node)
		hosttest.NoError(t, err)
		roots[node] = rows[0][0]
	}
	all := func() map[string][]string {
		return map[string][]string{
			"gpu1_0000:84:00.0": {u}, "gpu1_0000:88:00.0": {},
			"gpu2_0000:84:00.0": {migration}, "gpu2_0000:A1:00.0": {u},
			"gpu3_0000:84:00.0": {},
		}
	}
	databases, err := novadb.Open(t.Context(), novadb.Where{API: database.URL("nova_api"), Local: database.URL("nova_cell0")})
	hosttest.NoError(t, err)
	defer databases.Close()
	k4200 := func(vendor, product string) bool { return vendor == "10de" && product == "11b4" }
	for name, test := range map[string]struct {
		without []string // providers
		hold    map[string][]string
		want    []string
	}{
		"all report":                 {},
		"none of a node":             {without: []string{"gpu3_0000:84:00.0"}, want: []string{"host gpu3 (cell cell1): does not report its PCI devices to Placement"}},
		"one of two":                 {without: []string{"gpu1_0000:88:00.0"}, want: []string{"host gpu1 (cell cell1): 0000:88:00.0 is not in Placement"}},
		"an instance is not healed":  {hold: map[string][]string{"gpu1_0000:84:00.0": {}}, want: []string{"host gpu1 (cell cell1): 0000:84:00.0 is taken by " + u + ", which has no allocation of it in Placement"}},
		"another consumer holds it":  {hold: map[string][]string{"gpu1_0000:84:00.0": {moving}}, want: []string{"host gpu1 (cell cell1): 0000:84:00.0 is taken by " + u + ", which has no allocation of it in Placement"}},
		"a VF is not healed":         {hold: map[string][]string{"gpu2_0000:A1:00.0": {}}, want: []string{"host gpu2 (cell cell1): 0000:a1:00.4 is taken by " + u + ", which has no allocation of it in Placement"}},
		"the instance has come back": {hold: map[string][]string{"gpu2_0000:84:00.0": {moving}}},
		"nothing reports": {without: []string{"gpu1_0000:84:00.0", "gpu1_0000:88:00.0", "gpu2_0000:84:00.0", "gpu2_0000:A1:00.0", "gpu3_0000:84:00.0"}, want: []string{
			"host gpu1 (cell cell1): does not report its PCI devices to Placement", "host gpu2 (cell cell1): does not report its PCI devices to Placement", "host gpu3 (cell cell1): does not report its PCI devices to Placement"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := &reported{providers: all(), roots: roots}
			for _, p := range test.without {
				delete(r.providers, p)
			}
			for p, consumers := range test.hold {
				r.providers[p] = consumers
			}
			found, err := find.ListNotReporting(t.Context(), databases, r, k4200)
			hosttest.NoError(t, err)
			var got []string
			for _, n := range found {
				got = append(got, n.String())
			}
			slices.Sort(got)
			hosttest.Equal(t, test.want, got)
			if r.asked > 3 {
				t.Errorf("%d requests for 3 devices in use", r.asked)
			}
		})
	}
	// What cannot be read does not hide what is found.
	r := &reported{providers: all(), roots: roots, failing: "gpu1_0000:84:00.0"}
	delete(r.providers, "gpu3_0000:84:00.0")
	if found, err := find.ListNotReporting(t.Context(), databases, r, k4200); len(found) != 1 || found[0].Host != "gpu3" || err == nil {
		t.Errorf("Placement answers in part: %v, %v", found, err)
	}
	broken := *databases
	broken.Cells = append([]novadb.Cell{{Name: "broken", DB: databases.API}}, databases.Cells...)
	r.failing = ""
	if found, err := find.ListNotReporting(t.Context(), &broken, r, k4200); len(found) != 1 || found[0].Host != "gpu3" || err == nil || !strings.HasPrefix(err.Error(), "cell broken: ") {
		t.Errorf("a cell cannot be read: %v, %v", found, err)
	}
	if _, err := find.ListNotReporting(t.Context(), databases, &reported{fail: errors.New("503")}, k4200); err == nil {
		t.Error("no answer of Placement is no error")
	}
}

// TestConfigureConnects: nova configure opens the databases as repair-migration does:
// below --root, with connection_parameters, and with --timeout.
func TestConfigureConnects(t *testing.T) {
	reset(t)
	refused := listen(t, func(net.Conn) {})
	silent := listen(t, func(conn net.Conn) { io.Copy(io.Discard, conn) })
	whole, _, _ := strings.Cut(database.URL("nova_api"), "?")
	const file = "read_default_file=/etc/my.cnf"
	for _, test := range []struct{ name, api, parameters, want string }{
		{"connection_parameters", whole, "ssl_ca=/etc/none.pem", "/etc/none.pem"},
		{"a file below the root", strings.Replace(whole, "@"+database.Server.Address, "@", 1) + "?" + file, "", "cannot determine whether every compute node reports its PCI devices to Placement: authentication at http://" + refused},
		{"a silent one", at(silent, "nova_api"), "", "api_database at " + silent + ": no answer within 1s"},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := t.TempDir()
			host, port, err := net.SplitHostPort(database.Server.Address)
			hosttest.NoError(t, err)
			for name, text := range map[string]string{
				"etc/my.cnf": "[client]\nhost = " + host + "\nport = " + port + "\n",
				"etc/nova/nova.conf": "[api_database]\nconnection = " + strings.ReplaceAll(test.api, "$", "$$") + "\nconnection_parameters = " + test.parameters +
					"\n[database]\nconnection = " + strings.ReplaceAll(database.URL("nova_cell0"), "$", "$$") + "\n[placement]\nauth_url = http://" + refused + "/v3\nusername = nova\npassword = x\nproject_name = service\n",
			} {
				path := filepath.Join(root, name)
				hosttest.NoError(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)))
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			out, err := exec.CommandContext(ctx, gpustack, "nova", "configure", "--root", root, "--role", "controller", "--release", "2023.1", "--alias", "K=10de:11b4", "--placement", "--dry-run", "--timeout", "1s").CombinedOutput()
			if err == nil || !strings.Contains(string(out), test.want) {
				t.Errorf("%v\n%s\nwant %s", err, out, test.want)
			}
		})
	}
}
