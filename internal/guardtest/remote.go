package guardtest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/fencing/httpfence"
)

// Remote is the URL of a server behind httpfence, whose guard is asked over HTTP: with a PUT
// for a writer, and with a GET for a reader.
type Remote string

// Check implements [fencing.Guard].
func (g Remote) Check(ctx context.Context, resource string, token fencing.Token) error {
	return g.send(ctx, http.MethodPut, resource, func(r *http.Request) { httpfence.Set(r, token) })
}

// CheckShared implements [fencing.SharedGuard].
func (g Remote) CheckShared(ctx context.Context, resource string, token fencing.SharedToken) error {
	return g.send(ctx, http.MethodGet, resource, func(r *http.Request) { httpfence.SetShared(r, token) })
}

// send makes an error of the answer: 412 is an ErrStale.
func (g Remote) send(ctx context.Context, method, resource string, prepare func(*http.Request)) error {
	req, err := http.NewRequestWithContext(ctx, method, string(g)+"/"+url.PathEscape(resource), http.NoBody)
	if err != nil {
		return err
	}
	prepare(req)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return err
	case resp.StatusCode == http.StatusPreconditionFailed:
		return fencing.ErrStale
	case strings.Contains(string(body), fencing.ErrZeroToken.Error()):
		return fencing.ErrZeroToken
	case resp.StatusCode >= http.StatusMultipleChoices:
		return errors.New(resp.Status)
	}
	return nil
}
