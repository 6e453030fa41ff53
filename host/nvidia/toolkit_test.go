package nvidia_test

import (
	"fmt"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/host/nvidia"
)

func TestCompare(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b nvidia.Version
		want int
	}{
		{"535.104.05", "535.86.09", 1},
		{"550.163.01", "550.163.01", 0},
		{"450.80.02", "450.119.03", -1},
		{"580", "580.65.06", -1},
		{"580.0", "580", 0},
		{"12.10", "12.9", 1},
		{"", "346.46", -1},
	} {
		hosttest.EqualIn(t, fmt.Sprintf("%q to %q", c.a, c.b), c.want, c.a.Compare(c.b))
	}
}

func TestAccepts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		release  string
		driver   nvidia.Version
		accepted nvidia.Acceptance
		needed   nvidia.Version
	}{
		{"12.4", "550.163.01", nvidia.Full, "550.54.14"},
		{"12.4", "550.54.14", nvidia.Full, "550.54.14"},
		{"12.4", "550.54.13", nvidia.Minor, "550.54.14"},
		{"12.4", "535.261.03", nvidia.Minor, "550.54.14"},
		{"12.4", "525.60.13", nvidia.Minor, "550.54.14"},
		{"12.4", "525.60.11", nvidia.TooOld, "525.60.13"},
		{"12.4", "470.256.02", nvidia.TooOld, "525.60.13"},
		{"11.8", "470.256.02", nvidia.Minor, "520.61.05"},
		{"11.8", "352.39", nvidia.TooOld, "450.80.02"},
		{"11.0", "450.36.06", nvidia.Full, "450.36.06"},
		{"10.2", "440.33", nvidia.Full, "440.33"},
		{"10.2", "440.32", nvidia.TooOld, "440.33"}, // no minor version compatibility before 11
		{"7.0", "590.44.01", nvidia.Full, "346.46"},
		{"13.0", "575.51.03", nvidia.TooOld, "580"},
		{"13.7", "595.10", nvidia.Minor, ""},            // later than the table: its family is known
		{"12", "525.60.11", nvidia.TooOld, "525.60.13"}, // a family
		{"11", "450.36.06", nvidia.TooOld, "450.80.02"},
		{"12", "525.60.13", nvidia.Minor, ""},
		{"10", "700.1", nvidia.Unknown, ""},
		{"14.0", "700.1", nvidia.Unknown, ""},
		{"6.5", "700.1", nvidia.Full, ""}, // older than every driver of the table
		{"6.5", "340.29", nvidia.Unknown, ""},
		{"", "700.1", nvidia.Unknown, ""},
	} {
		if accepted, needed := nvidia.Accepts(c.release, c.driver); accepted != c.accepted || needed != c.needed {
			t.Errorf("CUDA %s with %s: %s, %s, want %s, %s", c.release, c.driver, accepted, needed, c.accepted, c.needed)
		}
	}
}

// TestCUDA has what cuDriverGetVersion of real libraries returned.
func TestCUDA(t *testing.T) {
	t.Parallel()
	for driver, want := range map[nvidia.Version]nvidia.Version{
		"470.256.02": "11.4", "535.261.03": "12.2", "550.163.01": "12.4", "346.46": "7.0", "340.108": "", "999.1": "13.1",
	} {
		hosttest.EqualIn(t, fmt.Sprint(driver), want, nvidia.CUDA(driver))
	}
}

func TestToolkitOf(t *testing.T) {
	t.Parallel()
	for runtime, want := range map[string]nvidia.Version{"12.4.127": "12.4", "11.8.89": "11.8", "12.10": "12.10", "12": "", "12.4.127a": "", "": ""} {
		if got, ok := nvidia.ToolkitOf(runtime); got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v, want %q", runtime, got, ok, want)
		}
	}
}

func TestRuntimeRelease(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]nvidia.Version{
		"12.4.127": "12.4", "12": "12", "13": "13", "11.8.89": "11.8", "11.0": "11", "11.0.221": "11.0", "10.2": "10.2", "10.2.89": "10.2", "": "", "x": "",
	} {
		got, ok := nvidia.RuntimeRelease(version)
		if ok != (want != "") || ok && got != want {
			t.Errorf("%q: %q, %t, want %q", version, got, ok, want)
		}
	}
}
