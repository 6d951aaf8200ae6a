package testserver

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// KubernetesServer is an API server of Kubernetes of a test's own, with an etcd. There are no nodes and no controllers: objects stay
// as they are written.
type KubernetesServer struct {
	single
	// Etcd has what the API server has written.
	Etcd *EtcdCluster

	dir  string
	port int
}

// Users of a [KubernetesServer], which are their tokens too. The second one has the rights that it is given.
const (
	KubernetesAdmin = "admin"
	KubernetesOther = "other"
)

// Kubernetes starts an API server, of the version that internal/testserver/kubeserver requires. Its first build takes some ten minutes on
// two processors. LOCKER_KUBE_SERVER names another binary.
func Kubernetes(t TB) *KubernetesServer {
	t.Helper()
	s := &KubernetesServer{single: single{t: t, binary: os.Getenv("LOCKER_KUBE_SERVER")}}
	if s.binary == "" {
		var err error
		if s.binary, err = built("kubeserver"); err != nil {
			missing(t, "kube-apiserver", fmt.Sprintf("it is built with go build in internal/testserver/kubeserver: %v", err))
		}
	}
	s.dir = t.TempDir() // before Cleanup, so that it is removed after the server has ended
	s.Etcd = Etcd(t, 1)
	t.Cleanup(s.end)
	err := s.prepare()
	if err == nil {
		if s.port, err = reserve(t); err == nil {
			err = s.start()
		}
	}
	if err != nil {
		t.Fatalf("starting %s: %v", s.binary, err)
	}
	return s
}

// prepare writes the key for the tokens of services, and who is who.
func (s *KubernetesServer) prepare() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	users := fmt.Sprintf("%[1]s,%[1]s,%[1]s,system:masters\n%[2]s,%[2]s,%[2]s\n", KubernetesAdmin, KubernetesOther)
	return errors.Join(
		os.WriteFile(s.file("services.key"), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600),
		os.WriteFile(s.file("users.csv"), []byte(users), 0o600))
}

func (s *KubernetesServer) file(name string) string { return filepath.Join(s.dir, name) }

func (s *KubernetesServer) start() error {
	var err error
	s.process, err = start(exec.Command(s.binary,
		"--etcd-servers", url(s.Etcd.Members[0].port), "--bind-address", "127.0.0.1", "--secure-port", strconv.Itoa(s.port), "--cert-dir", s.dir,
		"--service-account-issuer", "https://kubernetes.default.svc", "--service-cluster-ip-range", "10.0.0.0/24",
		"--service-account-key-file", s.file("services.key"), "--service-account-signing-key-file", s.file("services.key"),
		"--token-auth-file", s.file("users.csv"), "--authorization-mode", "RBAC"))
	if err != nil {
		return err
	}
	return s.process.await(s.isReady)
}

// isReady asks with the server's own certificate, so that another one on its port is not taken for it.
func (s *KubernetesServer) isReady() error {
	certificate, err := os.ReadFile(s.CA())
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(certificate)
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
	}}
	ask, err := http.NewRequest(http.MethodGet, s.URL()+"/readyz", nil)
	if err != nil {
		return err
	}
	ask.Header.Set("Authorization", "Bearer "+KubernetesAdmin)
	answer, err := client.Do(ask)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if text, err := io.ReadAll(answer.Body); err != nil || answer.StatusCode != http.StatusOK {
		return fmt.Errorf("the server is not ready: %s: %s", answer.Status, text)
	}
	return nil
}

// Addr returns host:port.
func (s *KubernetesServer) Addr() string { return local(s.port) }

// URL is what a client connects to.
func (s *KubernetesServer) URL() string { return "https://" + s.Addr() }

// CA returns the file of the certificate that a client has to trust.
func (s *KubernetesServer) CA() string { return s.file("apiserver.crt") }

// Start starts a killed server again, on the same port, and waits until it serves.
func (s *KubernetesServer) Start() {
	s.t.Helper()
	if err := s.start(); err != nil {
		s.t.Fatalf("starting %s again: %v", s.binary, err)
	}
}
