package redisnode

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/internal/mailbox"
)

const (
	claim = int64(mailbox.ClaimTime / time.Millisecond) // as scripts take it

	// lateTime is how long a withdrawn value is refused, at least, by the server's
	// clock. A request that arrives later still, from a network that holds it back for
	// more than a minute and the TTL, or after the clock has stepped forward by as much,
	// leaves a lock behind that ends with its TTL.
	lateTime = time.Minute
)

// Attempt is one attempt at a lock on one node, and the hold that comes of it.
type Attempt struct {
	*Terms
	unsure   atomic.Bool  // a request may arrive late
	released atomic.Bool  // a release that was not answered may have worked
	adopted  bool         // another process had it
	kept     atomic.Int64 // when its counter was last kept from expiring ([driver.Instant]); 0: not by this process
}

// Terms are what is asked for. They never change, so the attempts of one lock on
// several nodes share them.
type Terms struct {
	*driver.Request
	Keys  Keys
	Value string // 20 random bytes, as the Redlock page advises; the kind comes before them if it is not exclusive
}

// Init sets what req asks for on the key prefix+req.Name, with a new value. The
// Terms must be zero.
func (t *Terms) Init(req *driver.Request, prefix string) (err error) {
	t.Request = req
	t.Keys, t.Value, err = newKeys(prefix+req.Name, t.newValue())
	return err
}

// WithNewValue returns the same Terms with another value.
func (t *Terms) WithNewValue() *Terms { return t.withValue(t.newValue()) }

func (t *Terms) withValue(value []byte) *Terms {
	fresh := *t
	fresh.Keys, fresh.Value, _ = newKeys(t.Keys.Lock, value) // which was allowed before
	return &fresh
}

// newValue returns another value. Scripts tell from it what is asked for.
func (t *Terms) newValue() []byte {
	value := random()
	switch t.Kind {
	case locker.KindShared:
		return append([]byte("#"), value[:]...)
	case locker.KindSlots:
		return append(strconv.AppendInt(nil, int64(t.Slots), 10), append([]byte("#"), value[:]...)...)
	}
	return value[:]
}

// kindOf says what a value of a script's asks for.
func kindOf(value string) (kind locker.Kind, slots int) {
	number, _, beside := strings.Cut(value, "#")
	slots, err := strconv.Atoi(number)
	switch {
	case beside && number == "":
		return locker.KindShared, 0
	case beside && err == nil && slots > 0:
		return locker.KindSlots, slots
	}
	return locker.KindExclusive, 0
}

// valueSize is the length of a value of ours: 20 bytes in base64.
const valueSize = 27

func random() (text [valueSize]byte) {
	var b [20]byte
	_, _ = rand.Read(b[:]) // crypto/rand never fails since Go 1.24: it crashes instead
	base64.RawURLEncoding.Encode(text[:], b[:])
	return text
}

// Unsure reports whether a request of this attempt may have been carried out
// without our knowing, or may yet be.
func (a *Attempt) Unsure() bool { return a.unsure.Load() }

// remember is how long the server is to refuse the value from now on, in ms.
func (a *Attempt) remember() int64 {
	if !a.unsure.Load() {
		return 0
	}
	return (lateTime + a.TTL).Milliseconds()
}

// Standing is a server's answer to an attempt.
type Standing struct {
	First  uint64        // of its tokens; 0: not granted
	Count  uint32        // of its tokens
	Slot   int           // -1 if it is none
	Left   time.Duration // of the holder's lease, or until we should look for a stranger's
	Ahead  int           // waiters before us; 0 as well if we have just passed the lock on to one
	Ticket int64         // our place in the queue, for asking again
	NoLock bool          // the key has no expiry, and is no lock of ours
}

// NoLock says what keeps a lock taken for ever.
const NoLock = "the key of that name has no expiry and is no lock of ours: was data written under the lock's name?"

// ErrNoLock is why a lock is taken for ever.
var ErrNoLock = fmt.Errorf("%w: %s", locker.ErrTaken, NoLock)

