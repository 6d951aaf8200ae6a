package locker

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/lockstile/locker/fencing"
)

const (
	// MinTTL is the shortest lease. A backend may have a higher floor.
	MinTTL = 100 * time.Millisecond
	// MaxTTL is the longest.
	MaxTTL = 24 * time.Hour
	// DefaultTTL is the lease without [WithTTL].
	DefaultTTL = 30 * time.Second
	// MaxName is the longest name, in bytes.
	MaxName = 512
	// MaxHolder is the longest text for [WithHolder], in bytes.
	MaxHolder = 256
	// MaxSlots is the most for [WithSlots].
	MaxSlots = 1024
)

// Option changes one acquisition. Make it with one of the functions below.
type Option func(*Request) error

// Request is one acquisition's settings. Only authors of backends need it: package
// driver makes it, and hands it to the backend.
type Request struct {
	Name        string
	TTL         time.Duration
	Wait        time.Duration // of Lock; 0: until its context ends
	MaxHold     time.Duration // 0: no limit
	MinHold     time.Duration
	MinValidity time.Duration
	Holder      string
	Slots       int // if Kind is Slots, else 0
	Kind        Kind
	Renew       bool // renewed by itself until it is unlocked or lost
	Alone       bool // not passed on from goroutine to goroutine in memory: [WithCounter]

	guard     *guardUse
	listeners []*listener // WithObserver
	call      uint64      // its number, if it is observed
}

// Kind is what a lock shuts out.
type Kind uint8

const (
	Exclusive Kind = iota // everybody else
	Shared                // those who want it exclusively: [WithShared]
	Slots                 // all but a number of holders: [WithSlots]
)

var kinds = [...]string{"exclusive", "shared", "slots"}

// String returns the kind in one word. It never changes.
func (k Kind) String() string {
	if int(k) >= len(kinds) {
		return "unknown kind"
	}
	return kinds[k]
}

// option is what asks for the kind.
func (k Kind) option() string {
	if k == Shared {
		return "WithShared"
	}
	return "WithSlots"
}

// Tokens is how many of so many numbers a grant of the request has: a shared lock and a slot,
// which are not passed on in memory, have one.
func (r *Request) Tokens(most uint32) uint32 {
	if r.Kind == Exclusive {
		return most
	}
	return 1
}

// guardUse is what [WithGuard] asks of [Do].
type guardUse struct {
	guard     fencing.Guard
	resources []string // none with slots, which have one each
}

// NewRequest validates a name and options. Only authors of backends need it. A backend
// calls it before anything else, so after an error nothing has happened in the store.
func NewRequest(name string, opts ...Option) (*Request, error) {
	r, err := newRequest(name, opts)
	if err != nil {
		return nil, err
	}
	if r.guard != nil {
		return nil, fmt.Errorf("locker: lock %q: WithGuard works with Do; after Lock or TryLock call the guard's Check yourself", name)
	}
	if r.Observed() {
		r.call = observedCalls.Add(1)
	}
	return r, nil
}

func newRequest(name string, opts []Option) (*Request, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	r := &Request{Name: name, TTL: DefaultTTL, Renew: true, Holder: thisProcess()}
	for _, opt := range opts {
		if opt == nil {
			return nil, fmt.Errorf("locker: lock %q: an option is nil", name)
		}
		if err := opt(r); err != nil {
			return nil, fmt.Errorf("locker: lock %q: %w", name, err)
		}
	}
	if err := r.agree(); err != nil {
		return nil, fmt.Errorf("locker: lock %q: %w", name, err)
	}
	return r, nil
}

// agree returns an error if two options contradict each other.
func (r *Request) agree() error {
	switch valid := r.TTL - Drift(r.TTL); {
	case r.MinValidity >= valid:
		return fmt.Errorf("minimum validity %v cannot be met with a TTL of %v: it leaves %v after the allowance for clock drift", r.MinValidity, r.TTL, valid)
	case r.MaxHold > 0 && r.MaxHold <= r.MinValidity:
		return fmt.Errorf("maximum hold %v is not over the minimum validity of %v: no lock could have both", r.MaxHold, r.MinValidity)
	case r.MaxHold > 0 && r.MinHold > r.MaxHold:
		return fmt.Errorf("minimum hold %v is over the maximum hold of %v", r.MinHold, r.MaxHold)
	case r.MinHold > 0 && r.Kind != Exclusive:
		return fmt.Errorf("WithMinHold works with exclusive locks only, and not with %s", r.Kind.option())
	case r.Kind == Slots && r.guard != nil && len(r.guard.resources) > 0:
		return fmt.Errorf("WithGuard with slots claims %q and the like, so name no resources: the tokens of those who have different slots are not in order, and no guard can protect what they share", SlotResource(r.Name, 0))
	case !r.Renew && r.MinHold >= valid:
		return fmt.Errorf("minimum hold %v does not fit into the validity of %v, which is all that a lock without renewal has", r.MinHold, valid)
	}
	return nil
}

