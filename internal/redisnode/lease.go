package redisnode

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/mailbox"
)

const (
	claim = int64(mailbox.ClaimTime / time.Millisecond) // as scripts take it

	// lateTime is how long a withdrawn value is refused, at least. A request
	// that arrives later still, from a network that holds it back for more
	// than a minute and the TTL, leaves a lock behind that ends with its TTL.
	lateTime = time.Minute
)

// Lease is one attempt to hold a lock on one node, and the hold that comes of it.
type Lease struct {
	*Terms
	unsure atomic.Bool  // a request may arrive late
	kept   atomic.Int64 // when its counter was last kept from expiring ([locker.Instant])
}

// Terms are what is asked for. They never change, so the leases of one lock on
// several nodes share them.
type Terms struct {
	*locker.Request
	Keys  Keys
	Value string // 20 random bytes, as the Redlock page advises
}

// Init sets what req asks for on the key prefix+req.Name, with a new value. The
// Terms must be zero.
func (t *Terms) Init(req *locker.Request, prefix string) (err error) {
	value := random()
	t.Request = req
	t.Keys, t.Value, err = newKeys(prefix+req.Name, value[:])
	return err
}

// Again returns the same Terms with a new value.
func (t *Terms) Again() *Terms {
	value, fresh := random(), *t
	fresh.Keys, fresh.Value, _ = newKeys(t.Keys.Lock, value[:]) // which was allowed before
	return &fresh
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
func (l *Lease) Unsure() bool { return l.unsure.Load() }

// remember is for how long the store should refuse the value from now on.
func (l *Lease) remember() int64 {
	if !l.unsure.Load() {
		return 0
	}
	return (lateTime + l.TTL).Milliseconds()
}

// Standing is the answer to an attempt.
type Standing struct {
	First  uint64        // of its numbers; 0: not granted
	Left   time.Duration // of the holder's lease, or until we should look for a stranger's
	Ahead  int           // waiters in front of us; 0 as well if we have just passed the lock on to one
	Ticket int64         // our place in the queue, for asking again
}

// mostAhead is how many waiters ahead may use up their claim time.
const mostAhead = 3

// NextLook is when to ask again where no word comes: when the lease has ended, and one
// claim time later for each waiter ahead, who may all have died with the holder. Where
// there are many, the first who looks passes the lock on to one who is there, so
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

	// Offer is the clock, in microseconds, that a node of a quorum is asked to
	// lift its token and ticket to, the same for all nodes.
	Offer int64
}

// Acquire asks for the lock. After an error the attempt may be anywhere: withdraw it.
func (n *Node) Acquire(ctx context.Context, l *Lease, ask Ask) (Standing, error) {
	member := ""
	if ask.Queue {
		member = n.member(l)
	}
	req := l.request(n.acquire, &l.Value, l.TTL.Milliseconds(), &l.Holder, claim, n.counts, member, ask.Ticket, n.keepFor())
	if n.acquire == acquireOfQuorum {
		req.args = append(req.args, n.quarantine, ask.Offer)
	}
	l.kept.Store(int64(locker.Now()))
	reply, repeated, err := n.send(ctx, req)
	if (repeated || unsure(err)) && !n.stranger(err) {
		l.unsure.Store(true)
	}
	if err != nil {
		return Standing{}, err
	}
	switch reply := reply.(type) {
	case int64:
		if reply == 0 {
			return Standing{}, ErrWithdrawn
		}
		return Standing{First: uint64(reply)}, nil
	case []any:
		if left, ahead, ticket, ok := integers(reply); ok {
			return Standing{Left: time.Duration(left) * time.Millisecond, Ahead: int(ahead), Ticket: ticket}, nil
		}
	}
	return Standing{}, fmt.Errorf("the server gave an answer of an unknown form: %v", reply)
}

func integers(reply []any) (a, b, c int64, ok bool) {
	if len(reply) != 3 {
		return 0, 0, 0, false
	}
	a, okA := reply[0].(int64)
	b, okB := reply[1].(int64)
	c, okC := reply[2].(int64)
	return a, b, c, okA && okB && okC
}

func (n *Node) member(l *Lease) string { return l.Value + ":" + n.id }