// mostAhead is how many waiters ahead may use up their claim time.
const mostAhead = 3

// NextLook is when to ask again where no word comes: when the lease has ended, and one
// claim time later for each waiter ahead, which may all have died with the holder. Where
// there are many, the first that looks passes the lock on to one that is there, so
// nobody waits for more than a few.
func (s Standing) NextLook() time.Duration {
	if s.Ahead <= mostAhead {
		return s.Left + time.Duration(s.Ahead)*mailbox.ClaimTime
	}
	return s.Left + mostAhead*mailbox.ClaimTime + mathrand.N(mailbox.ClaimTime) //nolint:gosec // no secret: so that they do not all ask at once
}

// ErrWithdrawn means that the attempt had been withdrawn, or its lock broken, before
// the request arrived. The server refuses the value for a minute and more.
var ErrWithdrawn = errors.New("the attempt was withdrawn")

// Ask is how an attempt asks for the lock. The zero Ask is one look.
type Ask struct {
	// Queue has the attempt wait in the store from then on, if the lock is taken. It
	// is told through [Node.Mail] when its turn has come.
	Queue  bool
	Ticket int64 // 0, or that of an earlier Standing

	Since driver.Instant // when the clock was read for the request; 0: it is read again

	// Offer is the clock, in microseconds, that a node of a quorum is asked to
	// lift its token and ticket to, the same for all nodes.
	Offer int64
}

// Acquire asks for the lock. After an error the server may have granted or queued the
// attempt: withdraw it. A grant that comes after the end of ctx is an error.
func (n *Node) Acquire(ctx context.Context, a *Attempt, ask Ask) (Standing, error) {
	member := ""
	if ask.Queue {
		member = n.member(a)
	}
	req := a.request(n.acquire, &a.Value, a.TTL.Milliseconds(), &a.Holder, n.claimTime(), n.counts, member, ask.Ticket, n.keepMillis())
	if n.acquire == acquireOfQuorum {
		req.args = append(req.args, n.quarantine, ask.Offer)
	}
	if ask.Since == 0 {
		ask.Since = driver.Now()
	}
	a.kept.Store(int64(ask.Since))
	sent := time.Now()         // which is no call of the system, as driver.Now is
	was := a.unsure.Swap(true) // also if a hook of the client's panics
	reply, repeated, err := n.send(ctx, req)
	if err == nil {
		n.trip.Store(time.Since(sent).Milliseconds())
	}
	a.unsure.Store(was || (repeated || unsure(err)) && !n.stranger(err))
	if err != nil {
		return Standing{}, err
	}
	s, err := standing(a.Request, reply)
	if s.First > 0 && ctx.Err() != nil { // its caller gave up before the answer
		a.unsure.Store(true)
		return Standing{}, context.Cause(ctx)
	}
	if err != nil && !errors.Is(err, ErrWithdrawn) && !errors.Is(err, locker.ErrMismatch) {
		a.unsure.Store(true) // it may be a grant
	}
	if s.Ticket < 0 { // it has met many dead waiters, and nobody else
		return n.Acquire(ctx, a, ask)
	}
	if n.mute.Load() {
		s.Left = min(s.Left, silentLook+time.Duration(s.Ahead)*time.Second)
	}
	return s, err
}

// claimTime is by how much later than it was told to a waiter may look. Its server does not know
// how long a request and its answer take: the place of a writer that waits for readers would
// be given to readers again and again. It returns an any, for that of a constant is not allocated.
func (n *Node) claimTime() any {
	if trip := n.trip.Load(); trip > claim/2 {
		return min(2*trip, mostClaims*claim)
	}
	return claim
}

// mostClaims bounds for how long one that is slow, and then dies, keeps others waiting.
const mostClaims = 10

// silentLook is when the first waiter looks again where no word may come.
const silentLook = 100 * time.Millisecond

