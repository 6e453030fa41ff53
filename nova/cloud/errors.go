package cloud

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2"
)

// Errors of requests, each with its own remedy.
var (
	ErrUnauthorized = errors.New("the credentials are refused")
	ErrForbidden    = errors.New("the user may not do this")
	ErrNotFound     = errors.New("not found")
	ErrConflict     = errors.New("is there already")
	ErrCertificate  = errors.New("the certificate is not trusted")
	ErrUnreachable  = errors.New("no connection")
	ErrUnavailable  = errors.New("the service is not available")
	ErrTimeout      = errors.New("no answer in time")
	ErrNoEndpoint   = errors.New("the catalog has no such endpoint")
)

// Error is a request that failed: what it was for, and in one line why. errors.Is
// finds which of the errors above it is.
type Error struct {
	Doing  string // "flavors"
	Kind   error  // one of the above; nil for another
	Status int    // of HTTP; 0 without an answer
	Reason string // in the service's own words, or the network's
	ID     string // what the service's log calls the request; "" unknown
}

func (e *Error) Error() string {
	text := e.Doing + ": "
	if e.Kind != nil {
		text += e.Kind.Error()
	}
	if e.Reason != "" {
		if e.Kind != nil {
			text += ": "
		}
		text += e.Reason
	}
	var in []string
	if e.Status != 0 {
		in = append(in, fmt.Sprintf("HTTP %d", e.Status))
	}
	if e.ID != "" {
		in = append(in, e.ID)
	}
	if len(in) > 0 {
		text += " (" + strings.Join(in, ", ") + ")"
	}
	return text
}

func (e *Error) Unwrap() error {
	return e.Kind
}

// IsRefused tells whether an error is the service's answer that it has not done what
// was asked for. After others it may have.
func IsRefused(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Status >= 400 && e.Status < 500
}

type timeoutError struct {
	after time.Duration
}

func (e *timeoutError) Error() string {
	return "after " + e.after.String()
}

// doing makes one line of what gophercloud and the network say. Their own words hold
// whole bodies, and these whatever some proxy puts into them: only what a service has
// marked as its message is passed on.
func doing(what string, err error) error {
	var known *Error
	var code gophercloud.ErrUnexpectedResponseCode
	var again *gophercloud.ErrUnableToReauthenticate
	var after *gophercloud.ErrErrorAfterReauthentication
	var certificate *tls.CertificateVerificationError
	var noEndpoint *gophercloud.ErrEndpointNotFound
	var late *timeoutError
	var network *url.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return err
	case errors.As(err, &again):
		// It does not unwrap; what matters is why no new token is to be had.
		return doing(what+": signing in again", again.ErrReauth)
	case errors.As(err, &after):
		return doing(what, after.ErrOriginal)
	case errors.As(err, &code):
		e := &Error{Doing: what, Status: code.Actual, Reason: message(code.Body), ID: requestID(code.ResponseHeader)}
		switch code.Actual {
		case http.StatusUnauthorized:
			e.Kind = ErrUnauthorized
		case http.StatusForbidden:
			e.Kind = ErrForbidden
		case http.StatusNotFound:
			e.Kind = ErrNotFound
		case http.StatusConflict:
			e.Kind = ErrConflict
		case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			e.Kind = ErrUnavailable
		default:
			if e.Reason == "" {
				e.Reason = "the service refuses: " + strings.ToLower(http.StatusText(code.Actual))
			}
		}
		return e
	case errors.As(err, &certificate):
		return &Error{Doing: what, Kind: ErrCertificate, Reason: certificate.Err.Error()}
	case errors.As(err, &noEndpoint):
		return &Error{Doing: what, Kind: ErrNoEndpoint}
	case errors.As(err, &late):
		return &Error{Doing: what, Kind: ErrTimeout, Reason: late.Error()}
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("%s: interrupted", what)
	case errors.As(err, &network):
		return &Error{Doing: what, Kind: ErrUnreachable, Reason: network.Err.Error()}
	}
	return &Error{Doing: what, Reason: err.Error()}
}

// message finds the service's own words in an answer: Nova's
// {"badRequest": {"message": …}}, Keystone's {"error": {"message": …}}, Placement's
// {"errors": [{"detail": …}]}.
func message(body []byte) string {
	var object map[string]json.RawMessage
	if json.Unmarshal(body, &object) != nil {
		return ""
	}
	for _, value := range object {
		value = bytes.TrimSuffix(bytes.TrimPrefix(bytes.TrimSpace(value), []byte("[")), []byte("]"))
		var fault struct{ Message, Detail string }
		if json.Unmarshal(value, &fault) == nil && fault.Message+fault.Detail != "" {
			text := strings.Join(strings.Fields(fault.Message+fault.Detail), " ")
			if runes := []rune(text); len(runes) > 500 {
				text = string(runes[:500]) + "…"
			}
			return strings.TrimSuffix(text, ".")
		}
	}
	return ""
}

// redacted hides a password in a URL.
func redacted(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "an address that cannot be read"
	}
	return u.Redacted()
}