// Release gives the lock back. A LostError, without a name, says that it was no
// longer ours.
func (n *Node) Release(ctx context.Context, l *Lease) error {
	reply, repeated, err := n.send(ctx, l.request(release, &l.Value, claim, n.counts, l.remember()))
	if err != nil {
		return err
	}
	code, _ := reply.(int64)
	if code == -1 && repeated || code >= 0 {
		return nil // the first try released it; we would have been told of a loss in time
	}
	return gone(code)
}

func gone(code int64) error {
	if code == -2 {
		return &locker.LostError{Reason: locker.Forced}
	}
	return &locker.LostError{Reason: locker.TakenOver}
}

// Withdraw removes whatever the attempt has left, or will leave. Where the attempt
// is unsure afterwards, its value must not be used again.
func (n *Node) Withdraw(ctx context.Context, l *Lease) error {
	_, repeated, err := n.send(ctx, l.request(withdraw, &l.Value, claim, n.counts, l.remember(), n.member(l)))
	if repeated {
		l.unsure.Store(true) // the first may arrive late, and take away what the value is granted by then
	}
	return err
}

// Renew starts another TTL for each lease, many in one round trip. The masters
// of a Cluster are asked at the same time: the client answers for all of a batch
// together, so one that is silent would take the locks on all others with it.
func (n *Node) Renew(ctx context.Context, leases []*Lease) []error {
	cluster, ok := n.rdb.(*redis.ClusterClient)
	if !ok {
		return n.renewAll(ctx, leases)
	}
	byMaster := make(map[*redis.Client][]int)
	for i, l := range leases {
		m, _ := cluster.MasterForKey(ctx, l.Keys.Lock) // nil: those that have none known will hear of it from the renewal
		byMaster[m] = append(byMaster[m], i)
	}
	errs := make([]error, len(leases))
	var wg sync.WaitGroup
	for _, mine := range byMaster {
		wg.Go(func() {
			part := make([]*Lease, len(mine))
			for i, at := range mine {
				part[i] = leases[at]
			}
			for i, err := range n.renewAll(ctx, part) {
				errs[mine[i]] = err
			}
		})
	}
	wg.Wait()
	return errs
}

func (n *Node) renewAll(ctx context.Context, leases []*Lease) (errs []error) {
	const most = 500 // keeps one batch from holding up the server
	for some := range slices.Chunk(leases, most) {
		errs = append(errs, n.renewSome(ctx, some)...)
	}
	return errs
}

func (n *Node) renewSome(ctx context.Context, leases []*Lease) []error {
	errs := make([]error, len(leases))
	_, isCluster := n.rdb.(*redis.ClusterClient)
	if len(leases) == 1 || isCluster && n.replicas > 0 { // WAIT has no key: it needs the lock's own server
		for i, l := range leases {
			errs[i] = n.renewOne(ctx, l)
		}
		return errs
	}
	cmds, all := bounded(ctx, func(ctx context.Context) ([]once, error) {
		cmds := make([]once, len(leases))
		for i, l := range leases {
			cmds[i] = n.renewal(l).command(ctx)
		}
		return cmds, n.pipeline(ctx, n.rdb, cmds...)
	})
	for i, l := range leases {
		code, err := int64(0), all
		if err == nil {
			code, err = cmds[i].Int64()
		}
		if err != nil {
			l.kept.Store(0)
		}
		switch {
		case noScript(err): // the first of them loads it for the next round
			errs[i] = n.renewOne(ctx, l)
		case err != nil:
			errs[i] = classify(err)
		case code < 0:
			errs[i] = gone(code)
		}
	}
	return errs
}

func (n *Node) renewOne(ctx context.Context, l *Lease) error {
	reply, _, err := n.send(ctx, n.renewal(l))
	if err != nil {
		l.kept.Store(0)
		return err
	}
	if code, _ := reply.(int64); code < 0 {
		return gone(code)
	}
	return nil
}

// KeepTime is the default of [Node].Keep.
const KeepTime = time.Hour

// KeepFor is what a user's option makes of [Node].Keep.
func KeepFor(option time.Duration) (time.Duration, error) {
	if option == 0 {
		return KeepTime, nil
	}
	if option < time.Minute || option > 10*365*24*time.Hour {
		return 0, fmt.Errorf("counters must be kept for a minute to ten years, not %v (Options.KeepCounter)", option)
	}
	return option, nil
}

