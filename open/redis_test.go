package open_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/open"
)

func patience(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func mustOpen(t *testing.T, url string) open.Backend {
	t.Helper()
	ctx := patience(t)
	b, err := open.URL(ctx, url)
	for ctx.Err() == nil && err != nil && strings.Contains(err.Error(), "no answer within") { // a busy machine
		b, err = open.URL(ctx, url)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return b
}

// works locks, inspects, breaks and finds the lock lost.
func works(t *testing.T, b open.Backend) {
	t.Helper()
	ctx := patience(t)
	lock, err := b.Lock(ctx, "a/b")
	if err != nil {
		t.Fatal(err)
	}
	if info, err := b.Inspect(ctx, "a/b"); err != nil || !info.Held || info.Token != lock.Token() {
		t.Errorf("Inspect: %+v, %v", info, err)
	}
	if broken, err := b.Break(ctx, "a/b"); err != nil || !broken {
		t.Errorf("Break: %v, %v", broken, err)
	}
	if err := lock.Unlock(ctx); !errors.Is(err, locker.ErrLost) {
		t.Errorf("Unlock of a broken lock: %v", err)
	}
}

// refused expects a store that declines to serve until somebody changes a setting.
func refused(t *testing.T, url string, wants ...string) {
	t.Helper()
	if err := unavailable(t, url, wants); !errors.Is(err, locker.ErrRefused) {
		t.Errorf("this counts as silence, which may pass: %v", err)
	}
}

// silent expects a store that cannot be reached, and may be soon.
func silent(t *testing.T, url string, wants ...string) {
	t.Helper()
	if err := unavailable(t, url, wants); errors.Is(err, locker.ErrRefused) {
		t.Errorf("this counts as a refusal, which asking again does not change: %v", err)
	}
}

// unavailable expects an unavailable store, and no password in the error.
func unavailable(t *testing.T, url string, wants []string) error {
	t.Helper()
	_, err := open.URL(patience(t), url)
	if !errors.Is(err, locker.ErrUnavailable) {
		t.Fatalf("%v is not ErrUnavailable", err)
	}
	for _, want := range wants {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in: %v", want, err)
		}
	}
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("the password is in: %v", err)
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("more than one line: %v", err)
	}
	return err
}

func TestRedisByURL(t *testing.T) {
	s := testserver.Redis(t)
	works(t, mustOpen(t, "redis://"+s.Addr()))
	works(t, mustOpen(t, "redis://"+s.Addr()+"/3?pool_size=2&prefix=p:"))
	_ = mustHold(t, mustOpen(t, "redis://"+s.Addr()+"/3?prefix=p:"), "x")
	s.Do("SELECT", "3")
	if got := s.Do("INFO", "keyspace"); !strings.Contains(got, "db3:") {
		t.Errorf("nothing in database 3: %s", got)
	}
	other := mustOpen(t, "redis://"+s.Addr()+"/3")
	if _, err := other.TryLock(patience(t), "p:x"); !errors.Is(err, locker.ErrTaken) {
		t.Errorf("TryLock of prefix and name: %v", err)
	}
}

func mustHold(t *testing.T, b open.Backend, name string) *locker.Lock {
	t.Helper()
	lock, err := b.TryLock(patience(t), name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lock.Unlock(context.Background()) })
	return lock
}

func TestReplicasParameterReachesTheBackend(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	with := mustOpen(t, "redis://"+s.Addr()+"?replicas=1")
	if with.Guarantees().Exclusion.Has(locker.DurableReplica) {
		t.Error("replicas=1 was not heard")
	}
	if !with.Guarantees().Exclusion.Has(locker.AgreedClocks) {
		t.Error("a replica that has confirmed a lease does not depend on its clock")
	}
	if _, err := with.TryLock(patience(t), "a"); !errors.Is(err, locker.ErrUnavailable) {
		t.Errorf("a lock that no replica confirms: %v", err)
	}
}

func TestPasswordWithOddCharacters(t *testing.T) {
	const pass = `p@s:s/w?r#d%41,+&= "secret`
	s := testserver.Redis(t, "--requirepass", "outer")
	redisDo(t, s, "outer", "ACL", "SETUSER", "me", "on", ">"+pass, "~*", "&*", "+@all")
	user := url.UserPassword("me", pass)
	works(t, mustOpen(t, "redis://"+user.String()+"@"+s.Addr()))
	works(t, mustOpen(t, "redis://me:"+escapeLess(pass)+"@"+s.Addr()))
	for _, wrong := range []string{"me:secret", "nobody:secret", ":secret"} {
		refused(t, "redis://"+wrong+"@"+s.Addr(), s.Addr(), "WRONGPASS")
	}
	refused(t, "redis://"+s.Addr(), s.Addr(), "NOAUTH")
}

// escapeLess writes a password as the documentation of URL asks for.
func escapeLess(pass string) string {
	return strings.NewReplacer("/", "%2F", ",", "%2C", "?", "%3F", "#", "%23", "%", "%25").Replace(pass)
}

// redisDo sends one command as the default user with a password.
func redisDo(t *testing.T, s *testserver.RedisServer, pass string, args ...string) {
	t.Helper()
	_, port, _ := strings.Cut(s.Addr(), ":")
	out, err := exec.Command("redis-cli", append([]string{"--no-auth-warning", "-p", port, "-a", pass}, args...)...).CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "OK" {
		t.Fatalf("redis-cli %v: %s %v", args, out, err)
	}
}

