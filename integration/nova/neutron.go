package nova

import (
	"encoding/json"
	"net"
	"net/http"
	"path"
	"strings"
)

// startNeutron starts a server in place of Neutron. Nova queries it for each server, also for
// those without networks, and gets empty lists: GET /v2.0/security-groups returns
// {"security_groups": []}.
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
