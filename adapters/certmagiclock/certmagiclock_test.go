package certmagiclock_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/adapters/certmagiclock"
	"github.com/lockstile/locker/lockertest"
)

const (
	domain = "example.com"
	name   = "issue_cert_example.com"
)

func newStore(t *testing.T) *lockertest.Locker {
	t.Helper()
	store := lockertest.New()
	t.Cleanup(func() { _ = store.Close() })
	return store
}

func another(t *testing.T, store *lockertest.Locker) *lockertest.Locker {
	t.Helper()
	l := store.Another()
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func wrap(t *testing.T, s certmagic.Storage, l locker.Locker, opts ...locker.Option) *certmagiclock.Storage {
	t.Helper()
	storage, err := certmagiclock.Wrap(s, l, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return storage
}

// issuing is an issuer that a real authority stands behind, and a test in front.
type issuing struct {
	*authority
	before func(ctx context.Context, attempt int) error
	tried  int
}

func (i *issuing) Issue(ctx context.Context, csr *x509.CertificateRequest) (*certmagic.IssuedCertificate, error) {
	i.tried++
	if i.before != nil {
		if err := i.before(ctx, i.tried); err != nil {
			return nil, err
		}
	}
	return i.issue(csr)
}

func (i *issuing) IssuerKey() string { return "test" }

func newConfig(t *testing.T, s certmagic.Storage, issuer certmagic.Issuer) *certmagic.Config {
	t.Helper()
	var config *certmagic.Config
	cache := certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return config, nil },
		Logger:           zap.NewNop(),
	})
	t.Cleanup(cache.Stop)
	config = certmagic.New(cache, certmagic.Config{Storage: s, Issuers: []certmagic.Issuer{issuer}, Logger: zap.NewNop()})
	return config
}

func mustDo(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

func wantFree(t *testing.T, store *lockertest.Locker, name string) {
	t.Helper()
	lock, err := another(t, store).TryLock(t.Context(), name)
	if err != nil {
		t.Errorf("the lock is not free: %v", err)
		return
	}
	mustDo(t, "Unlock", lock.Unlock(t.Context()))
}

// certmagic waits for a minute between its attempts. The lock is lost before that.
func TestALockThatIsLostIsTakenAgainForTheNextAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		issuer := &issuing{authority: newAuthority(t), before: func(_ context.Context, attempt int) error {
			if attempt > 1 {
				return nil
			}
			if !store.Lose(name) {
				t.Error("certmagic does not have the lock")
			}
			return errors.New("try later")
		}}
		storage := wrap(t, &certmagic.FileStorage{Path: t.TempDir()}, store)
		began := time.Now()
		mustDo(t, "obtain", newConfig(t, storage, issuer).ObtainCertAsync(t.Context(), domain))
		if took := time.Since(began); issuer.tried != 2 || took > time.Hour {
			t.Errorf("%d attempts in %v, want 2 in a minute", issuer.tried, took)
		}
		wantFree(t, store, name)
	})
}

// As before, but another process has got the lock, and obtains the certificate.
func TestNoAttemptIsMadeWhileAnotherProcessHasTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, ca, folder := newStore(t), newAuthority(t), t.TempDir()
		lost := make(chan struct{})
		issuer := &issuing{authority: ca, before: func(context.Context, int) error {
			store.Lose(name)
			close(lost)
			return errors.New("try later")
		}}
		config := newConfig(t, wrap(t, &certmagic.FileStorage{Path: folder}, store), issuer)
		slow := &issuing{authority: ca, before: func(context.Context, int) error {
			time.Sleep(10 * time.Minute)
			return nil
		}}
		other := newConfig(t, wrap(t, &certmagic.FileStorage{Path: folder}, another(t, store)), slow)

		result := make(chan error, 1)
		go func() {
			<-lost
			result <- other.ObtainCertSync(t.Context(), domain)
		}()
		mustDo(t, "obtain", config.ObtainCertAsync(t.Context(), domain))
		mustDo(t, "the other's obtain", <-result)
		if issuer.tried != 1 || slow.tried != 1 || ca.count() != 1 {
			t.Errorf("%d and %d attempts, %d certificates, want 1 each", issuer.tried, slow.tried, ca.count())
		}
		wantFree(t, store, name)
	})
}

