package httpfence_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/fencing/httpfence"
)

// serve starts a server that answers with the token that its handler was given.
func serve(t *testing.T, guard fencing.Guard, opts httpfence.Options) *httptest.Server {
	t.Helper()
	middleware, err := httpfence.Middleware(guard, opts)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if number, ok := httpfence.SharedFromContext(r.Context()); ok {
			fmt.Fprintf(w, "read with %d", number)
		}
		if token, ok := httpfence.FromContext(r.Context()); ok {
			fmt.Fprintf(w, "written with %d", token)
		}
	})))
	t.Cleanup(server.Close)
	return server
}

func put(t *testing.T, url string, prepare func(*http.Request)) (status int, body string) {
	t.Helper()
	return send(t, http.MethodPut, url, prepare)
}

func send(t *testing.T, method, url string, prepare func(*http.Request)) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), method, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	prepare(req)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func with(token fencing.Token) func(*http.Request) {
	return func(r *http.Request) { httpfence.Set(r, token) }
}

func TestStaleRequestsAreRefusedPerResource(t *testing.T) {
	server := serve(t, new(fencing.Memory), httpfence.Options{})
	for _, c := range []struct {
		path  string
		token fencing.Token
		want  int
	}{
		{"/a", 5, 200}, {"/a", 5, 200}, {"/a", 4, 412}, {"/b", 4, 200},
		{"/a?x=1", 4, 412}, {"/%61", 4, 412}, {"/a/", 4, 200}, // the path of the URL is the resource
		{"/a", 18446744073709551615, 200}, {"/a", 6, 412},
	} {
		status, body := put(t, server.URL+c.path, with(c.token))
		if status != c.want {
			t.Errorf("%s with %d: %d, want %d", c.path, c.token, status, c.want)
		}
		if written := body == fmt.Sprintf("written with %d", c.token); written != (c.want == 200) {
			t.Errorf("%s with %d: the handler said %q", c.path, c.token, body)
		}
	}
}

func TestRequestsWithoutOneReadableTokenAreRefused(t *testing.T) {
	server := serve(t, new(fencing.Memory), httpfence.Options{})
	for name, values := range map[string][]string{
		"missing": nil, "empty": {""}, "zero": {"0"}, "negative": {"-1"}, "text": {"x"}, "list": {"1, 2"},
		"two": {"1", "1"}, "too large": {"18446744073709551616"}, "a kind alone": {"shared"}, "zero of a reader": {"shared 0"},
		"two kinds": {"shared shared 1"}, "two of a reader": {"shared 1, shared 1"}, "both": {"1", "shared 1"}, "another kind": {"slot 1"},
		"two spaces": {"shared  1"}, "the other way round": {"1 shared"}, "capitals": {"Shared 1"},
	} {
		for _, method := range []string{http.MethodPut, http.MethodGet} {
			status, body := send(t, method, server.URL, func(r *http.Request) { r.Header[httpfence.Header] = values })
			if status != http.StatusBadRequest || strings.Contains(body, "with") {
				t.Errorf("%s: %s: %d %q", method, name, status, body)
			}
		}
	}
}

// A client may send the same request again, under its next lock.
func TestRequestHasTheNumberThatWasSetLastAlone(t *testing.T) {
	server := serve(t, new(fencing.Memory), httpfence.Options{})
	for want, prepare := range map[string][2]func(*http.Request){
		"written with 2": {with(1), with(2)}, "written with 3": {as(1), with(3)},
		"read with 4": {with(1), as(4)}, "read with 5": {as(1), as(5)},
	} {
		guarded := server.URL + "/" + strings.ReplaceAll(want, " ", "_")
		status, body := send(t, http.MethodGet, guarded, func(r *http.Request) { prepare[0](r); prepare[1](r) })
		if status != http.StatusOK || body != want {
			t.Errorf("%d %q, want %q", status, body, want)
		}
	}
}

// asks is a guard that notes the requests in whose contexts it is asked.
type asks struct {
	fencing.Memory
	of []any
}

