// Package httpfence carries fencing tokens over HTTP: the client sends the token
// of its lock in a header, and the server refuses a request whose token is
// smaller than the greatest that the resource has seen.
//
// # What is promised
//
// A handler behind the middleware runs only for requests whose token the guard
// has accepted. It gets no part of the body that came in after the guard had seen a
// greater token: the middleware asks the guard again after every read of the body, before
// the handler gets what was read, and at the body's end. A read that is refused returns
// no bytes and an error that wraps [fencing.ErrStale] or the guard's own error, and so do
// all reads after it. So a client that is paused in the middle of its request is refused
// like one that is paused before it, whether or not the handler reads to the end.
//
// Every read asks the guard once. If a handler reads a large body through a
// [bufio.Reader] of a larger size, the guard is asked less often.
//
// Requests of clients that are not ours can join in: the header is
// "Fencing-Token", and its value the token in decimal. Before the number of a shared lock
// stands the word "shared", as in "shared 34".
//
// # Readers
//
// A request with the number of a shared lock is accepted only if it just reads: the server
// says which do, and needs a [fencing.SharedGuard]. A request that reads may have a writer's
// token as well, and is checked as a write then: who holds a lock alone may read, too.
//
// # What is not
//
// Between the last check and the handler's write there is a gap, in which the server
// can be paused and the handler can wait for something. If the storage has a guard of its
// own, the handler should check there once more, in one step with its write:
// [FromContext] has the token.
//
// For a reader it is the same: its last answer may have what a later holder wrote after
// the check. If that matters, send one more request that reads: if it is accepted, nobody
// had written before it.
//
// If a handler writes while it reads, it may have written a part of the body when the
// rest is refused. If it does not read the body, or there is none, only the first check
// is made.
//
// If a handler passes the request on, as a reverse proxy does, another server writes, and
// the gap lasts until it has written. That server sees the body break off. It may have
// stored what was complete before, though the client gets an error
// ([net/http/httputil.ReverseProxy] answers 502 Bad Gateway). Put the middleware in front
// of that server too: a reverse proxy passes the header on.
//
// What comes in over a connection that the handler has hijacked is not checked.
//
// # Authentication
//
// The header is no authentication, and a token is remembered before the handler can
// refuse the request. A client that reaches the middleware can shut out all holders
// with the greatest possible token, and fill the guard with invented resources. So
// authenticate and authorize in front of the middleware, not behind it.
package httpfence

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/lockstile/locker/fencing"
)

// Header is the name of the header.
const Header = "Fencing-Token"

// shared stands before a reader's number in the header.
const shared = "shared "

// Set puts the token into a request that is about to be sent.
func Set(req *http.Request, token fencing.Token) {
	req.Header.Set(Header, token.String())
}

// SetShared puts a reader's number into a request that is about to be sent.
func SetShared(req *http.Request, token fencing.SharedToken) {
	req.Header.Set(Header, shared+token.String())
}

// Options are a middleware's settings. The zero value is ready to use.
type Options struct {
	// Resource names what a request is about. The default is the path of its URL. Two names
	// are two resources, also where the handler takes two paths for the same thing ("/a"
	// and "/a/", or "/A"): Resource has to make one name of them then.
	Resource func(*http.Request) string

	// Reads reports whether a request only reads, so that the number of a shared lock is
	// enough for it. The default is that GET and HEAD do. If the handler of a GET writes,
	// set it.
	Reads func(*http.Request) bool
}

