package drain

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"gpustack/host"
	"gpustack/nova/cloud"
	"gpustack/nova/object"
)

// Errors of plans.
var (
	// ErrNoService says that a cloud has no compute service on a host.
	ErrNoService = host.WithHint(errors.New("has no compute service"), "'openstack compute service list --service nova-compute' names the hosts")
	// ErrOtherReason says that gpustack has not disabled a service.
	ErrOtherReason = host.WithHint(host.WithCode(errors.New("is disabled, and not by gpustack"), host.CodeOtherOwner, ""),
		"ask who has disabled it; 'openstack compute service set --enable' enables it")
	// ErrOtherOperator says that another operator, or another machine's gpustack, has disabled a
	// service.
	ErrOtherOperator = host.WithHint(host.WithCode(errors.New("was disabled by a drain that is not in this journal"), host.CodeOtherOwner, ""),
		"--take-over replaces the reason")
	// ErrNotDrained says that a service whose step is to change is not disabled.
	ErrNotDrained = host.WithHint(errors.New("is enabled"), "disable it first, with --reason")
	// ErrUnknown says that the cell of a service does not answer.
	ErrUnknown = host.WithHint(errors.New("cannot be read: its cell does not answer"), "repair the connection of nova-api to the database of that cell")
)

// State is whether Nova's scheduler uses a compute service, and if not, why.
type State struct {
	Enabled bool `json:"enabled"` // whether the scheduler uses the host
	// why it is disabled, by gpustack as "gpustack TIME ID: TEXT"; "" for none
	Reason string `json:"disabled_reason"`
}

func stateOf(s cloud.ComputeService) State {
	if s.Enabled {
		return State{Enabled: true} // Nova may keep the reason of the last time
	}
	return State{Reason: s.Reason}
}

// same reports whether two states are the same: reasons of gpustack are if their time and id are,
// whatever their text.
func (s State) same(other State) bool {
	a, aOurs := ParseReason(s.Reason)
	b, bOurs := ParseReason(other.Reason)
	if s.Enabled == other.Enabled && aOurs && bOurs {
		return a.same(b)
	}
	return s == other
}

func (s State) String() string {
	switch {
	case s.Enabled:
		return "enabled"
	case s.Reason == "":
		return "disabled, without a reason"
	}
	return fmt.Sprintf("disabled: %s", s.Reason)
}

// Move is a change of the state of one service.
type Move struct {
	object.Head
	Host   string `json:"nova_host"` // the host's name in Nova
	Before State  `json:"old_state"` // the state of the service before the change
	After  State  `json:"new_state"` // the state of the service after the change

	service cloud.ComputeService // of a planned move
}

// Changed reports whether the move is to be made.
func (m Move) Changed() bool { return m.Before != m.After }

// Renames reports whether the move only changes the text of the reason. That needs no entry in the
// journal: the state is the same for Nova and for the undo of the entry that has disabled it.
func (m Move) Renames() bool { return m.Changed() && m.Before.same(m.After) }

// Side returns the name of the service, and its state before or after the move, a line for each value.
func (m Move) Side(after bool) (name, text string) {
	s := m.Before
	if after {
		s = m.After
	}
	text = "status          enabled\n"
	if !s.Enabled {
		text = "status          disabled\ndisabled_reason " + s.Reason + "\n"
	}
	return "service " + m.Host, text
}

// Find returns the compute service of a host, by its name exactly.
//
// Errors: ErrNoService, with the hosts that may be meant; ErrUnknown.
func Find(ctx context.Context, c *cloud.Compute, name string) (cloud.ComputeService, error) {
	all, err := c.ComputeServices(ctx)
	if err != nil {
		return cloud.ComputeService{}, err
	}
	var like []string
	for _, s := range all {
		switch {
		case s.Host == name && s.Unknown:
			return s, fmt.Errorf("the compute service of %s %w", name, ErrUnknown)
		case s.Host == name:
			return s, nil
		case strings.EqualFold(short(s.Host), short(name)):
			like = append(like, s.Host)
		}
	}
	err = fmt.Errorf("host %s %w", host.WithoutCredentials(name), ErrNoService)
	if len(like) > 0 {
		err = host.WithHint(err, "did you mean "+strings.Join(like, " or ")+"?")
	}
	return cloud.ComputeService{}, err
}

func short(name string) string {
	name, _, _ = strings.Cut(name, ".")
	return name
}

