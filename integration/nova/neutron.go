package nova

import (
	"encoding/json"
	"net"
	"net/http"
	"path"
	"strings"
)

// startNeutron serves in Neutron's place. Nova asks it about each server, also about
// those without networks, and is told that there are none of what it asks for:
// GET /v2.0/security-groups gives {"security_groups": []}.
func (l *Lab) startNeutron() error {
	listener, err := net.Listen("tcp4", address(l.ports.Neutron))
	if err != nil {
		return err
	}
	l.neutron = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			http.Error(w, "this is not Neutron", http.StatusNotImplemented)
			return
		}
		kind := strings.ReplaceAll(path.Base(r.URL.Path), "-", "_")
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(map[string][]any{kind: {}})
	})}
	go l.neutron.Serve(listener) // until Stop
	return nil
}
