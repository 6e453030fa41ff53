package guest

import (
	"encoding/json"
	"errors"
	"io/fs"
	"reflect"
	"strings"
	"testing"

	"gpustack/host/hosttest"

	"golang.org/x/sys/unix"
)

// TestDenied: the error of a source is one of permission if one of its failures is.
func TestDenied(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fail   func(*access)
		text   string
		denied bool
	}{
		"a file":          {func(l *access) { l.fail("/x", &fs.PathError{Op: "open", Path: "/x", Err: unix.EACCES}) }, "vfio: /x: permission denied", true},
		"with its reason": {func(l *access) { l.failf("%s: %w", "/x", unix.EPERM) }, "vfio: /x: operation not permitted", true},
		"and another": {func(l *access) { l.fail("/x", unix.EACCES); l.fail("/y", unix.EIO) },
			"vfio: /x: permission denied; /y: input/output error", true},
		"another only": {func(l *access) { l.fail("/y", unix.EIO); l.failf("%s: %q", "/x", "permission denied") },
			`vfio: /y: input/output error; /x: "permission denied"`, false},
		"absent": {func(l *access) { l.fail("/x", fs.ErrNotExist) }, "vfio: /x: file does not exist", false},
	} {
		var l access
		test.fail(&l)
		if err := l.source("vfio").Err(); err == nil || err.Error() != test.text || errors.Is(err, fs.ErrPermission) != test.denied {
			t.Errorf("%s: %v, permission %v", name, err, errors.Is(err, fs.ErrPermission))
		}
	}
	if err := (&access{read: []string{"/x"}}).source("vfio").Err(); err != nil {
		t.Error(err)
	}
}

// TestDeniedElsewhere: a report of another machine does not say that a permission of this user was
// lacking, whatever it contains.
func TestDeniedElsewhere(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal([]Source{{Name: "vfio", State: Unreadable, Detail: "/x: permission denied", Denied: true}})
	if err != nil || strings.Contains(string(text), "true") {
		t.Fatalf("%s %v", text, err)
	}
	for _, member := range []string{"", `,"-":true,"Denied":true`} {
		var document any
		hosttest.NoError(t, json.Unmarshal([]byte(strings.Replace(string(text), "}", member+"}", 1)), &document))
		var f problems
		var sources []Source
		f.fill(reflect.ValueOf(&sources).Elem(), document, "")
		if len(f.all) > 0 || len(sources) != 1 || sources[0].Err() == nil || errors.Is(sources[0].Err(), fs.ErrPermission) {
			t.Errorf("%s: %v %+v", member, f.all, sources)
		}
	}
}