// A server quotes the arguments of a command that it does not know.
func TestPasswordIsNotShownWhereTheServerKnowsNoAUTH(t *testing.T) {
	s := testserver.Redis(t, "--rename-command", "AUTH", "", "--rename-command", "HELLO", "")
	refused(t, "redis://:secret@"+s.Addr(), s.Addr(), "unknown command 'auth'")
}

func TestServerThatIsNotThere(t *testing.T) {
	s := testserver.Redis(t)
	s.Kill()
	silent(t, "redis://u:secret@"+s.Addr(), s.Addr(), "connection refused")
	silent(t, "redis-cluster://u:secret@"+s.Addr(), s.Addr(), "connection refused")
	silent(t, "redis-sentinel://u:secret@"+s.Addr()+"/m?sentinel_password=secret", s.Addr(), "connection refused")
	silent(t, "redis://u:secret@host.invalid", "host.invalid:6379")
}

func TestDatabaseThatIsNotThere(t *testing.T) {
	s := testserver.Redis(t)
	refused(t, "redis://"+s.Addr()+"/99", s.Addr(), "out of range")
}

func TestServerThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	s.Pause()
	defer s.Resume()
	ctx, cancel := context.WithCancelCause(context.Background())
	time.AfterFunc(50*time.Millisecond, func() { cancel(errors.New("enough")) })
	if _, err := open.URL(ctx, "redis://"+s.Addr()); !errors.Is(err, locker.ErrUnavailable) || !strings.Contains(err.Error(), "enough") {
		t.Errorf("a cancelled attempt: %v", err)
	}
	silent(t, "redis://:secret@"+s.Addr(), s.Addr())
}

func TestClusterByURL(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t, "--cluster-enabled", "yes")
	s.Do("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
	waitFor(t, "the cluster", func() bool { return strings.Contains(s.Do("CLUSTER", "INFO"), "cluster_state:ok") })
	works(t, mustOpen(t, "redis-cluster://"+s.Addr()+",127.0.0.1:1"))
	plain := testserver.Redis(t)
	refused(t, "redis-cluster://"+plain.Addr(), plain.Addr(), "cluster support disabled")
}

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("gave up waiting for %s", what)
		}
	}
}

func TestSentinelByURL(t *testing.T) {
	master := testserver.Redis(t, "--requirepass", "dbsecret")
	host, port, _ := strings.Cut(master.Addr(), ":")
	sentinel := startSentinel(t, fmt.Sprintf("sentinel monitor main %s %s 1\nsentinel auth-pass main dbsecret\nrequirepass sentinelsecret\n"+
		"user app on >appsecret ~* &* +@all\n", host, port))
	good := "redis-sentinel://:dbsecret@" + sentinel
	works(t, mustOpen(t, good+"/main?sentinel_password=sentinelsecret"))
	works(t, mustOpen(t, good+"/main?sentinel_username=app&sentinel_password=appsecret"))
	works(t, mustOpen(t, good+",127.0.0.1:1/main/2?sentinel_password=sentinelsecret"))
	refused(t, good+"/other?sentinel_password=sentinelsecret", sentinel, "other")
	refused(t, good+"/main?sentinel_password=wrongsecret", sentinel)
	refused(t, "redis-sentinel://:wrongsecret@"+sentinel+"/main?sentinel_password=sentinelsecret", sentinel, "WRONGPASS")
}

// startSentinel starts a Sentinel, which insists on a file that it can write to.
func startSentinel(t *testing.T, config string) (addr string) {
	t.Helper()
	addr = freeAddr(t)
	_, port, _ := strings.Cut(addr, ":")
	file := filepath.Join(t.TempDir(), "sentinel.conf")
	if err := os.WriteFile(file, []byte("bind 127.0.0.1\nport "+port+"\n"+config), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("redis-server", file, "--sentinel")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	waitFor(t, "sentinel", func() bool { return dials(addr) })
	return addr
}

func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func dials(addr string) bool {
	c, err := net.Dial("tcp", addr)
	if err == nil {
		_ = c.Close()
	}
	return err == nil
}

func TestRedisOverTLSByURL(t *testing.T) {
	t.Parallel()
	cert, key := selfSigned(t)
	addr := freeAddr(t)
	_, port, _ := strings.Cut(addr, ":")
	plain := testserver.Redis(t, "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key,
		"--tls-ca-cert-file", cert, "--tls-auth-clients", "no", "--requirepass", "dbsecret")
	works(t, mustOpen(t, "rediss://:dbsecret@"+addr+"?skip_verify=true&dial_timeout=1m"))
	refused(t, "rediss://:dbsecret@"+addr+"?dial_timeout=1m", addr, "certificate") // to read the system's takes a busy machine long
	silent(t, "rediss://:dbsecret@"+plain.Addr(), plain.Addr(), "TLS handshake", "port for TLS")
	silent(t, "redis://:dbsecret@"+addr, addr)
}

func selfSigned(t *testing.T) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyBytes, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return writePEM(t, "CERTIFICATE", cert), writePEM(t, "PRIVATE KEY", keyBytes)
}

func writePEM(t *testing.T, kind string, bytes []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), strings.ToLower(strings.ReplaceAll(kind, " ", "-")))
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
