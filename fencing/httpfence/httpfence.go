// Package httpfence carries fencing tokens over HTTP: the client sends the token
// of its lock in a header, and the server refuses a request whose token is
// smaller than the greatest that the resource has seen.
//
// # What is promised
//
// A handler behind the middleware runs only for requests whose token the guard
// has accepted. The guard is asked once more when the handler reads the end of the
// request's body: if the token has become stale while that was under way, the
// handler gets an error that wraps [fencing.ErrStale] in place of the end. So a
// handler that writes when it has read the whole body is safe from a client that
// is paused in the middle of it.
//
// Requests of clients that are not ours can join in: the header is
// "Fencing-Token", and its value the token in decimal.
//
// # What is not
//
// Between the check and what the handler writes there is a gap in which the
// server can be paused. Where the storage has a guard of its own, the handler
// should check there once more, in one step with its write: [FromContext] has the
// token. A handler that writes before it has read the body to its end, as it comes
// in say, has that gap for as long as the client likes. The header is no
// authentication.
package httpfence

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/lockstile/locker/fencing"
)

// Header is the name of the header.
const Header = "Fencing-Token"

// Set puts the token into a request that is about to be sent.
func Set(req *http.Request, token fencing.Token) {
	req.Header.Set(Header, token.String())
}

// Middleware returns a function that puts guard in front of a handler. Resource
// names what a request is about; nil means the path of its URL. A guard that has
// a check and write of its own, in a transaction say, has no place here: one that
// stands for itself does, such as a pgfence.Guard on a pool.
//
// A request without a token, or with one that cannot be read, is answered with
// 400 Bad Request; a stale one with 412 Precondition Failed, and it is never
// worth trying again with the same token; and one whose token the guard could
// not look at with 503 Service Unavailable. None of these reaches the handler.
func Middleware(guard fencing.Guard, resource func(*http.Request) string) (func(http.Handler) http.Handler, error) {
	if guard == nil {
		return nil, errors.New("httpfence: the guard is nil")
	}
	if resource == nil {
		resource = func(r *http.Request) string { return r.URL.Path }
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			token, err := read(r)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			name := resource(r)
			err = guard.Check(r.Context(), name, token)
			switch {
			case errors.Is(err, fencing.ErrStale):
				http.Error(w, fencing.ErrStale.Error(), http.StatusPreconditionFailed)
			case err != nil: // what the store says is none of the client's business
				http.Error(w, "the fencing token could not be checked", http.StatusServiceUnavailable)
			default:
				next.ServeHTTP(w, admit(r, guard, name, token))
			}
		})
	}, nil
}

// admit returns the request as the handler gets it.
func admit(r *http.Request, guard fencing.Guard, resource string, token fencing.Token) *http.Request {
	r = r.WithContext(context.WithValue(r.Context(), key{}, token))
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = &body{ReadCloser: r.Body, check: func() error { return guard.Check(r.Context(), resource, token) }}
	}
	return r
}

// body ends with an error if check finds one when it ends.
type body struct {
	io.ReadCloser
	check func() error
	end   error // what the first look at the end has found
}

// Read returns none of the last bytes together with the error: some readers take
// what they get and never look at it.
func (b *body) Read(p []byte) (int, error) {
	if b.end != nil {
		return 0, b.end
	}
	n, err := b.ReadCloser.Read(p)
	if !errors.Is(err, io.EOF) {
		return n, err
	}
	b.end = io.EOF
	if err := b.check(); err != nil {
		b.end = fmt.Errorf("httpfence: the end of the request: %w", err)
		return 0, b.end
	}
	return n, io.EOF
}

type key struct{}

// FromContext returns the token of the request that a handler behind the
// middleware serves, and whether there is one.
func FromContext(ctx context.Context) (fencing.Token, bool) {
	token, ok := ctx.Value(key{}).(fencing.Token)
	return token, ok
}

// read returns the request's token. Two headers are as bad as none: another
// server in between might have read the other one.
func read(r *http.Request) (fencing.Token, error) {
	values := r.Header.Values(Header)
	if len(values) != 1 {
		return 0, errors.New("the request must have exactly one " + Header + " header")
	}
	token, err := fencing.Parse(values[0])
	switch {
	case err != nil:
		return 0, errors.New("the " + Header + " header must be a number from 1 to 18446744073709551615")
	case token == 0:
		return 0, errors.New("the " + Header + " header: " + fencing.ErrZeroToken.Error())
	}
	return token, nil
}
