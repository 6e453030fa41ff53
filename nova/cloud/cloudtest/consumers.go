package cloudtest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Consumers are the allocations of a Placement, whose answers follow
// placement/handlers/allocation.py and placement/handlers/util.py.
type Consumers struct {
	Newest int                 // microversion 1.N
	Held   map[string]Consumer // by uuid
}

// Consumer is a consumer that holds allocations.
type Consumer struct {
	Providers  map[string]map[string]int // amounts by resource class, by provider
	Type       string                    // "" is none
	Generation int
}

var consumerType = regexp.MustCompile("^[A-Z0-9_]+$") // placement/schemas/common.py

// answer answers a request for allocations in the microversion of the request. It
// returns whether it has answered.
func (c *Consumers) answer(w http.ResponseWriter, r *http.Request) bool {
	path, ok := strings.CutPrefix(r.URL.Path, "/placement")
	if !ok {
		return false
	}
	minor, err := strconv.Atoi(strings.TrimPrefix(r.Header.Get("OpenStack-API-Version"), "placement 1."))
	if err != nil || minor > c.Newest {
		refuse(w, http.StatusNotAcceptable, fmt.Sprintf("Unacceptable version header: 1.%d", minor))
		return true
	}
	uuid, one := strings.CutPrefix(path, "/allocations/")
	switch {
	case r.Method == http.MethodGet && one:
		c.show(w, uuid, minor)
	case r.Method == http.MethodPost && path == "/allocations":
		c.set(w, r, minor)
	default:
		return false
	}
	return true
}

// refuse answers with an error as Placement does.
func refuse(w http.ResponseWriter, status int, detail string) {
	w.WriteHeader(status)
	reply(w, map[string]any{"errors": []any{map[string]any{"status": status, "detail": detail}}})
}

func (c *Consumers) show(w http.ResponseWriter, uuid string, minor int) {
	held := map[string]any{}
	consumer, there := c.Held[uuid]
	for provider, resources := range maps.All(consumer.Providers) {
		held[provider] = map[string]any{"generation": 1, "resources": resources}
	}
	body := map[string]any{"allocations": held}
	if there {
		body["project_id"], body["user_id"], body["consumer_generation"] = "project", "user", consumer.Generation
		if minor >= 38 {
			body["consumer_type"] = consumer.Type
			if consumer.Type == "" {
				body["consumer_type"] = "unknown"
			}
		}
	}
	reply(w, body)
}

func (c *Consumers) set(w http.ResponseWriter, r *http.Request, minor int) {
	var request map[string]struct {
		Allocations map[string]struct{ Resources map[string]int }
		Generation  *int    `json:"consumer_generation"`
		Type        *string `json:"consumer_type"`
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	for uuid, asked := range request {
		is, there := c.Held[uuid]
		switch {
		case minor < 38 && asked.Type != nil:
			refuse(w, http.StatusBadRequest, "JSON does not validate: Additional properties are not allowed ('consumer_type' was unexpected)")
			return
		case minor >= 38 && (asked.Type == nil || !consumerType.MatchString(*asked.Type)):
			refuse(w, http.StatusBadRequest, "JSON does not validate: 'consumer_type'")
			return
		case there != (asked.Generation != nil) || there && is.Generation != *asked.Generation:
			refuse(w, http.StatusConflict, "consumer generation conflict")
			return
		}
	}
	for uuid, asked := range request {
		now := c.Held[uuid]
		now.Generation++
		now.Providers = map[string]map[string]int{}
		for provider, held := range asked.Allocations {
			now.Providers[provider] = held.Resources
		}
		if asked.Type != nil {
			now.Type = *asked.Type
		}
		c.Held[uuid] = now
		if len(now.Providers) == 0 {
			delete(c.Held, uuid) // with its type
		}
	}
	w.WriteHeader(http.StatusNoContent)
}

// Types returns the types of all consumers, "uuid TYPE" each, sorted.
func (c *Consumers) Types() (lines []string) {
	for uuid, consumer := range c.Held {
		lines = append(lines, strings.TrimSpace(uuid+" "+consumer.Type))
	}
	slices.Sort(lines)
	return lines
}
