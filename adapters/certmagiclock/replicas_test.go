package certmagiclock_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker/internal/process"
	"github.com/lockstile/locker/internal/quoted"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/singlenode"
)

// TestMain is a replica where a test has started it as one.
func TestMain(m *testing.M) {
	if url := os.Getenv("AUTHORITY"); url != "" {
		certmagic.Default.Issuers = []certmagic.Issuer{remote(url)}
		Example()
		return
	}
	os.Exit(m.Run())
}

func TestThePageShowsWhatIsRun(t *testing.T) { quoted.Check(t, "README.md", "example_test.go") }

// authority signs certificates, and counts them.
type authority struct {
	key  *ecdsa.PrivateKey
	root *x509.Certificate

	mu     sync.Mutex
	issued int
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{key: key, root: &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority of a test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(1000 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}}
}

func (a *authority) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.issued
}

// issue signs a certificate whose serial number counts them.
func (a *authority) issue(csr *x509.CertificateRequest) (*certmagic.IssuedCertificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.issued++
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(int64(1000 + a.issued)), DNSNames: csr.DNSNames,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(900 * time.Hour),
	}, a.root, csr.PublicKey, a.key)
	return &certmagic.IssuedCertificate{Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, err
}

// remote is an authority of another process, by its URL.
type remote string

func (r remote) IssuerKey() string { return "remote" }

func (r remote) Issue(ctx context.Context, csr *x509.CertificateRequest) (*certmagic.IssuedCertificate, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, string(r), bytes.NewReader(csr.Raw))
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	certificate, err := io.ReadAll(answer.Body)
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", answer.Status, certificate)
	}
	return &certmagic.IssuedCertificate{Certificate: certificate}, err
}

// The first replica is killed while the authority thinks about its request, and two others wait.
func TestWhenTheReplicaThatObtainsIsKilledAnotherDoesOnce(t *testing.T) {
	t.Parallel()
	ca, asked, gone, think := newAuthority(t), make(chan struct{}, 10), make(chan struct{}, 10), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		der, err := io.ReadAll(r.Body)
		asked <- struct{}{}
		select {
		case <-think:
		case <-r.Context().Done():
			gone <- struct{}{}
			return
		}
		csr, noCSR := x509.ParseCertificateRequest(der)
		if err != nil || noCSR != nil {
			http.Error(w, "no request for a certificate", http.StatusBadRequest)
			return
		}
		certificate, err := ca.issue(csr)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_, _ = w.Write(certificate.Certificate)
	}))
	t.Cleanup(server.Close)
	redisServer := testserver.Redis(t)
	rdb := redis.NewClient(&redis.Options{Addr: redisServer.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	locks, err := singlenode.New(rdb, singlenode.Options{})
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	start := func() *process.Process {
		return process.Again(t, "AUTHORITY="+server.URL, "REDIS_ADDR="+redisServer.Addr(), "CERTIFICATES="+folder)
	}

	first := start()
	first.Wait("it has asked the authority", func() bool { return len(asked) == 1 })
	others := []*process.Process{start(), start()}
	others[0].Wait("two wait for the lock", func() bool {
		info, err := locks.Inspect(t.Context(), name)
		return err == nil && info.Waiters == 2
	})
	first.Signal(syscall.SIGKILL)
	first.Ends(-1)
	// Or the authority might answer the dead, too.
	others[0].Wait("the authority has heard that the first has gone", func() bool { return len(gone) == 1 })
	close(think)
	for _, p := range others {
		p.Ends(0)
		p.Says("serial number 1001")
	}
	if n := ca.count(); n != 1 || len(asked) != 2 {
		t.Errorf("%d certificates were issued, and the authority was asked %d times; want 1, and once more by another replica", n, len(asked))
	}
}
