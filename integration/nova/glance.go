package nova

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strings"
)

// hasGlance tells whether Debian's Glance is installed: testing may lack it for a time.
func hasGlance() (bool, error) {
	_, err := os.Stat("/usr/lib/python3/dist-packages/glance")
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// standIn is the image of a lab without Glance, as its API shows it.
const (
	standInID   = "1a9e0000-0000-4000-8000-000000000001"
	standInData = "not much of a disk\n"
)

// startStandIn starts a server in place of Glance, where that is not installed. It has the one
// image that servers boot from, and accepts no other: tests of images fail there.
func (l *Lab) startStandIn() error {
	listener, err := net.Listen("tcp4", address(l.ports.Glance))
	if err != nil {
		return err
	}
	image := map[string]any{
		"id": standInID, "name": Image, "status": "active", "visibility": "public", "protected": false, "owner": "none", "tags": []string{},
		"container_format": "bare", "disk_format": "raw", "size": len(standInData), "virtual_size": len(standInData), "min_disk": 0, "min_ram": 0,
		"checksum": nil, "os_hash_algo": nil, "os_hash_value": nil, "os_hidden": false,
		"created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-01T00:00:00Z", "file": "/v2/images/" + standInID + "/file", "schema": "/v2/schemas/image",
	}
	properties := map[string]any{}
	for name := range image {
		properties[name] = map[string]any{} // of any type
	}
	l.standIn = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var answer any
		switch {
		case r.Method != http.MethodGet:
			http.Error(w, "this is not Glance", http.StatusNotImplemented)
			return
		case r.URL.Path == "/v2/images":
			found := []any{}
			if name := r.URL.Query().Get("name"); name == "" || name == Image {
				found = append(found, image)
			}
			answer = map[string]any{"images": found}
		case r.URL.Path == "/v2/images/"+standInID:
			answer = image
		case r.URL.Path == "/v2/images/"+standInID+"/file":
			io.WriteString(w, standInData)
			return
		case r.URL.Path == "/v2/schemas/image":
			answer = map[string]any{"name": "image", "properties": properties, "additionalProperties": map[string]any{"type": "string"}}
		case strings.Trim(r.URL.Path, "/") == "" || r.URL.Path == "/versions":
			answer = map[string]any{"versions": []any{map[string]any{"id": "v2.16", "status": "CURRENT", "links": []any{map[string]any{"rel": "self", "href": l.GlanceURL + "/v2/"}}}}}
		default:
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(answer)
	})}
	go l.standIn.Serve(listener) // until Stop
	return nil
}
