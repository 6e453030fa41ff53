package cloud

import (
	"bytes"
	"cmp"
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

// transport reads answers completely, so that a truncated answer is an error of the request, which
// is retried. It traces each request without headers and body, which contain secrets.
type transport struct {
	base  http.RoundTripper
	trace func(string)
}

// maxAnswer limits an answer. It is more than any page of a list, which has at most 1000 elements.
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

// requestID returns the id of the request in the log of the service.
func requestID(h http.Header) string {
	return cmp.Or(h.Get("X-Openstack-Request-Id"), h.Get("X-Compute-Request-Id"))
}

type onceKey struct{}

// once marks requests that are not retried when they fail. An expired token is still renewed: a
// request with an expired token does not reach the service.
func once(ctx context.Context) context.Context {
	return context.WithValue(ctx, onceKey{}, true)
}

// attempts is how often a request is made before its error is returned.
const attempts = 5

// retry waits before a request is retried, if the service is temporarily not available or the
// connection was lost. A request that changes something may have been carried out although its
// answer was lost; its caller must expect the change.
func retry(ctx context.Context, _, _ string, _ *gophercloud.RequestOpts, err error, failures uint) error {
	if failures >= attempts || !transient(err) || ctx.Value(onceKey{}) != nil {
		return err
	}
	// A quarter of a second, doubled each time, with jitter.
	wait := 250 * time.Millisecond << (failures - 1)
	wait += rand.N(wait / 2) //nolint:gosec // need not be a secret
	var code gophercloud.ErrUnexpectedResponseCode
	if errors.As(err, &code) {
		if seconds, parseErr := strconv.Atoi(code.ResponseHeader.Get("Retry-After")); parseErr == nil && seconds > 0 {
			wait = time.Duration(seconds) * time.Second
		}
	}
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < wait {
		return err // it says more than the timeout would
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(wait):
		return nil
	}
}

// transient reports whether a retry may succeed.
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

// isNetwork reports whether an error is one of the connection, not of an answer.
func isNetwork(err error) bool {
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}