// request is the key of a request's name.
type request struct{}

func (g *asks) Check(ctx context.Context, resource string, token fencing.Token) error {
	g.of = append(g.of, ctx.Value(request{}))
	return g.Memory.Check(ctx, resource, token)
}

func (g *asks) CheckShared(ctx context.Context, resource string, token fencing.SharedToken) error {
	g.of = append(g.of, ctx.Value(request{}))
	return g.Memory.CheckShared(ctx, resource, token)
}

// Goal: nobody works for a client that is gone: not the guard, and not the handler. A request
// without a body asks once.
func TestGuardAndHandlerHaveTheContextOfTheRequest(t *testing.T) {
	for name, prepare := range map[string]func(*http.Request){"of a writer": with(5), "of a reader": as(5)} {
		guard := new(asks)
		middleware, err := httpfence.Middleware(guard, httpfence.Options{})
		if err != nil {
			t.Fatal(err)
		}
		handler := middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.Context().Value(request{}) != name {
				t.Errorf("%s: the handler has another context", name)
			}
			if r.Body != nil {
				_, _ = io.ReadAll(r.Body)
			}
		}))
		for _, body := range []io.ReadCloser{io.NopCloser(strings.NewReader("text")), http.NoBody, nil} {
			req := httptest.NewRequestWithContext(context.WithValue(t.Context(), request{}, name), http.MethodGet, "/a", nil)
			req.Body = body
			prepare(req)
			handler.ServeHTTP(httptest.NewRecorder(), req)
		}
		if want := slices.Repeat([]any{name}, 5); !slices.Equal(guard.of, want) { // at the beginning, with the text, at its end; and once each
			t.Errorf("%s: asked in the contexts of %v, want %v", name, guard.of, want)
		}
	}
}

func TestZeroTokenIsAskedAbout(t *testing.T) {
	server := serve(t, new(fencing.Memory), httpfence.Options{})
	status, body := put(t, server.URL, with(0))
	if status != http.StatusBadRequest || !strings.Contains(body, "was the lock's token passed on?") {
		t.Errorf("the zero token: %d %s", status, body)
	}
}

func TestResourceIsWhatTheServerSaysItIs(t *testing.T) {
	server := serve(t, new(fencing.Memory), httpfence.Options{Resource: func(*http.Request) string { return "everything" }})
	put(t, server.URL+"/a", with(2))
	if status, _ := put(t, server.URL+"/b", with(1)); status != http.StatusPreconditionFailed {
		t.Errorf("a stale token for the same resource under another path: %d", status)
	}
}

type brokenGuard struct{}

func (brokenGuard) Check(context.Context, string, fencing.Token) error {
	return errors.New("secret of the store")
}

func TestGuardThatFailsKeepsRequestsOut(t *testing.T) {
	status, body := put(t, serve(t, brokenGuard{}, httpfence.Options{}).URL, with(1))
	if status != http.StatusServiceUnavailable || strings.Contains(body, "written") || strings.Contains(body, "secret") {
		t.Errorf("%d %q", status, body)
	}
}

func TestMiddlewareNeedsAGuard(t *testing.T) {
	if _, err := httpfence.Middleware(nil, httpfence.Options{}); err == nil {
		t.Error("Middleware accepts no guard")
	}
	if _, ok := httpfence.FromContext(context.Background()); ok {
		t.Error("FromContext finds a token where there is none")
	}
	if _, ok := httpfence.SharedFromContext(context.Background()); ok {
		t.Error("SharedFromContext finds a number where there is none")
	}
}

func Example() {
	middleware, err := httpfence.Middleware(new(fencing.Memory), httpfence.Options{})
	if err != nil {
		panic(err)
	}
	handler := middleware(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, token := range []fencing.Token{34, 33} { // the second is a holder's that was paused
		req := httptest.NewRequest(http.MethodPut, "/file", nil)
		httpfence.Set(req, token)
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, req)
		fmt.Println(token, answer.Code)
	}
	// Output:
	// 34 200
	// 33 412
}
