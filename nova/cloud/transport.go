package cloud

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/gophercloud/gophercloud/v2"
)

// transport brings whole answers: one that is cut off is an error of the request, and
// so repeated, and not one of whoever reads it. It tells of each request what can be
// told: no header and no body, which is where secrets are.
type transport struct {
	base  http.RoundTripper
	trace func(string)
}

// maxAnswer is more than any list of flavors: a thousand to the page.
const maxAnswer = 64 << 20

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	start := time.Now()
	answer, err := t.base.RoundTrip(r)
	if err == nil {
		var body []byte
		body, err = io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
		err = errors.Join(err, answer.Body.Close())
		answer.Body = io.NopCloser(bytes.NewReader(body))
	}
	if t.trace != nil {
		outcome := "no answer"
		if err == nil {
			outcome = strconv.Itoa(answer.StatusCode)
			if id := requestID(answer.Header); id != "" {
				outcome += " " + id
			}
		}
		t.trace(fmt.Sprintf("%s %s: %s, %d ms", r.Method, redacted(r.URL.String()), outcome, time.Since(start).Milliseconds()))
	}
	if err != nil {
		return nil, err
	}
	return answer, nil
}

// requestID is what the service's own log calls the request.
func requestID(h http.Header) string {
	if id := h.Get("X-Openstack-Request-Id"); id != "" {
		return id
	}
	return h.Get("X-Compute-Request-Id")
}

type onceKey struct{}

// once marks requests that are not repeated when they fail. A token that has run out is
// replaced all the same: a request with one does not reach the service.
func once(ctx context.Context) context.Context {
	return context.WithValue(ctx, onceKey{}, true)
}

// attempts is how often a request is made before its error counts.
const attempts = 5

// retry waits before a request is repeated, where that may help: the service is busy
// or gone for a moment, or the connection was lost. A request that changes something
// may have been heard though its answer was lost; whoever makes one expects to find
// the change made.
func retry(ctx context.Context, _, _ string, _ *gophercloud.RequestOpts, err error, failures uint) error {
	if failures >= attempts || !transient(err) || ctx.Value(onceKey{}) != nil {
		return err
	}
	// A quarter of a second, doubled each time, and not in step with other clients.
	wait := 250 * time.Millisecond << (failures - 1)
	wait += rand.N(wait / 2) //nolint:gosec // need not be a secret
	var code gophercloud.ErrUnexpectedResponseCode
	if errors.As(err, &code) {
		if seconds, parseErr := strconv.Atoi(code.ResponseHeader.Get("Retry-After")); parseErr == nil && seconds > 0 {
			wait = time.Duration(seconds) * time.Second
		}
	}
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < wait {
		return err // which says more than that the time is up
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(wait):
		return nil
	}
}

// transient tells whether a repetition may go better.
func transient(err error) bool {
	var code gophercloud.ErrUnexpectedResponseCode
	var certificate *tls.CertificateVerificationError
	var unknown x509.UnknownAuthorityError
	var noHost *net.DNSError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &code):
		switch code.Actual {
		case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			return true
		}
		return false
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return false
	case errors.As(err, &certificate), errors.As(err, &unknown), errors.As(err, &record):
		return false
	case errors.As(err, &noHost):
		return noHost.IsTemporary
	}
	return isNetwork(err)
}

// isNetwork tells an error of the connection from one of what came over it.
func isNetwork(err error) bool {
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}
