package kubelease_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clientcmd "k8s.io/client-go/tools/clientcmd/api"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/register/kubelease"
)

// behind has a client ask a reverse proxy before the API server. It answers by itself if answers reports true.
func behind(t *testing.T, srv *testserver.KubernetesServer, answers func(http.ResponseWriter, *http.Request) bool) func(*rest.Config) {
	t.Helper()
	u, err := url.Parse(srv.URL())
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(u)
	proxy.Transport, proxy.FlushInterval = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, -1 //nolint:gosec // a test's
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !answers(w, r) {
			proxy.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(func() { _ = front.Config.Close() }) // it does not wait for watches
	return func(cfg *rest.Config) { cfg.Host, cfg.TLSClientConfig = front.URL, rest.TLSClientConfig{} }
}

func html(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/html")
	fmt.Fprint(w, text)
}

// The session with a proxy is over, and all requests are redirected to its login page. A redirected write is a read of that page, which has the status 200.
func TestPageOfAProxyIsNoWrite(t *testing.T) {
	srv := start(t)
	var over atomic.Bool
	a := process(t, srv, behind(t, srv, func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case r.URL.Path == "/login":
			html(w, "please log in")
		case over.Load():
			http.Redirect(w, r, "/login", http.StatusFound)
		default:
			return false
		}
		return true
	}))
	held := lock(t, a, "a", locker.WithTTL(2*time.Second))
	over.Store(true)
	next := lock(t, process(t, srv), "a")
	if err := held.Err(); !errors.Is(err, locker.ErrLost) {
		t.Errorf("its successor has token %d, and %v says %v", next.Token(), held, err)
	}
	if err := held.Unlock(soon(t)); err == nil {
		t.Error("it was unlocked")
	}
}

func TestAnswersThatAreNotTheAPIServersAreNone(t *testing.T) {
	srv := start(t)
	var answer atomic.Pointer[func(http.ResponseWriter, *http.Request)]
	s := kubelease.Store(connect(t, srv, behind(t, srv, func(w http.ResponseWriter, r *http.Request) bool {
		f := answer.Load()
		if f != nil {
			(*f)(w, r)
		}
		return f != nil
	})).CoordinationV1(), namespace)
	version := swap(t, s, "a", "", "1")
	json := func(text string) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, text)
		}
	}
	status := func(code int) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "of the proxy", code) }
	}
	for what, f := range map[string]func(http.ResponseWriter, *http.Request){
		"a page":       func(w http.ResponseWriter, _ *http.Request) { html(w, "maintenance") },
		"nothing":      status(http.StatusOK),
		"other JSON":   json(`{"error":"login required"}`),
		"half of it":   json(`{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metad`),
		"202":          status(http.StatusAccepted),
		"404":          status(http.StatusNotFound),
		"409":          status(http.StatusConflict),
		"422":          status(http.StatusUnprocessableEntity),
		"an old Lease": json(`{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":"other","annotations":{"lockstile.github.io/record":"0"}}}`),
	} {
		answer.Store(&f)
		for asked, do := range map[string]func() error{
			"Get":          func() error { _, err := s.Get(soon(t), "a"); return err },
			"Swap":         func() error { _, err := s.Swap(soon(t), "a", version, []byte("2")); return err },
			"Swap of none": func() error { _, err := s.Swap(soon(t), "b", "", []byte("2")); return err },
			"List":         func() error { _, err := s.List(soon(t), ""); return err },
		} {
			if err := do(); err == nil || errors.Is(err, locker.ErrRefused) {
				t.Errorf("%s, answered by %s: %v", asked, what, err)
			}
		}
	}
}

// A write is redirected to the same address, which is a read of the record as it was.
func TestRedirectedWriteIsNoWrite(t *testing.T) {
	srv := start(t)
	s := kubelease.Store(connect(t, srv, behind(t, srv, func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPatch {
			http.Redirect(w, r, r.URL.Path, http.StatusMovedPermanently)
		}
		return r.Method == http.MethodPatch
	})).CoordinationV1(), namespace)
	version := swap(t, s, "a", "", "1")
	if _, err := s.Swap(soon(t), "a", version, []byte("2")); err == nil {
		t.Error("it was said to be written")
	}
}

func TestWriteThatAProxySendsTwiceIsWritten(t *testing.T) {
	srv := start(t)
	s := kubelease.Store(connect(t, srv, through(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		if r.Body == nil {
			return next.RoundTrip(r)
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		first, err := next.RoundTrip(r)
		if err != nil {
			return nil, err
		}
		_ = first.Body.Close()
		r = r.Clone(r.Context())
		r.Body = io.NopCloser(bytes.NewReader(body))
		return next.RoundTrip(r)
	})).CoordinationV1(), namespace)
	version := ""
	for _, record := range []string{"1", "2"} {
		version = swap(t, s, "a", version, record)
	}
}