// standing reads the reply to an Ask. One of another form may be a grant that nobody can
// understand: it is an error, after which the attempt is withdrawn.
func standing(req *driver.Request, reply any) (Standing, error) {
	switch reply := reply.(type) {
	case int64:
		switch {
		case reply == 0:
			return Standing{}, ErrWithdrawn
		case reply > 0 && reply <= endOfTokens-int64(req.Tokens(Tokens)) && req.Kind != locker.KindSlots:
			return Standing{First: uint64(reply), Count: req.Tokens(Tokens), Slot: -1}, nil
		}
	case []any:
		switch n := integers(reply); {
		case len(n) == 1:
			return Standing{}, mismatch(req, int(n[0]))
		case len(n) == 2 && n[0] > 0 && n[0] < endOfTokens && n[1] >= 0 && n[1] < int64(req.Slots):
			return Standing{First: uint64(n[0]), Count: 1, Slot: int(n[1])}, nil
		case (len(n) == 3 || len(n) == 4) && n[1] >= 0:
			return Standing{Left: mailbox.Left(n[0]), Ahead: int(n[1]), Ticket: n[2], NoLock: len(n) == 4}, nil
		}
	}
	return Standing{}, unknownForm(reply)
}

func unknownForm(reply any) error {
	return fmt.Errorf("the server gave an answer of an unknown form: %.200v", reply)
}

// integers returns nil if one of them is none.
func integers(reply []any) []int64 {
	all := make([]int64, len(reply))
	for i, field := range reply {
		n, ok := field.(int64)
		if !ok {
			return nil
		}
		all[i] = n
	}
	return all
}

// mismatch reads how a name is held: in slots, shared (0) or exclusively (-1).
func mismatch(req *driver.Request, slots int) error {
	switch {
	case slots > 0:
		return driver.Mismatch(req, locker.KindSlots, slots)
	case slots == 0:
		return driver.Mismatch(req, locker.KindShared, 0)
	}
	return driver.Mismatch(req, locker.KindExclusive, 0)
}

func (n *Node) member(a *Attempt) string { return a.Value + ":" + n.id }

// Release gives the lock back. With keep it leaves it taken, by nobody, until so much
// time has passed since the server handled the request. A LostError, without a name, says
// that it was no longer ours. After any other error it may have been given back; with what
// is left of keep, Release can be called again.
func (n *Node) Release(ctx context.Context, a *Attempt, keep time.Duration) error {
	var req request
	if keep > 0 {
		req = a.request(keepTaken, &a.Value, claim, n.counts, a.remember(), wholeMillis(keep), n.keepMillis())
	} else {
		req = a.request(release, &a.Value, claim, n.counts, a.remember())
	}
	reply, repeated, err := n.sendOn(ctx, req)
	if repeated || unsure(err) {
		a.released.Store(true)
	}
	if err != nil {
		return err
	}
	if a.adopted && a.released.Load() && reply == int64(-1) {
		return errors.New("an earlier request, which was not answered, may have freed the lock: when asked again, it was gone")
	}
	return released(reply, a.released.Load())
}

// released reads the reply to a release. If an earlier one may have worked, the lock may be gone
// by that one: we would have been told of a loss in time.
func released(reply any, before bool) error {
	switch code, ok := reply.(int64); {
	case !ok:
		return unknownForm(reply)
	case code >= 0 || code == -1 && before:
		return nil
	default:
		return gone(code)
	}
}

// wholeMillis is d in milliseconds, and never less.
func wholeMillis(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }

func gone(code int64) error {
	if code == -2 {
		return &locker.LostError{Reason: locker.ReasonForced}
	}
	return &locker.LostError{Reason: locker.ReasonTakenOver}
}

// Withdraw removes whatever the attempt has left, or will leave. Where the attempt
// is unsure afterwards, its value must not be used again.
func (n *Node) Withdraw(ctx context.Context, a *Attempt) error {
	_, repeated, err := n.sendOn(ctx, a.request(withdraw, &a.Value, claim, n.counts, a.remember(), n.member(a)))
	if repeated {
		a.unsure.Store(true) // the first may arrive late, and take away what the value is granted by then
	}
	return err
}
