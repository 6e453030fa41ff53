package db

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
)

// deniedUser is an account that may not update migrations.
const deniedUser = "denied"

// startHistories starts what histories need beside the databases.
func startHistories(t *testing.T) *historyLab {
	t.Helper()
	reset(t)
	p, err := database.StartPlacement(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	l := &historyLab{placement: p}
	t.Cleanup(func() {
		if err := errors.Join(p.Stop(), database.Reset(context.WithoutCancel(t.Context()))); err != nil {
			t.Error(err)
		}
	})
	if err := p.Provide(t.Context(), "gpu1", "gpu2"); err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{
		"CREATE USER IF NOT EXISTS " + deniedUser + "@'127.0.0.1' IDENTIFIED BY '" + database.Password + "'",
		"GRANT SELECT ON nova_cell1.* TO " + deniedUser + "@'127.0.0.1'",
		"GRANT UPDATE ON nova_cell1.instances TO " + deniedUser + "@'127.0.0.1'",
		"GRANT UPDATE ON nova_cell1.instance_extra TO " + deniedUser + "@'127.0.0.1'",
		"GRANT UPDATE ON nova_cell1.pci_devices TO " + deniedUser + "@'127.0.0.1'",
	} {
		if _, err := database.Server.Query(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"A", "B"} {
		l.operators = append(l.operators, newOperator(t, name, p))
	}
	return l
}

// dead is a cold migration that died while the disk was copied, with what proves it.
const deadMigration = "boot gpu1 84:00.0; migrate 1 gpu2 84:00.0 migrating; wait 30; start gpu1; start gpu2; wait 15; report gpu1 0; report gpu2 0; "

// knownHistories are short ones: first what must stay possible, then what was wrong once. broken is
// the invariant that this release breaks, "" for none.
var knownHistories = []struct{ name, history, broken string }{
	{"a dead cold migration, both reports", deadMigration + "run A", ""},
	{"a lost COMMIT", deadMigration + "run A commit=answer; run A", ""},
	{"a PF of a host that is off", "boot gpu1 40:00.0; boot gpu2 84:00.0; off gpu1; delete 1; wait 15; believe gpu1; run A", ""},
	{"a PF is freed, its VF is in a guest, offline", "boot gpu2 84:00.0; row gpu1 40:00.0 allocated 0; stray 1 gpu1 40:00.1; down gpu1; wait 15; report gpu1 0; run A", "1"},
	{"a PF is freed, a VF in a guest has no row", "boot gpu2 84:00.0; row gpu1 40:00.0 allocated 0; row gpu1 40:00.1 none; stray 1 gpu1 40:00.1; down gpu1; wait 15; report gpu1 0; run A", "1"},
	{"a VF is freed, its PF is in a guest, offline", "boot gpu2 84:00.0; row gpu1 40:00.1 allocated 0; stray 1 gpu1 40:00.0; down gpu1; wait 15; report gpu1 0; run A", "1"},
	{"a PF is freed online, its VF is in a guest", "boot gpu1 40:00.0; boot gpu1 84:00.0; migrate 1 gpu2 40:00.0 error; stray 2 gpu2 40:00.1; wait 15; report gpu1 0; report gpu2 0; run A", "1"},
	{"a VF is freed, its sibling has no row", "boot gpu2 84:00.0; row gpu1 40:00.0 unavailable; row gpu1 40:00.1 allocated 0; row gpu1 40:00.2 none; stray 1 gpu1 40:00.2; down gpu1; wait 15; report gpu1 0; run A", "1"},
	{"a PF is freed, a vdpa device is in a guest", "boot gpu2 84:00.0; row gpu1 40:00.0 allocated 0; stray 1 gpu1 40:00.3; down gpu1; wait 15; report gpu1 0; run A", "1"},
	{"a status that Nova does not write, the PF is in a guest", "boot gpu1 40:00.0; row gpu1 40:00.1 bogus; down gpu1; wait 15; report gpu1 0; run A", "1"},
	{"a VF row blocked by no row, the PF is in a guest", "boot gpu1 84:00.0; row gpu1 40:00.1 unavailable; stray 1 gpu1 40:00.0; down gpu1; wait 15; report gpu1 0; run A", "1"},
	{"a vdpa device is freed offline, and its PF with it", "boot gpu1 40:00.3; boot gpu2 84:00.0; off gpu1; delete 1; wait 15; believe gpu1; run A", "5"},
	{"a row without an owner, the guest uses the device", "boot gpu1 84:00.0; row gpu1 84:00.0 allocated; wait 15; run A", "1"},

	{"an answer is lost, another run repairs", deadMigration + "run A post1=lost 6=B", "2"},
	{"an UPDATE is lost, another run repairs", deadMigration + "run A update=cut 6=B", "2"},
	{"the account may not update migrations", deadMigration + "run A user=denied", "4"},
	{"a living host is declared off", "boot gpu1 84:00.0; migrate 1 gpu2 84:00.0 error; wait 15; stray 1 gpu2 84:00.0; believe gpu2; report gpu1 0; run A", "1"},
	{"post_live_migration_at_destination failed", "boot gpu1 84:00.0; live 1 gpu2 84:00.0 completed; wait 15; run A", "1"},
	{"a report of a host eight minutes ahead", "clock gpu2 8; boot gpu1 84:00.0; wait 20; live 1 gpu2 84:00.0 arrived; wait 4; report gpu1 0; report gpu2 8; run A", "1"},
	{"a nova-compute that started before, by far", "clock gpu1 8; boot gpu1 84:00.0; wait 30; start gpu1; wait 4; migrate 1 gpu2 84:00.0 migrating; reset 1; start gpu2; wait 20; report gpu1 8; report gpu2 0; run A", "1"},
}

// TestHistories plays the short histories, and then random ones.
func TestHistories(t *testing.T) {
	l := startHistories(t)
	for _, test := range knownHistories {
		t.Run(test.name, func(t *testing.T) {
			p := l.play(t, lines(test.history))
			if broken := p.broken(); broken != test.broken {
				t.Errorf("breaks %q, not %q\n%v", broken, test.broken, p)
			}
		})
	}
	l.random(t)
}

func lines(history string) (list []string) {
	for line := range strings.SplitSeq(history, ";") {
		list = append(list, strings.TrimSpace(line))
	}
	return list
}

// broken returns the numbers of the invariants that a history has broken.
func (p *play) broken() string {
	var numbers []string
	for _, text := range p.wrong {
		number, _, _ := strings.Cut(text, ":")
		numbers = append(numbers, number)
	}
	slices.Sort(numbers)
	return strings.Join(slices.Compact(numbers), " ")
}