// A certificate takes hours, with pauses of up to 30 minutes between the attempts.
func TestTheLockIsHeldBetweenAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		issuer := &issuing{authority: newAuthority(t), before: func(_ context.Context, attempt int) error {
			if attempt < 15 {
				return errors.New("try later")
			}
			return nil
		}}
		config := newConfig(t, wrap(t, &certmagic.FileStorage{Path: t.TempDir()}, store), issuer)
		result := make(chan error, 1)
		go func() { result <- config.ObtainCertAsync(t.Context(), domain) }()
		other := wrap(t, &certmagic.FileStorage{}, another(t, store))
		for range 100 {
			time.Sleep(time.Minute)
			if got, err := other.TryLock(t.Context(), name); got || err != nil {
				t.Fatalf("TryLock of another process: %v, %v, want that it is taken", got, err)
			}
		}
		mustDo(t, "obtain", <-result)
		wantFree(t, store, name)
	})
}

func TestTheRenewalOfACertificateLocksToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		issuer := &issuing{authority: newAuthority(t)}
		issuer.before = func(context.Context, int) error {
			if got, err := wrap(t, &certmagic.FileStorage{}, another(t, store)).TryLock(t.Context(), name); got || err != nil {
				t.Errorf("TryLock of another process: %v, %v, want that it is taken", got, err)
			}
			return nil
		}
		config := newConfig(t, wrap(t, &certmagic.FileStorage{Path: t.TempDir()}, store), issuer)
		mustDo(t, "obtain", config.ObtainCertSync(t.Context(), domain))
		mustDo(t, "renew", config.RenewCertSync(t.Context(), domain, true))
		if issuer.tried != 2 {
			t.Errorf("%d certificates, want 2", issuer.tried)
		}
		wantFree(t, store, name)
	})
}

// A program calls CleanUpOwnLocks when it is told to end.
func TestCleanUpOwnLocksGivesLocksBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		issuer := &issuing{authority: newAuthority(t), before: func(ctx context.Context, _ int) error {
			certmagic.CleanUpOwnLocks(ctx, zap.NewNop())
			wantFree(t, store, name)
			return nil
		}}
		config := newConfig(t, wrap(t, &certmagic.FileStorage{Path: t.TempDir()}, store), issuer)
		mustDo(t, "obtain", config.ObtainCertSync(t.Context(), domain))
	})
}

func TestTryLockSaysThatALockIsTakenWithoutAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		storage := wrap(t, &certmagic.FileStorage{}, store, locker.WithWait(time.Second))
		store.Take(name)
		if got, err := storage.TryLock(t.Context(), name); got || err != nil {
			t.Errorf("TryLock of a lock that is taken: %v, %v", got, err)
		}
		store.Free(name)
		for want := range 2 { // the second time this process has it
			if got, err := storage.TryLock(t.Context(), name); got != (want == 0) || err != nil {
				t.Errorf("TryLock: %v, %v", got, err)
			}
		}
		mustDo(t, "Unlock", storage.Unlock(t.Context(), name))
		store.Link().Refuse(errors.New("no permission"))
		if got, err := storage.TryLock(t.Context(), name); got || !errors.Is(err, locker.ErrUnavailable) {
			t.Errorf("TryLock of a store that refuses: %v, %v", got, err)
		}
	})
}

type failing struct {
	locker.Locker
	err error
}

func (f failing) TryLock(context.Context, string, ...locker.Option) (*locker.Lock, error) {
	return nil, f.err
}

func TestTryLockThatMayHaveLeftALockIsAnError(t *testing.T) {
	err := fmt.Errorf("%w, %w", locker.ErrTaken, locker.ErrOutcomeUnknown)
	if got, err := wrap(t, &certmagic.FileStorage{}, failing{newStore(t), err}).TryLock(t.Context(), name); got || !errors.Is(err, locker.ErrOutcomeUnknown) {
		t.Errorf("TryLock: %v, %v", got, err)
	}
}

func TestRenewLockLeaseAsksTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		storage := wrap(t, &certmagic.FileStorage{}, store)
		if err := storage.RenewLockLease(t.Context(), name, time.Minute); err == nil {
			t.Error("RenewLockLease without Lock has no error")
		}
		mustDo(t, "Lock", storage.Lock(t.Context(), name))
		mustDo(t, "RenewLockLease", storage.RenewLockLease(t.Context(), name, time.Minute))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		store.Link().Cut()
		if err := storage.RenewLockLease(ctx, name, time.Minute); err == nil {
			t.Error("RenewLockLease of a store that is away has no error")
		}
		store.Link().Heal()
		store.Lose(name)
		store.Take(name)
		if err := storage.RenewLockLease(t.Context(), name, time.Minute); !errors.Is(err, locker.ErrTaken) {
			t.Errorf("RenewLockLease of what another process has: %v, want ErrTaken", err)
		}
		if err := storage.Unlock(t.Context(), name); !errors.Is(err, locker.ErrLost) {
			t.Errorf("Unlock: %v, want ErrLost", err)
		}
	})
}

// A goroutine of a group was told that a lock is taken, and the error ended the context of the
// others. Goal: one of them that asks for a lock does not take that for the answer of the store,
// which nobody has asked. Nobody has the lock.
func TestTakenInTheCauseOfAContextDoesNotSayThatSomebodyHasTheLock(t *testing.T) {
	storage := wrap(t, &certmagic.FileStorage{}, newStore(t))
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(locker.ErrTaken)
	if got, err := storage.TryLock(ctx, name); got || !errors.Is(err, context.Canceled) {
		t.Errorf("TryLock: %v, %v, want that the context has ended", got, err)
	}
}

// tries counts the calls of TryLock.
type tries struct {
	*lockertest.Locker
	count int
}

func (l *tries) TryLock(ctx context.Context, name string, opts ...locker.Option) (*locker.Lock, error) {
	l.count++
	return l.Locker.TryLock(ctx, name, opts...)
}

// The context of a renewal came from another lock, which is lost meanwhile. Goal: the lock that is
// held is not taken once more, and the error says that the store has not answered the renewal.
func TestRenewLockLeaseTakesTheLossOfAnotherLockForNoLossOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &tries{Locker: newStore(t)}
		storage := wrap(t, &certmagic.FileStorage{}, store)
		mustDo(t, "Lock", storage.Lock(t.Context(), name))
		other, err := store.Lock(t.Context(), "another")
		mustDo(t, "Lock of another", err)
		ctx, cancel := other.Bind(t.Context())
		defer cancel()
		store.Link().Delay(50 * time.Millisecond)
		time.AfterFunc(10*time.Millisecond, func() { store.Lose("another") })
		err = storage.RenewLockLease(ctx, name, 0)
		store.Link().Delay(0)
		if store.count != 0 || !errors.Is(err, locker.ErrUnavailable) {
			t.Errorf("RenewLockLease: %v, want that the store has not answered; a lock that is held was asked for %d times", err, store.count)
		}
		mustDo(t, "Unlock", storage.Unlock(t.Context(), name))
		wantFree(t, store.Locker, name)
	})
}

func TestNamesOfDomainsAreShortEnough(t *testing.T) {
	store := newStore(t)
	storage := wrap(t, &certmagic.FileStorage{}, store)
	longest := strings.Repeat(strings.Repeat("x", 63)+".", 3) + strings.Repeat("x", 61)
	for _, name := range []string{"issue_cert_" + longest, "issue_cert_*.example.com", "issue_cert_::1", "register_acme_account_ä@example.com"} {
		mustDo(t, "Lock", storage.Lock(t.Context(), name))
		mustDo(t, "Unlock", storage.Unlock(t.Context(), name))
	}
	for _, name := range []string{"", strings.Repeat("x", locker.MaxName+1)} {
		if storage.Lock(t.Context(), name) == nil || storage.Unlock(t.Context(), name) == nil {
			t.Errorf("%.20q: no error", name)
		}
	}
}

func TestTheLogShowsTheStorageAndNoMore(t *testing.T) {
	file := &certmagic.FileStorage{Path: "/mnt"}
	if got := fmt.Sprint(wrap(t, file, newStore(t))); got != file.String() {
		t.Errorf("it says %q", got)
	}
	type silent struct{ certmagic.Storage }
	if got := fmt.Sprint(wrap(t, silent{file}, newStore(t))); got != "certmagiclock_test.silent" {
		t.Errorf("it says %q", got)
	}
}

func TestWrapRefusesLocksThatTwoCanHave(t *testing.T) {
	for _, opt := range []locker.Option{locker.WithShared(), locker.WithSlots(2)} {
		if _, err := certmagiclock.Wrap(&certmagic.FileStorage{}, newStore(t), opt); err == nil {
			t.Error("no error")
		}
	}
}
