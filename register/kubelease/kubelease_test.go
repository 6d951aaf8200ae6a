package kubelease_test

import (
	"context"
	"net"
	"net/http"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/register"
	"github.com/lockstile/locker/register/kubelease"
	"github.com/lockstile/locker/register/registertest"
)

// patience bounds every wait.
const patience = 30 * time.Second

// namespace is that of the locks.
const namespace = "locks"

func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// start starts an API server that has the namespace.
func start(t testing.TB) *testserver.KubernetesServer {
	t.Helper()
	if testing.Short() {
		t.Skip("building the API server takes long")
	}
	srv := testserver.Kubernetes(t)
	_, err := connect(t, srv).CoreV1().Namespaces().Create(soon(t), &core.Namespace{ObjectMeta: meta.ObjectMeta{Name: namespace}}, meta.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return srv
}

// config is that of a client with connections of its own, as another process has it.
func config(srv *testserver.KubernetesServer) *rest.Config {
	return &rest.Config{
		Host: srv.URL(), BearerToken: testserver.KubernetesAdmin, TLSClientConfig: rest.TLSClientConfig{CAFile: srv.CA()},
		QPS: -1, Dial: (&net.Dialer{}).DialContext,
	}
}

func connect(t testing.TB, srv *testserver.KubernetesServer, change ...func(*rest.Config)) *kubernetes.Clientset {
	t.Helper()
	cfg := config(srv)
	for _, f := range change {
		f(cfg)
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// through has each request of a client go through a function.
func through(do func(*http.Request, http.RoundTripper) (*http.Response, error)) func(*rest.Config) {
	return func(cfg *rest.Config) {
		cfg.WrapTransport = func(next http.RoundTripper) http.RoundTripper {
			return tripper(func(r *http.Request) (*http.Response, error) { return do(r, next) })
		}
	}
}

type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// process returns a Locker on connections of its own.
func process(t testing.TB, srv *testserver.KubernetesServer, change ...func(*rest.Config)) *register.Locker {
	t.Helper()
	l, err := kubelease.New(connect(t, srv, change...).CoordinationV1(), namespace)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func lock(t testing.TB, l locker.Locker, name string, opts ...locker.Option) *locker.Lock {
	t.Helper()
	got, err := l.Lock(soon(t), name, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func unlock(t testing.TB, l *locker.Lock) {
	t.Helper()
	if err := l.Unlock(soon(t)); err != nil {
		t.Error(err)
	}
}

// until waits for something that happens on a server or in a client.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it did not come about within %v that %s", patience, what)
		}
	}
}

// waits waits until somebody waits for a lock.
func waits(t testing.TB, l locker.Inspector, name string) {
	t.Helper()
	until(t, "somebody waits for "+name, func() bool {
		info, err := l.Inspect(soon(t), name)
		return err == nil && info.Waiters > 0
	})
}

func TestConformance(t *testing.T) {
	srv := start(t)
	registertest.Run(t, registertest.Harness{
		New:     func(t testing.TB) register.Store { return kubelease.Store(connect(t, srv).CoordinationV1(), namespace) },
		Options: kubelease.Like,
	})
}
