package nova

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpustack/host/hosttest"
)

// reporting ends the file of a nova-compute that reports its devices.
const reporting = "\n[pci]\nreport_in_placement = true\n"

// forgetReports makes the lab one whose computes never reported devices, which Nova itself
// cannot. Save and Restore would do it in three times the time.
func forgetReports(ctx context.Context, t *testing.T) {
	var err error
	for _, host := range lab.hosts {
		err = errors.Join(err, lab.StopService("nova-compute-"+host))
	}
	const devices = "(SELECT id FROM (SELECT id FROM placement.resource_providers WHERE parent_provider_id IS NOT NULL) AS devices)"
	for _, statement := range []string{
		"DELETE FROM placement.allocations WHERE resource_provider_id IN " + devices,
		"DELETE FROM placement.inventories WHERE resource_provider_id IN " + devices,
		"DELETE FROM placement.resource_provider_traits WHERE resource_provider_id IN " + devices,
		"DELETE FROM placement.resource_providers WHERE parent_provider_id IS NOT NULL",
	} {
		_, queryErr := lab.Database.Query(ctx, statement)
		err = errors.Join(err, queryErr)
	}
	for _, host := range lab.hosts {
		file := lab.host(host, "nova-compute.conf")
		text, readErr := os.ReadFile(file)
		err = errors.Join(err, readErr, os.WriteFile(file, []byte(strings.TrimSuffix(string(text), reporting)), 0o600), lab.StartService(ctx, "nova-compute-"+host))
	}
	if err != nil {
		t.Error(err)
	}
}

// TestControllerAsksForReports: pci_in_placement is not turned on until every compute
// node reports its devices and Placement knows who has them, as the controller's own
// nova.conf lets the databases and Placement tell. The option itself is of 2023.1.
func TestControllerAsksForReports(t *testing.T) {
	t.Cleanup(func() { forgetReports(context.WithoutCancel(t.Context()), t) })
	nova := compute(t)
	server := boot(t, nova, newFlavor(t, nova, "to-be-healed", 1))
	source := hostOfServer(t, server)
	root := controller(t)
	configure := func(args ...string) (stderr string, status int) {
		t.Helper()
		argv := append([]string{"nova", "configure", "--root", root, "--role", "controller", "--release", "2023.1", "--alias", "K4200=10de:11b4,device_type=type-PCI", "--placement"}, args...)
		stdout, stderr, status := command(t, nil, argv...)
		for _, secret := range []string{lab.ServicePassword, lab.RabbitPassword, lab.Database.Password} {
			if strings.Contains(stdout+stderr, secret) {
				t.Errorf("%q tells a secret", args)
			}
		}
		return stderr, status
	}
	refused := func(when string, words ...string) {
		t.Helper()
		stderr, status := configure("--yes")
		for _, word := range words {
			hosttest.ContainsIn(t, when, word, stderr)
		}
		if status != 1 || strings.Count(stderr, "gpustack: error: ") != len(words) {
			t.Errorf("%s: exit status %d\n%s", when, status, stderr)
		}
		// The assertion does not override what the cloud answers.
		if _, status := configure("--yes", "--computes-report"); status != 1 {
			t.Errorf("%s, --computes-report: exit status %d", when, status)
		}
	}
	report := func(host string) {
		t.Helper()
		conf, err := os.OpenFile(lab.host(host, "nova-compute.conf"), os.O_APPEND|os.O_WRONLY, 0)
		if err == nil {
			_, err = conf.WriteString(reporting)
			err = errors.Join(err, conf.Close())
		}
		hosttest.NoError(t, errors.Join(err, lab.StopService("nova-compute-"+host), lab.StartService(t.Context(), "nova-compute-"+host)))
		until(t, "the cards are providers", func() bool {
			return rows(t, "SELECT count(*) FROM placement.resource_providers WHERE name LIKE '%s\\_0000:8%%'", host)[0][0] == "2"
		})
	}
	const notReporting = " (cell cell1): does not report its PCI devices to Placement"
	// A cell that cannot be read hides nothing of what is found elsewhere.
	rows(t, "INSERT INTO nova_api.cell_mappings (uuid, name, transport_url, database_connection, disabled) VALUES ('%s', 'gone', 'none:///', 'mysql+pymysql://nova:x@127.0.0.1:1/none', 0)", "00000000-0000-4000-8000-0000000000aa")
	refused("a cell cannot be read", "host gpu1"+notReporting, "host gpu2"+notReporting, "cell gone at 127.0.0.1:1")
	rows(t, "DELETE FROM nova_api.cell_mappings WHERE name = 'gone'")
	refused("nothing reports", "host gpu1"+notReporting, "host gpu2"+notReporting)
	report(theOther(source))
	refused("one reports", "host "+source+notReporting)
	report(source)
	held := func() bool {
		return rows(t, "SELECT count(*) FROM placement.allocations a JOIN placement.resource_providers p ON p.id = a.resource_provider_id WHERE p.name LIKE '%s\\_0000:8%%' AND a.consumer_id = '%s'", source, server)[0][0] == "1"
	}
	until(t, "the guest's card is healed", held)
	if stderr, status := configure("--dry-run"); status != 2 {
		t.Errorf("all report: exit status %d\n%s", status, stderr)
	}

	// An allocation is lost, and that host's nova-compute does not run to heal it.
	hosttest.NoError(t, lab.StopService("nova-compute-"+source))
	rows(t, "DELETE FROM placement.allocations WHERE resource_provider_id IN (SELECT id FROM placement.resource_providers WHERE name LIKE '%s\\_0000:8%%')", source)
	refused("an allocation is lost", "host "+source+" (cell cell1): "+rows(t, cards, server)[0][1]+" is taken by "+server+", which has no allocation of it in Placement")
	hosttest.NoError(t, lab.StartService(t.Context(), "nova-compute-"+source))
	until(t, "it is healed", held)

	// Placement cannot be asked: the assertion replaces it, and the plan says so.
	conf := filepath.Join(root, "etc/nova/nova.conf")
	text := hosttest.Read(t, conf)
	wrong := strings.ReplaceAll(text, "password = "+lab.ServicePassword, "password = wrong")
	hosttest.NoError(t, os.WriteFile(conf, []byte(wrong), 0o640))
	if stderr, status := configure("--yes"); status != 1 || !strings.Contains(stderr, "cannot determine whether every compute node reports its PCI devices to Placement: ") || !strings.Contains(stderr, "assert with --computes-report") {
		t.Errorf("a wrong password: exit status %d\n%s", status, stderr)
	}
	if stderr, status := configure("--dry-run", "--computes-report"); status != 2 || !strings.Contains(stderr, "is asserted by --computes-report, not verified") {
		t.Errorf("a wrong password, asserted: exit status %d\n%s", status, stderr)
	}
	hosttest.NoError(t, os.WriteFile(conf, []byte(text), 0o640))
	if stderr, status := configure("--yes"); status != 0 {
		t.Errorf("all report: exit status %d\n%s", status, stderr)
	}
	after, err := os.ReadFile(conf)
	if err != nil || !strings.Contains(string(after), "\npci_in_placement = true\n") {
		t.Errorf("%v, pci_in_placement is not in\n%s", err, after)
	}
	remove(t, nova, server)
}
