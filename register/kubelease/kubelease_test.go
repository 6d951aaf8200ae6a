package kubelease_test

import (
	"net"
	"net/http"
	"testing"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/lockstile/locker/internal/locktest"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/register"
	"github.com/lockstile/locker/register/kubelease"
	"github.com/lockstile/locker/register/registertest"
)

// What all these tests do.
var soon, lock, unlock, until, waits = locktest.Soon, locktest.Lock, locktest.Unlock, locktest.Until, locktest.Waits

const patience = locktest.Patience

// namespace is that of the locks.
const namespace = "locks"

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

// swap writes a record, and returns its version.
func swap(t testing.TB, s register.Store, name, version, record string) string {
	t.Helper()
	next, err := s.Swap(soon(t), name, version, []byte(record))
	if err != nil {
		t.Fatal(err)
	}
	return next
}

func TestConformance(t *testing.T) {
	srv := start(t)
	registertest.Run(t, registertest.Harness{
		New:     func(t testing.TB) register.Store { return kubelease.Store(connect(t, srv).CoordinationV1(), namespace) },
		Options: kubelease.Like,
	})
}