// keepFor is for how long after the end of a lease its counter is kept, in ms: longer
// than was wished by what passes until the next renewal that keeps it.
func (n *Node) keepFor() int64 { return (n.Keep + n.Keep/3).Milliseconds() }

// renewal asks for another TTL, and three times in the time that counters are kept
// for the lock's counter to be kept as well. One that failed is made up for by the next.
func (n *Node) renewal(l *Lease) request {
	keep, now := int64(0), locker.Now()
	if now.Sub(locker.Instant(l.kept.Load())) > n.Keep/3 {
		keep = n.keepFor()
		l.kept.Store(int64(now))
	}
	return l.request(renew, &l.Value, l.TTL.Milliseconds(), keep)
}

// Inspect reads what the server knows of a lock.
func (n *Node) Inspect(ctx context.Context, keys Keys) (locker.Info, error) {
	info, _, err := n.Look(ctx, keys)
	return info, err
}

// Look is Inspect, and returns the value that the lock's key has besides.
func (n *Node) Look(ctx context.Context, keys Keys) (info locker.Info, value string, err error) {
	reply, _, err := n.send(ctx, keys.request(inspect, keys.own[:keys.mark]))
	if err != nil {
		return info, "", err
	}
	fields, _ := reply.([]any)
	if len(fields) != 4 {
		return info, "", fmt.Errorf("the server gave an answer of an unknown form: %v", reply)
	}
	value, _ = fields[0].(string)
	left, _ := fields[1].(int64)
	last, _ := fields[2].(string)
	waiters, _ := fields[3].(int64)
	info = locker.Info{Name: keys.Lock, Waiters: int(waiters)}
	token, of, holder := lastGrant(last)
	info.Held = left != missing && !isReservation(value)
	if info.Held && of == value {
		info.Holder = holder
	}
	if info.Held {
		left = min(left, int64(math.MaxInt64/time.Millisecond)) // a key of somebody else's may have more
		info.TimeLeft = max(0, time.Duration(left)*time.Millisecond)
	}
	if !info.Held || of == value {
		info.Token = token
	}
	return info, value, nil
}

// missing is the time left of a key that is not there.
const missing = -2

// isReservation tells a reservation from what a client of another library may
// have put there: random bytes begin with a question mark now and then.
func isReservation(value string) bool {
	of, ok := strings.CutPrefix(value, "?")
	return ok && len(of) == valueSize
}

// lastGrant reads what a script's grant wrote. The token is the first of its majority,
// to whose range a node's counter is raised.
func lastGrant(s string) (token fencing.Token, value, holder string) {
	number, rest, _ := strings.Cut(s, " ")
	value, rest, _ = strings.Cut(rest, " ")
	_, holder, _ = strings.Cut(rest, " ")
	final, _ := fencing.Parse(number)
	if final < Tokens {
		return 0, value, holder // it was never written: unknown
	}
	return final - Tokens + 1, value, holder
}

// Break frees the lock, whoever holds it, and reports whether anybody did.
func (n *Node) Break(ctx context.Context, keys Keys) (bool, error) {
	for range 10 { // it may change hands while we look
		info, value, err := n.Look(ctx, keys)
		if err != nil || !info.Held {
			return false, err
		}
		broken, err := n.force(ctx, keys, value, max(info.TimeLeft, lateTime))
		if err != nil || broken {
			return broken, err
		}
	}
	return false, errors.New("the lock changes hands so fast that none of its holders could be broken")
}

// force frees the lock if value has it, and reports whether it had. A value that is
// not ours is not marked: nobody asks for its mark, and it may be long or a secret.
func (n *Node) force(ctx context.Context, keys Keys, value string, remember time.Duration) (bool, error) {
	ours := value
	if len(value) != valueSize {
		ours, remember = "", 0
	}
	reply, repeated, err := n.send(ctx, keys.request(force, keys.own[:keys.mark]+ours, value, claim, n.counts, remember.Milliseconds()))
	if err == nil && reply == int64(0) && repeated && ours == "" {
		err = classify(errMaybeForced)
	}
	return reply == int64(1), err
}

// errMaybeForced is the end of a force whose first answer was lost. A second look
// would be at the next holder.
var errMaybeForced = errors.New("the answer was lost: the lock may have been broken, look who has it")