// While an API server starts, it does not know the rights of anybody yet.
func TestWaiterOutlivesARestartOfTheAPIServerThatKnowsNoRightsAtFirst(t *testing.T) {
	srv := start(t)
	may(t, connect(t, srv), "get", "create", "patch", "watch")
	other := func(cfg *rest.Config) { cfg.BearerToken = testserver.KubernetesOther }
	a, b := process(t, srv, other), process(t, srv, other)
	until(t, "the rights are there", func() bool { _, err := a.Inspect(soon(t), "a"); return err == nil })
	held := lock(t, a, "a", locker.WithTTL(time.Minute))
	next := make(chan *locker.Lock, 1)
	go func() { next <- lock(t, b, "a") }()
	waits(t, a, "a")
	srv.Kill()
	asked, stop := context.WithCancel(soon(t))
	refused := make(chan error, 1)
	go func() {
		defer close(refused)
		for ; asked.Err() == nil; time.Sleep(5 * time.Millisecond) {
			if _, err := a.Inspect(asked, "a"); errors.Is(err, locker.ErrRefused) {
				refused <- err
				return
			}
		}
	}()
	srv.Start()
	unlock(t, held)
	unlock(t, <-next)
	stop()
	if err := <-refused; err != nil {
		t.Error(err)
	}
}

// plugin has a client run a script for its credentials.
func plugin(t *testing.T, script string) func(*rest.Config) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "plugin")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	return func(cfg *rest.Config) {
		cfg.BearerToken = ""
		cfg.ExecProvider = &clientcmd.ExecConfig{Command: path, APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: clientcmd.NeverExecInteractiveMode}
	}
}

func TestCallEndsWithItsContextWhileThePluginRuns(t *testing.T) {
	srv := start(t)
	goOn := filepath.Join(t.TempDir(), "go on")
	s := kubelease.Store(connect(t, srv, plugin(t, "while [ ! -e '"+goOn+"' ]; do sleep 0.1; done\n")).CoordinationV1(), namespace)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	ended := make(chan error, 1)
	go func() { _, err := s.Get(ctx, "a"); ended <- err }()
	select {
	case err := <-ended:
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("it goes on")
	}
	if err := os.WriteFile(goOn, nil, 0o600); err != nil {
		t.Error(err)
	}
}

// A client fetches a new token when its last one was declined.
func TestTokenThatHasEndedIsNoRefusal(t *testing.T) {
	srv := start(t)
	file := filepath.Join(t.TempDir(), "token")
	put := func(token string) {
		if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("old")
	var ended atomic.Bool
	l := process(t, srv, plugin(t, `echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"'$(cat `+file+`)'"}}'`),
		behind(t, srv, func(_ http.ResponseWriter, r *http.Request) bool {
			if token := "Bearer " + testserver.KubernetesAdmin; !ended.Load() || r.Header.Get("Authorization") == "Bearer new" {
				r.Header.Set("Authorization", token)
			}
			return false
		}))
	unlock(t, lock(t, l, "a"))
	put("new")
	ended.Store(true)
	unlock(t, lock(t, l, "a"))
}

func TestWhatCannotBeLocksIsRefused(t *testing.T) {
	t.Parallel()
	if l, err := kubelease.New(fake.NewClientset().CoordinationV1(), namespace); err == nil {
		t.Errorf("a fake client gave %v", l)
	}
	if l, err := kubelease.New(nil, namespace); err == nil {
		t.Errorf("no client gave %v", l)
	}
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	for _, ns := range []string{"", "a/b", "..", "A"} {
		if l, err := kubelease.New(client.CoordinationV1(), ns); err == nil {
			t.Errorf("the namespace %q gave %v", ns, l)
		}
	}
}

// A Lease was copied under another name.
func TestCopyOfALeaseIsNotListed(t *testing.T) {
	srv := start(t)
	admin, l := connect(t, srv), process(t, srv)
	held := lock(t, l, "a", locker.WithTTL(time.Hour))
	leases := admin.CoordinationV1().Leases(namespace)
	c := get(t, admin, "a")
	c.ObjectMeta = meta.ObjectMeta{Name: "a-backup", Labels: c.Labels, Annotations: c.Annotations}
	if _, err := leases.Create(soon(t), c, meta.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	unlock(t, held)
	if infos, err := l.List(soon(t), ""); err != nil || len(infos) != 0 {
		t.Errorf("the lock is free, and List says %+v, %v", infos, err)
	}
}