// NewDraining plans to disable a service with a text, now. A service that this operator has disabled,
// by the ids of the drains in own, keeps its time and its id. takeOver gives one that another operator
// has disabled new ones, which is a change that undo reverts.
//
// Errors: ErrOtherReason, ErrOtherOperator.
func NewDraining(s cloud.ComputeService, text string, now time.Time, own []string, takeOver bool) (Move, error) {
	m := Move{Host: s.Host, Before: stateOf(s), service: s}
	r, ours := ParseReason(s.Reason)
	switch foreign := !slices.Contains(own, r.ID); {
	case !s.Enabled && !ours:
		return m, otherReason(s)
	case !s.Enabled && foreign && !takeOver:
		return m, host.WithHint(fmt.Errorf("the compute service of %s %w: the reason is %s", s.Host, ErrOtherOperator, s.Reason),
			"ask who has disabled it, and leave it to that operator; --take-over replaces the reason, which undo restores")
	case s.Enabled || foreign:
		r = Reason{Since: now.UTC().Truncate(time.Second), ID: newID()}
	}
	r.Text = text
	m.After = State{Reason: r.String()}
	return m, nil
}

// NewStep plans to change the text of the reason of a service that gpustack has disabled.
//
// Errors: ErrNotDrained, ErrOtherReason.
func NewStep(s cloud.ComputeService, text string) (Move, error) {
	m := Move{Host: s.Host, Before: stateOf(s), service: s}
	r, ours := ParseReason(s.Reason)
	switch {
	case s.Enabled:
		err := fmt.Errorf("the compute service of %s %w", s.Host, ErrNotDrained)
		return Move{Host: s.Host}, host.WithHint(err, host.Textf("'%s' disables it", host.NewCommand("nova drain").Arg(s.Host).Flag("reason", "TEXT")))
	case !ours:
		return m, otherReason(s)
	}
	r.Text = text
	m.After = State{Reason: r.String()}
	return m, nil
}

// NewEnabling plans to enable a service that gpustack has disabled; one that is enabled stays so.
//
// Errors: ErrOtherReason.
func NewEnabling(s cloud.ComputeService) (Move, error) {
	m := Move{Host: s.Host, Before: stateOf(s), After: State{Enabled: true}, service: s}
	if _, ours := ParseReason(s.Reason); !s.Enabled && !ours {
		return m, otherReason(s)
	}
	return m, nil
}

func otherReason(s cloud.ComputeService) error {
	reason := "no reason is given"
	if s.Reason != "" {
		reason = "the reason is " + s.Reason
	}
	err := fmt.Errorf("the compute service of %s %w: %s", s.Host, ErrOtherReason, reason)
	if strings.HasPrefix(s.Reason, "AUTO: ") {
		return host.WithHint(err, "nova-compute has disabled it, and enables it again when libvirt answers: see its log on "+s.Host)
	}
	return host.WithHint(err, fmt.Sprintf("ask who has disabled it; 'openstack compute service set --enable %s nova-compute' enables it", s.Host))
}

func newID() string {
	var id [idLen / 2]byte
	rand.Read(id[:]) // it never fails
	return hex.EncodeToString(id[:])
}

// Drained is a service that gpustack has disabled.
type Drained struct {
	Host string `json:"nova_host"` // the host's name in Nova
	Up   bool   `json:"up"`        // whether nova-compute reports to Nova
	Reason
}

// Status is which compute services are disabled.
type Status struct {
	// the compute services that gpustack has disabled, longest ago first
	Drained []Drained `json:"drained"`
	Enabled int       `json:"enabled_count"` // compute services that are enabled
	// compute services that are disabled for other reasons
	Others int `json:"disabled_count"`
	// hosts whose cell does not answer; before microversion 2.69 they are missing from all lists
	Unknown []string `json:"unknown_hosts"`
}

// NewStatus returns which of a cloud's services are disabled.
func NewStatus(all []cloud.ComputeService) (status Status) {
	for _, s := range all {
		r, ours := ParseReason(s.Reason)
		switch {
		case s.Unknown:
			status.Unknown = append(status.Unknown, s.Host)
		case s.Enabled:
			status.Enabled++
		case ours:
			status.Drained = append(status.Drained, Drained{s.Host, s.Up, r})
		default:
			status.Others++
		}
	}
	slices.SortStableFunc(status.Drained, func(a, b Drained) int { return a.Since.Compare(b.Since) })
	return status
}
