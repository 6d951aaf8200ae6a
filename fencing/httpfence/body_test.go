package httpfence_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"testing"
	"time"

	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/fencing/httpfence"
)

// Goal: a writer that is paused in the middle of its request is refused as one that
// is paused before it. Method: a handler that writes when it has read the body, and
// a client that sends it in two halves.
//
// Interleaving: 5 sends its header, which the guard accepts, and half of its body,
// and is paused. Its lock is lost, 6 gets it and writes. 5 goes on: the handler has
// the whole body and writes over what 6 has written.
func TestWriterThatIsPausedInItsBodyIsRefused(t *testing.T) {
	for name, length := range map[string]int64{"of known length": 8, "in chunks": -1} {
		t.Run(name, func(t *testing.T) {
			written := make(chan string, 2) // at most the two requests of this test
			refused := make(chan error, 2)
			middleware, err := httpfence.Middleware(new(fencing.Memory), httpfence.Options{})
			if err != nil {
				t.Fatal(err)
			}
			server := httptest.NewServer(middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.ContentLength != 0 {
					w.WriteHeader(http.StatusEarlyHints) // tells the client that the check is over
				}
				r.URL.Path = "/rewritten" // as a router may do: the resource stays
				body, err := io.ReadAll(r.Body)
				if err != nil {
					refused <- err
					w.WriteHeader(http.StatusPreconditionFailed)
					return
				}
				written <- string(body)
			})))
			t.Cleanup(server.Close)
			finish, answer := begin(t, server.URL, length)
			if status, _ := put(t, server.URL, with(6)); status != http.StatusOK {
				t.Fatalf("the second writer: %d", status)
			}
			<-written
			finish()
			if status := <-answer; status != http.StatusPreconditionFailed {
				t.Errorf("the first writer: %d", status)
			}
			select {
			case err := <-refused:
				if !errors.Is(err, fencing.ErrStale) {
					t.Errorf("the body ended with: %v", err)
				}
			case body := <-written:
				t.Errorf("%q was written", body)
			}
		})
	}
}

// begin sends a request with token 5 up to the middle of its body, and returns when
// its handler runs.
func begin(t *testing.T, url string, length int64) (finish func(), answer <-chan int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	started := make(chan struct{})
	body, half := io.Pipe()
	req, err := http.NewRequestWithContext(early(ctx, started), http.MethodPut, url, body)
	if err != nil {
		t.Fatal(err)
	}
	req.ContentLength = length
	httpfence.Set(req, 5)
	status := make(chan int, 1)
	go func() {
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Errorf("the first writer: %v", err)
			status <- 0
			return
		}
		_ = resp.Body.Close()
		status <- resp.StatusCode
	}()
	send := func(text string) {
		if _, err := io.Copy(half, strings.NewReader(text)); err != nil {
			t.Errorf("sending %q: %v", text, err)
		}
	}
	send("1234")
	select {
	case <-started:
	case <-ctx.Done():
		t.Fatal("the handler did not run")
	}
	return func() { send("5678"); _ = half.Close() }, status
}

// early closes started when the server has answered with early hints.
func early(ctx context.Context, started chan struct{}) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		Got1xxResponse: func(int, textproto.MIMEHeader) error {
			close(started)
			return nil
		},
	})
}

// Goal: the look at the end of the body stands in the way of nobody else.
func TestBodyOfAWriterThatStillHoldsIsReadWhole(t *testing.T) {
	guard := new(fencing.Memory)
	middleware, err := httpfence.Middleware(guard, httpfence.Options{})
	if err != nil {
		t.Fatal(err)
	}
	handler := middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(w, r.Body)
		if err != nil {
			t.Error(err)
		}
		_ = guard.Check(t.Context(), "/a", 6) // it comes when all has been handed out
		if n, err := r.Body.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
			t.Errorf("after its end: %d, %v", n, err)
		}
	}))
	req := httptest.NewRequest(http.MethodPut, "/a", strings.NewReader("text"))
	httpfence.Set(req, 5)
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, req)
	if answer.Code != http.StatusOK || answer.Body.String() != "text" {
		t.Errorf("%d %q", answer.Code, answer.Body)
	}
}

// cutOff is a body that breaks off, with its last bytes or later, and says so once.
type cutOff struct {
	text  string
	later bool
	err   error
}

func (c *cutOff) Read(p []byte) (n int, err error) {
	n, c.text = copy(p, c.text), ""
	if n > 0 && c.later {
		return n, nil
	}
	err, c.err = c.err, io.EOF
	return n, err
}

func TestBodyThatBreaksOffIsNotTakenForWhole(t *testing.T) {
	for _, later := range []bool{false, true} {
		handler := guarded(t, new(fencing.Memory), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if text, err := io.ReadAll(r.Body); string(text) != "te" || !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("the body: %q, %v", text, err)
			}
		}))
		req := httptest.NewRequest(http.MethodPut, "/a", &cutOff{"te", later, io.ErrUnexpectedEOF})
		httpfence.Set(req, 5)
		handler.ServeHTTP(httptest.NewRecorder(), req)
	}
}