// CheckName returns an error unless name is 1 to [MaxName] bytes of UTF-8
// without a zero byte. Everything else is allowed, slashes and line ends too:
// backends encode what their store does not.
func CheckName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("locker: the name of a lock is empty")
	case len(name) > MaxName:
		return fmt.Errorf("locker: the name %.20q… has %d bytes, the limit is %d", name, len(name), MaxName)
	case !utf8.ValidString(name):
		return fmt.Errorf("locker: the name %.20q is not valid UTF-8", name)
	}
	for i := range len(name) {
		if name[i] == 0 {
			return fmt.Errorf("locker: the name %.20q has a zero byte", name)
		}
	}
	return nil
}

// Drift is how much earlier than its store a holder stops believing in a lease
// of ttl: a hundredth of it for clocks that run at different rates, plus 2 ms
// for the resolution of the store's clock. The figures are those of the Redlock page.
func Drift(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }

// Deadline returns the end of validity of a lease whose request was sent after since.
func (r *Request) Deadline(since Instant) Instant { return since.Add(r.TTL - Drift(r.TTL)) }

// WithTTL sets how long the lock outlives a holder that has stopped renewing
// it. Short leases free a dead holder's lock sooner and are lost to a slow
// store sooner. The default is [DefaultTTL]; less than [MinTTL] or more than
// [MaxTTL] is an error. Stores count in milliseconds: a fraction of one is an
// error too.
func WithTTL(d time.Duration) Option {
	return func(r *Request) error {
		switch {
		case d < MinTTL:
			return fmt.Errorf("ttl %v is under the limit of %v", d, MinTTL)
		case d > MaxTTL:
			return fmt.Errorf("ttl %v is over the limit of %v", d, MaxTTL)
		case d%time.Millisecond != 0:
			return fmt.Errorf("ttl %v is not a whole number of milliseconds", d)
		}
		r.TTL = d
		return nil
	}
}

// WithShared makes the lock a shared one: any number of others may hold it at the same
// time, as long as all of them share it. It is for readers, and keeps writers out, who lock
// the same name without this option. A writer that waits keeps later readers out.
//
// A shared lock has a [Lock.SharedToken] and no [Lock.Token], so that it opens no write.
// It cannot be made exclusive, nor the other way round. In [Do], the guard of [WithGuard]
// must be a [fencing.SharedGuard]. WithMinHold and WithSlots do not go with it.
func WithShared() Option { return ofKind(Shared, 0) }

// WithSlots lets up to n hold the lock at the same time. Each has a slot of its own, from 0
// to n-1 ([Lock.Slot]): it gets the smallest that is free. All must ask for the same n; while
// anybody holds the lock or waits for it, asking for another n, or for another kind of lock,
// is an error that names both. n is from 1 to [MaxSlots].
//
// A slot's own resource can have a guard. In [Do], [WithGuard] claims [SlotResource] of the
// name and slot. What all slots share cannot: see [Lock.Slot]. WithMinHold and WithShared
// do not go with it.
func WithSlots(n int) Option { return ofKind(Slots, n) }

func ofKind(k Kind, slots int) Option {
	return func(r *Request) error {
		switch {
		case r.Kind != Exclusive && r.Kind != k:
			return fmt.Errorf("WithShared and WithSlots exclude each other")
		case k == Slots && (slots < 1 || slots > MaxSlots):
			return fmt.Errorf("WithSlots(%d): the number is not from 1 to %d", slots, MaxSlots)
		}
		r.Kind, r.Slots = k, slots
		return nil
	}
}

// SlotResource is the name of the resource that belongs to a slot: name/slot.
func SlotResource(name string, slot int) string { return name + "/" + strconv.Itoa(slot) }

// WithoutRenewal gives the lock up at the end of its TTL unless the holder
// calls [Lock.Renew]. Without this option the lock is renewed by itself.
func WithoutRenewal() Option {
	return func(r *Request) error {
		r.Renew = false
		return nil
	}
}

// WithWait makes Lock wait for d at most, and bounds nothing else: in [Do] it leaves the
// context of the function alone. When d is over, by this machine's clock, the error is the
// one of a context that ends then: [ErrTaken] if anybody has said that the lock is taken,
// else [ErrUnavailable], and errors.Is finds [context.DeadlineExceeded] in it. The default
// is to wait until the context ends. TryLock does not wait, and refuses this option.
func WithWait(d time.Duration) Option {
	return func(r *Request) error {
		if d <= 0 {
			return fmt.Errorf("wait %v is not positive: TryLock does not wait at all", d)
		}
		r.Wait = d
		return nil
	}
}

