package cloud

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"gpustack/host"
	"html"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2"
)

// Errors of requests.
var (
	ErrUnauthorized = host.WithHint(errors.New("credentials rejected"),
		"check the name, password and domain of the user, or the age of the token; -v logs each request")
	ErrForbidden   = host.WithHint(errors.New("permission denied"), "use an administrator, or a user with a role that the service's policy accepts")
	ErrNotFound    = errors.New("not found")
	ErrConflict    = errors.New("already exists")
	ErrCertificate = host.WithHint(errors.New("the certificate is not trusted"),
		"give the certificate of the authority with --os-cacert, OS_CACERT or cacert in clouds.yaml")
	ErrUnreachable = host.WithHint(errors.New("no connection"), "check the address and that the service is running; -v logs each request")
	ErrUnavailable = host.WithHint(errors.New("the service is not available"), "see the log of the service; -v logs each request")
	ErrTimeout     = host.WithHint(errors.New("timed out"), "--timeout waits longer; -v logs each request")
	ErrNoEndpoint  = host.WithHint(errors.New("the catalog has no such endpoint"),
		"'openstack catalog list' shows regions and interfaces; choose with --os-region-name or OS_INTERFACE")
)

// Error is a request that failed. errors.Is finds which of the errors above it is.
type Error struct {
	Doing  string // what the request was for, such as "flavors"
	Kind   error  // one of the errors above, or nil
	Status int    // of HTTP; 0 without an answer
	Reason string // the message of the service or of the network
	ID     string // the id of the request in the log of the service; "" if unknown

	advice string // what to do about it, "" for the hint of Kind
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

// Hint returns what an operator can do about the error, or "".
func (e *Error) Hint() string {
	var kind interface{ Hint() string }
	if e.advice == "" && errors.As(e.Kind, &kind) {
		return kind.Hint()
	}
	return e.advice
}

// Unwrap returns the kind of the error.
func (e *Error) Unwrap() error {
	return e.Kind
}

// IsRefused reports whether an error is the service's answer that it has not made the change. After
// other errors it may have.
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

// doing returns an error of gophercloud or the network as one line. Their messages contain whole
// bodies, which may come from a proxy: only what a service has marked as its message is included.
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
		// It does not unwrap; the reason is the error of the authentication.
		return doing(what+": authentication", again.ErrReauth)
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
			if code.Actual >= http.StatusInternalServerError {
				e.advice = "see the log of the service; -v logs each request"
			}
			if e.Reason == "" {
				e.Reason = "the service answered: " + strings.ToLower(http.StatusText(code.Actual))
			}
		}
		return e
	case errors.As(err, &certificate):
		return &Error{Doing: what, Kind: ErrCertificate, Reason: certificate.Err.Error(), advice: adviceCertificate(certificate.Err)}
	case errors.As(err, &noEndpoint):
		return &Error{Doing: what, Kind: ErrNoEndpoint}
	case errors.As(err, &late):
		return &Error{Doing: what, Kind: ErrTimeout, Reason: late.Error()}
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("%s: interrupted", what)
	case errors.As(err, &network):
		return &Error{Doing: what, Kind: ErrUnreachable, Reason: network.Err.Error(), advice: adviceNetwork(network)}
	}
	return &Error{Doing: what, Reason: err.Error()}
}

// message returns the message of a service in an answer: Nova's
// {"badRequest": {"message": …}}, Keystone's {"error": {"message": …}}, Placement's
// {"errors": [{"detail": …}]}, and the page that WebOb makes of Glance's.
func message(body []byte) string {
	var object map[string]json.RawMessage
	if json.Unmarshal(body, &object) != nil {
		if page := glancePage().FindSubmatch(body); page != nil {
			return brief(html.UnescapeString(string(page[1])))
		}
		return ""
	}
	for _, value := range object {
		value = bytes.TrimSuffix(bytes.TrimPrefix(bytes.TrimSpace(value), []byte("[")), []byte("]"))
		var fault struct{ Message, Detail string }
		if json.Unmarshal(value, &fault) == nil && fault.Message+fault.Detail != "" {
			return brief(fault.Message + fault.Detail)
		}
	}
	return ""
}

// glancePage is a page of an error (webob/exc.py, html_template_obj and body_template_obj).
var glancePage = host.LazyRegexp(`(?s)<body>\s*<h1>[^<]*</h1>\s*([^<]*)<br ?/><br ?/>`)

// brief returns a message as one line of limited length.
func brief(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > 500 {
		text = string(runes[:500]) + "…"
	}
	return strings.TrimSuffix(text, ".")
}

// redacted hides a password in a URL.
func redacted(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "(malformed URL)"
	}
	return u.Redacted()
}
