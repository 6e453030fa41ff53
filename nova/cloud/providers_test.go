package cloud_test

import (
	"fmt"
	"net/http"
	"testing"

	"gpustack/host/hosttest"
)

// TestWithTrait: only Placement's answer that it has no such trait means that no compute node has
// it. A request that it rejects for another reason tells nothing of the nodes.
func TestWithTrait(t *testing.T) {
	for name, tt := range map[string]struct {
		trait, rejected string // the detail of Placement's answer; "" is the answer of cloudtest
		want            string
	}{
		"reported":         {"HW_CPU_X86_AVX", "", "[gpu1 gpu2] <nil>"},
		"of no node":       {"COMPUTE_RESCUE_BFV", "", "[] <nil>"},
		"unknown":          {"COMPUTE_NEWER", "", "[] <nil>"},
		"another HTTP 400": {"HW_CPU_X86_AVX", "Badly formed required parameter", "Badly formed required parameter"},
	} {
		t.Run(name, func(t *testing.T) {
			fake, compute := signIn(t, 96)
			fake.Traits = map[string]int{"HW_CPU_X86_AVX": 2, "COMPUTE_RESCUE_BFV": 0}
			if tt.rejected != "" {
				reject := answer(http.StatusBadRequest, fmt.Sprintf(`{"errors": [{"status": 400, "detail": %q}]}`, tt.rejected))
				fake.Fault = func(w http.ResponseWriter, r *http.Request) bool { reject(w, r); return true }
			}
			placement, err := compute.Cloud().Placement()
			hosttest.NoError(t, err)
			names, err := placement.WithTrait(t.Context(), tt.trait)
			hosttest.Contains(t, tt.want, fmt.Sprint(names, err))
		})
	}
}