// WithMinHold keeps the lock from everybody else for d after the grant, also when Unlock
// comes sooner. A job that N machines start at the same time, and that takes less time
// than their clocks differ by, runs once if d is greater than that difference and less
// than the time between two starts:
//
//	err := locker.TryDo(ctx, locks, "report", work, locker.WithMinHold(30*time.Second))
//
// Unlock does not wait for the end of d. Where [Guarantees].Keeps is true, the store has the
// lock for what is left of d, under nobody's value and by its own clock. Elsewhere this
// process keeps it in the background, and it is free early if the process ends. Everywhere
// it is free early if it is lost before Unlock, for a holder that crashes has no
// minimum, or if the store does not answer an Unlock for as long as the TTL. The default is
// none; more than [MaxTTL], or than the maximum hold, is an error.
func WithMinHold(d time.Duration) Option {
	return func(r *Request) error {
		switch {
		case d <= 0:
			return fmt.Errorf("minimum hold %v is not positive: without the option there is none", d)
		case d > MaxTTL:
			return fmt.Errorf("minimum hold %v is over the limit of %v", d, MaxTTL)
		}
		r.MinHold = d
		return nil
	}
}

// WithMaxHold bounds how long the lock can be held, renewals included. At the
// end of d, by this machine's clock, it is lost, and freed in the store. The default is
// no bound: a holder that hangs keeps everybody else out, and so does a *[Lock] that nobody
// unlocks, for it is renewed until its process ends.
func WithMaxHold(d time.Duration) Option {
	return func(r *Request) error {
		if d <= 0 {
			return fmt.Errorf("maximum hold %v is not positive", d)
		}
		r.MaxHold = d
		return nil
	}
}

// WithMinValidity refuses a lock that was granted so slowly that less than d of
// its validity is left when the grant arrives: that is an [ErrUnavailable]. The
// default is 0: any validity will do.
func WithMinValidity(d time.Duration) Option {
	return func(r *Request) error {
		if d < 0 {
			return fmt.Errorf("minimum validity %v is negative", d)
		}
		r.MinValidity = d
		return nil
	}
}

// WithHolder sets the text that an [Inspector] shows for the holder: at most
// [MaxHolder] bytes of printable UTF-8, and no secret. The store does not tell
// holders apart by it. The default names the process and its host.
func WithHolder(text string) Option {
	return func(r *Request) error {
		if len(text) > MaxHolder {
			return fmt.Errorf("holder text has %d bytes, the limit is %d", len(text), MaxHolder)
		}
		for _, c := range text {
			if c == utf8.RuneError || !unicode.IsPrint(c) {
				return fmt.Errorf("holder text %q is not printable UTF-8", text)
			}
		}
		r.Holder = text
		return nil
	}
}

// WithGuard makes [Do] claim resources with the lock's token before it calls
// its function. So an earlier holder's late write is refused even if it comes before
// the new holder's first write. Name the resources that are written under the lock, as the
// guard calls them; they are not the lock's name, which has a meaning of its own where the
// lock and the data are in one store. With [WithShared] it claims them for
// reading. With [WithSlots] it claims [SlotResource], and must be given no resources. Lock,
// TryLock and LockAll refuse this option; package election takes it, as Do does. It can be
// given once.
func WithGuard(g fencing.Guard, resources ...string) Option {
	return func(r *Request) error {
		switch {
		case g == nil:
			return fmt.Errorf("WithGuard was given no guard")
		case r.guard != nil:
			return fmt.Errorf("WithGuard was given twice: Do claims with one guard; call the other one's Check yourself")
		case slices.Contains(resources, ""):
			return fmt.Errorf("WithGuard was given a resource without a name")
		}
		r.guard = &guardUse{g, resources}
		return nil
	}
}

// Waiting returns the context in which a Lock that was asked for in ctx may wait: it ends
// with ctx, or when the time of [WithWait] is over. Call the function when the wait is.
func (r *Request) Waiting(ctx context.Context) (context.Context, context.CancelFunc) {
	if r.Wait == 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, r.Wait, fmt.Errorf("it was waited for %v (WithWait)", r.Wait))
}

// inSet takes away what counts for a whole [Set] and not for each of its locks. No reader
// joins a shared lock that will have a maximum hold: it would end for that reader, too.
func inSet(r *Request) error {
	r.Alone = r.Alone || r.Kind == Shared && r.MaxHold > 0
	r.Wait, r.MaxHold, r.MinHold = 0, 0, 0
	return nil
}

// alone keeps a lock from being passed on within the process.
func alone(r *Request) error {
	r.Alone = true
	return nil
}

// withoutGuard hides the guard from the backend when Do has taken it on itself.
func withoutGuard(r *Request) error {
	r.guard = nil
	return nil
}

// thisProcess is the default text for WithHolder.
var thisProcess = sync.OnceValue(func() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return fmt.Sprintf("process %d on %.200s", os.Getpid(), host)
})