// Middleware returns a function that puts guard in front of a handler. The guard is called
// for every request, so it cannot belong to one transaction: use a pgfence.Guard on a pool,
// for example.
//
// A request without a token, with one that cannot be read, or with a reader's number where
// a writer's token is needed, is answered with 400 Bad Request. A stale one is answered with
// 412 Precondition Failed, and is never worth trying again with the same token. If the guard
// could not check the token, the answer is 503 Service Unavailable. None of these reaches
// the handler.
func Middleware(guard fencing.Guard, opts Options) (func(http.Handler) http.Handler, error) {
	if guard == nil {
		return nil, errors.New("httpfence: the guard is nil")
	}
	if opts.Resource == nil {
		opts.Resource = func(r *http.Request) string { return r.URL.Path }
	}
	if opts.Reads == nil {
		opts.Reads = func(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			check, number, err := opts.read(r, guard)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			err = check()
			switch {
			case errors.Is(err, fencing.ErrStale):
				http.Error(w, fencing.ErrStale.Error(), http.StatusPreconditionFailed)
			case err != nil: // the client learns nothing about the store
				http.Error(w, "the fencing token could not be checked", http.StatusServiceUnavailable)
			default:
				next.ServeHTTP(w, admit(r, check, number))
			}
		})
	}, nil
}

// admit returns the request as the handler gets it.
func admit(r *http.Request, check func() error, number any) *http.Request {
	r = r.WithContext(context.WithValue(r.Context(), key{}, number))
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = &body{ReadCloser: r.Body, check: check}
	}
	return r
}

// body asks the guard before it hands out what it has read.
type body struct {
	io.ReadCloser
	check func() error
	end   error // what all further reads return
}

// Read asks every time, for no read knows whether another one follows: a decoder
// stops where its value ends, and the end of the body may come long after the last
// byte. After a refusal it returns no bytes: some readers use what they get and never
// look at the error that comes with it.
func (b *body) Read(p []byte) (int, error) {
	if b.end != nil {
		return 0, b.end
	}
	n, err := b.ReadCloser.Read(p)
	if n == 0 && !errors.Is(err, io.EOF) {
		return 0, err
	}
	if refused := b.check(); refused != nil {
		b.end = fmt.Errorf("httpfence: the body of the request: %w", refused)
		return 0, b.end
	}
	if errors.Is(err, io.EOF) {
		b.end = io.EOF
	}
	return n, err
}

type key struct{}

// FromContext returns the token of the request that a handler behind the
// middleware serves, and whether there is one. A reader's request has none.
func FromContext(ctx context.Context) (fencing.Token, bool) {
	token, ok := ctx.Value(key{}).(fencing.Token)
	return token, ok
}

// SharedFromContext returns the number of a reader's request, and whether there is one.
func SharedFromContext(ctx context.Context) (fencing.SharedToken, bool) {
	token, ok := ctx.Value(key{}).(fencing.SharedToken)
	return token, ok
}

// read returns what checks the request's number, and the number: a fencing.Token or a
// fencing.SharedToken. Two headers are an error: a server in between may have checked the
// other one.
func (o Options) read(r *http.Request, guard fencing.Guard) (check func() error, number any, err error) {
	values := r.Header.Values(Header)
	if len(values) != 1 {
		return nil, nil, errors.New("the request must have exactly one " + Header + " header")
	}
	text, reader := strings.CutPrefix(values[0], shared)
	token, err := fencing.ParseToken(text)
	switch {
	case err != nil:
		return nil, nil, errors.New("the " + Header + " header must be a number from 1 to 18446744073709551615, after the word shared if it is a reader's")
	case token == 0:
		return nil, nil, errors.New("the " + Header + " header: " + fencing.ErrZeroToken.Error())
	case !reader:
		resource := o.Resource(r)
		return func() error { return guard.Check(r.Context(), resource, token) }, token, nil
	}
	readers, ok := guard.(fencing.SharedGuard)
	switch {
	case !ok:
		return nil, nil, errors.New("the " + Header + " header has the number of a shared lock, and the guard of this server knows no readers: it must be a fencing.SharedGuard")
	case !o.Reads(r):
		return nil, nil, errors.New("the " + Header + " header has the number of a shared lock, and this request needs the token of an exclusive one")
	}
	resource := o.Resource(r)
	return func() error { return readers.CheckShared(r.Context(), resource, fencing.SharedToken(token)) }, fencing.SharedToken(token), nil
}
