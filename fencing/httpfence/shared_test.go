package httpfence_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/fencing/httpfence"
	"github.com/lockstile/locker/internal/guardtest"
)

func as(number fencing.SharedToken) func(*http.Request) {
	return func(r *http.Request) { httpfence.SetShared(r, number) }
}

func TestServerKeepsTheContractOfGuards(t *testing.T) {
	guardtest.Run(t, guardtest.Remote(serve(t, new(fencing.Memory), httpfence.Options{}).URL))
}

// Goal: a reader's number opens what reads and nothing else; a writer's token opens both.
func TestReadersNumberDoesNotOpenAWrite(t *testing.T) {
	search := httpfence.Options{Reads: func(r *http.Request) bool { return r.URL.Query().Get("q") != "" }}
	for _, c := range []struct {
		guard   fencing.Guard
		opts    httpfence.Options
		method  string
		query   string
		prepare func(*http.Request)
		status  int
		answer  string
	}{
		{new(fencing.Memory), httpfence.Options{}, "GET", "", as(5), 200, "read with 5"},
		{new(fencing.Memory), httpfence.Options{}, "HEAD", "", as(5), 200, ""},
		{new(fencing.Memory), httpfence.Options{}, "GET", "", with(5), 200, "written with 5"},
		{new(fencing.Memory), httpfence.Options{}, "PUT", "", as(5), 400, "needs the token of an exclusive one"},
		{new(fencing.Memory), httpfence.Options{}, "POST", "", as(5), 400, "needs the token of an exclusive one"},
		{new(fencing.Memory), httpfence.Options{}, "DELETE", "", as(5), 400, "needs the token of an exclusive one"},
		{new(fencing.Memory), search, "GET", "", as(5), 400, "needs the token of an exclusive one"},
		{new(fencing.Memory), search, "POST", "?q=1", as(5), 200, "read with 5"},
		{new(fencing.Memory), search, "POST", "?q=1", with(5), 200, "written with 5"},
		{noReaders{new(fencing.Memory)}, httpfence.Options{}, "GET", "", as(5), 400, "the guard of this server knows no readers"},
		{noReaders{new(fencing.Memory)}, httpfence.Options{}, "GET", "", with(5), 200, "written with 5"},
	} {
		status, body := send(t, c.method, serve(t, c.guard, c.opts).URL+"/a"+c.query, c.prepare)
		if status != c.status || !strings.Contains(body, c.answer) {
			t.Errorf("%+v: %d %q", c, status, body)
		}
	}
}

// noReaders is a guard with one mark.
type noReaders struct{ fencing.Guard }

// Goal: a number that was refused for its kind has left no mark, and a token that reads
// counts as one that writes.
func TestKindOfANumberDecidesWhichMarkItLeaves(t *testing.T) {
	url := serve(t, new(fencing.Memory), httpfence.Options{}).URL
	for i, c := range []struct {
		method  string
		prepare func(*http.Request)
		status  int
	}{
		{"PUT", as(9), 400},
		{"PUT", with(5), 200}, // 9 has left no mark
		{"GET", with(6), 200},
		{"GET", as(5), 412}, // 6 had the lock alone
		{"GET", as(8), 200},
		{"GET", as(7), 200},
		{"GET", with(7), 412}, // reader 8 had the lock since
		{"PUT", with(8), 200},
	} {
		if status, body := send(t, c.method, url, c.prepare); status != c.status {
			t.Errorf("step %d: %d %q, want %d", i, status, body, c.status)
		}
	}
}

// Goal: a reader's request that has a body is asked about as a reader's, to its end.
func TestBodyOfAReadersRequestIsCheckedAsAReaders(t *testing.T) {
	guard := new(fencing.Memory)
	middleware, err := httpfence.Middleware(guard, httpfence.Options{Reads: func(*http.Request) bool { return true }})
	if err != nil {
		t.Fatal(err)
	}
	serve := func(meanwhile func()) (read error) {
		handler := middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			r.URL.Path = "/rewritten" // as a router may do: the resource stays
			meanwhile()
			_, read = io.ReadAll(r.Body)
		}))
		req := httptest.NewRequest(http.MethodPost, "/a", strings.NewReader("select"))
		httpfence.SetShared(req, 5)
		handler.ServeHTTP(httptest.NewRecorder(), req)
		return read
	}
	if err := serve(func() { _ = guard.CheckShared(t.Context(), "/a", 6) }); err != nil {
		t.Errorf("with another reader: %v", err)
	}
	if err := serve(func() { _ = guard.Check(t.Context(), "/a", 7) }); !errors.Is(err, fencing.ErrStale) {
		t.Errorf("with a later writer: %v", err)
	}
}
