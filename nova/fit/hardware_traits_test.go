package fit_test

import (
	"errors"
	"slices"
	"testing"

	"gpustack/nova"
	"gpustack/nova/fit"
)

// TestSecretsOfTPM: where a TPM's secrets are kept is a trait since 2026.1, by default that of
// user.
func TestSecretsOfTPM(t *testing.T) {
	for _, test := range []struct {
		release  nova.Release
		security string
		want     []string
	}{
		{nova.Epoxy, "", nil},
		{nova.Gazpacho, "", []string{"COMPUTE_SECURITY_TPM_SECRET_SECURITY_USER"}},
		{nova.Hibiscus, "deployment", []string{"COMPUTE_SECURITY_TPM_SECRET_SECURITY_DEPLOYMENT"}},
	} {
		g := fit.Guest{Release: test.release, Specs: map[string]string{"hw:tpm_version": "2.0", "hw:tpm_secret_security": test.security}}
		if traits, err := g.FilterTraits(); err != nil || !slices.Equal(traits, test.want) {
			t.Errorf("%s, %q: %q, %v", test.release, test.security, traits, err)
		}
	}
	g := fit.Guest{Release: nova.Hibiscus, Specs: map[string]string{"hw:tpm_version": "2.0", "hw:tpm_secret_security": "nobody"}}
	var rejected *fit.Rejection
	if _, err := g.FilterTraits(); !errors.As(err, &rejected) {
		t.Errorf("%v", err)
	}
}

// TestEncryptionTrait: encrypted memory requires the trait of its model since 2026.1.
func TestEncryptionTrait(t *testing.T) {
	for _, test := range []struct {
		release nova.Release
		flavor  string
		image   string
		want    string
	}{
		{nova.Epoxy, "", "", ""},
		{nova.Gazpacho, "", "", "HW_CPU_X86_AMD_SEV"},
		{nova.Gazpacho, "amd-sev-es", "", "HW_CPU_X86_AMD_SEV_ES"},
		{nova.Hibiscus, "", "intel-tdx", "HW_CPU_X86_INTEL_TDX"},
	} {
		g := fit.Guest{Release: test.release, Specs: map[string]string{"hw:mem_encryption": "true", "hw:mem_encryption_model": test.flavor},
			Image: map[string]string{"hw_firmware_type": "uefi", "hw_mem_encryption_model": test.image}}
		if trait := g.EncryptionTrait(); trait != test.want {
			t.Errorf("%+v: %q", test, trait)
		}
	}
}
