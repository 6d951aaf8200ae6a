package httpfence_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
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
		{"/a", 5, 200}, {"/a", 5, 200}, {"/a", 4, 412}, {"/b", 4, 200}, {"/a", 18446744073709551615, 200}, {"/a", 6, 412},
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
