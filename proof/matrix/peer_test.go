package matrix

import (
	"context"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/local"
)

func TestASubjectThatPromisesTokensIsNotTakenForTokenless(t *testing.T) {
	if (Subject{}).Tokenless() || !(Subject{Guarantees: locker.Guarantees{Tokens: locker.Unpromised}}).Tokenless() {
		t.Error("a subject is tokenless if, and only if, it does not promise tokens")
	}
}

func TestWhatIsNotPromisedIsNeitherModestNorUntried(t *testing.T) {
	for _, g := range []locker.Guarantees{{Tokens: locker.Unpromised}, {Exclusion: locker.Unpromised}} {
		if modest, untried := found(g, Kept, Kept, Kept).unproven(nil); len(modest)+len(untried) > 0 {
			t.Errorf("%+v: modest %v, not tried %v", g, modest, untried)
		}
	}
}

// Goal: grants without a token are told apart by their number, and a refusal has none.
func TestAWorkerNumbersGrantsThatHaveNoToken(t *testing.T) {
	l, err := local.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	peer := AsPeer(l)
	req := &driver.Request{Name: "n", TTL: time.Second, Renew: true}
	lock, err := peer.TryLock(context.Background(), req)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Unlock(context.Background())
	if refused, err := peer.TryLock(context.Background(), req); err == nil || refused != nil {
		t.Errorf("a refused lock is %v with the error %v", refused, err)
	}
	w := &workerProcess{held: make(map[int]numbered)}
	for _, c := range []struct {
		lock Holding
		want fencing.Token
	}{{blank{lock}, 1}, {blank{lock}, 2}, {lock, lock.Token()}} {
		if got, err := w.keep(order{Name: "n"}, c.lock); err != nil || got.Token() != c.want {
			t.Errorf("the number is %d, not %d (%v)", got.Token(), c.want, err)
		}
	}
}

// blank is a lock without a token.
type blank struct{ Holding }

func (blank) Token() fencing.Token { return 0 }
