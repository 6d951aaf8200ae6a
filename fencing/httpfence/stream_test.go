package httpfence_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"
	"time"

	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/fencing/httpfence"
)

// servers are the ways in which a body whose length nobody knows reaches a handler.
var servers = map[string]func(t *testing.T, guard fencing.Guard, handler http.Handler) *httptest.Server{
	"HTTP/1.1 in chunks": func(t *testing.T, guard fencing.Guard, handler http.Handler) *httptest.Server {
		return start(t, guarded(t, guard, handler), false)
	},
	"HTTP/2": func(t *testing.T, guard fencing.Guard, handler http.Handler) *httptest.Server {
		return start(t, guarded(t, guard, handler), true)
	},
	"a reverse proxy": func(t *testing.T, guard fencing.Guard, handler http.Handler) *httptest.Server {
		upstream, err := url.Parse(start(t, handler, false).URL)
		if err != nil {
			t.Fatal(err)
		}
		return start(t, guarded(t, guard, httputil.NewSingleHostReverseProxy(upstream)), false)
	},
}

func guarded(t *testing.T, guard fencing.Guard, handler http.Handler) http.Handler {
	t.Helper()
	middleware, err := httpfence.Middleware(guard, httpfence.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return middleware(handler)
}

func start(t *testing.T, handler http.Handler, http2 bool) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	if http2 {
		server.EnableHTTP2 = true
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	return server
}

// outcome is what became of a handler's write.
type outcome struct {
	stored string
	err    error
}

// Goal: a handler that has what it wants before the body ends is given nothing that
// came late. Method: one that decodes a value, and a client that sends it in two
// halves and ends the body only when the handler has decided.
//
// Interleaving: 5 sends its header and half of its value, and is paused. Its lock is
// lost, and 6 claims the resource. 5 goes on: the handler has the whole value and
// writes over what 6 may have written.
func TestHandlerThatDoesNotReadToTheEndIsGivenNothingLate(t *testing.T) {
	for name, serve := range servers {
		t.Run(name, func(t *testing.T) {
			guard := new(fencing.Memory)
			begun, done := make(chan struct{}, 1), make(chan outcome, 1) // one request
			server := serve(t, guard, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				begun <- struct{}{}
				var value struct{ Text string }
				err := json.NewDecoder(r.Body).Decode(&value)
				if err != nil {
					w.WriteHeader(http.StatusPreconditionFailed)
				}
				done <- outcome{value.Text, err}
			}))
			w := pausable(t, server, 5)
			w.send(`{"text": "old`)
			await(t, begun)
			if err := guard.Check(t.Context(), "/", 6); err != nil {
				t.Fatal(err)
			}
			w.send(` value"}`)
			if got := await(t, done); got.err == nil {
				t.Errorf("%q was stored", got.stored)
			}
			w.end() // a server reads some more before it answers
			if status := await(t, w.answer); status < http.StatusBadRequest {
				t.Errorf("the answer is %d", status)
			}
		})
	}
}

// Goal: a handler that waits for the end of the body does not get one that comes late.
//
// Interleaving: the handler has read all that 5 has to say; 5 is paused before it
// ends the body, and 6 claims the resource.
func TestEndThatComesLateIsAnError(t *testing.T) {
	for name, serve := range servers {
		if name == "a reverse proxy" {
			continue // what its upstream has been given whole, it was given in time
		}
		t.Run(name, func(t *testing.T) {
			guard := new(fencing.Memory)
			begun, done := make(chan struct{}, 1), make(chan outcome, 1) // one request
			server := serve(t, guard, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				head := make([]byte, len("whole"))
				_, err := io.ReadFull(r.Body, head)
				begun <- struct{}{}
				if err == nil {
					_, err = io.Copy(io.Discard, r.Body)
				}
				if _, again := r.Body.Read(make([]byte, 1)); !errors.Is(again, err) {
					t.Errorf("after %v: %v", err, again)
				}
				done <- outcome{string(head), err}
			}))
			w := pausable(t, server, 5)
			w.send("whole")
			await(t, begun)
			if err := guard.Check(t.Context(), "/", 6); err != nil {
				t.Fatal(err)
			}
			w.end()
			if got := await(t, done); got.stored != "whole" || !errors.Is(got.err, fencing.ErrStale) {
				t.Errorf("the handler read %q and then %v", got.stored, got.err)
			}
			await(t, w.answer)
		})
	}
}

// paused is a request under way.
type paused struct {
	send   func(text string)
	end    func()
	answer <-chan int
}

// pausable starts a request whose body is sent piece by piece.
func pausable(t *testing.T, server *httptest.Server, token fencing.Token) paused {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	out, in := io.Pipe()
	t.Cleanup(func() { _ = in.Close() })
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, server.URL, out)
	if err != nil {
		t.Fatal(err)
	}
	httpfence.Set(req, token)
	answer := make(chan int, 1)
	go func() {
		resp, err := server.Client().Do(req)
		if err != nil {
			t.Errorf("the request: %v", err)
			answer <- 0
			return
		}
		_ = resp.Body.Close()
		answer <- resp.StatusCode
	}()
	return paused{
		send: func(text string) {
			if _, err := io.WriteString(in, text); err != nil && !errors.Is(err, io.ErrClosedPipe) { // it may have its answer already
				t.Errorf("sending %q: %v", text, err)
			}
		},
		end:    func() { _ = in.Close() },
		answer: answer,
	}
}

func await[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(time.Minute):
		t.Fatal("it does not happen")
	}
	panic("not reached")
}
