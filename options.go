package locker

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/contract"
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
type Option struct {
	apply func(*contract.Settings) error
}

// Kind says whom a lock excludes.
type Kind uint8

const (
	KindExclusive Kind = iota // everybody else
	KindShared                // those who want it exclusively: [WithShared]
	KindSlots                 // all but a number of holders: [WithSlots]
)

var kinds = [...]string{"exclusive", "shared", "slots"}

// String returns the kind in one word. It never changes.
func (k Kind) String() string {
	if int(k) >= len(kinds) {
		return "unknown kind"
	}
	return kinds[k]
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

// WithTTL sets how long the lock outlives a holder that has stopped renewing
// it. Short leases free a dead holder's lock sooner and are lost to a slow
// store sooner. The default is [DefaultTTL]; less than [MinTTL] or more than
// [MaxTTL] is an error. Stores count in milliseconds: a fraction of one is an
// error too.
func WithTTL(d time.Duration) Option {
	return Option{func(s *contract.Settings) error {
		switch {
		case d < MinTTL:
			return fmt.Errorf("ttl %v is under the limit of %v", d, MinTTL)
		case d > MaxTTL:
			return fmt.Errorf("ttl %v is over the limit of %v", d, MaxTTL)
		case d%time.Millisecond != 0:
			return fmt.Errorf("ttl %v is not a whole number of milliseconds", d)
		}
		s.TTL = d
		return nil
	}}
}

// WithShared makes the lock a shared one: any number of others may hold it at the same
// time, as long as all of them share it. It is for readers, and keeps writers out, who lock
// the same name without this option. A writer that waits keeps later readers out.
//
// A shared lock has a [Lock.SharedToken] and no [Lock.Token], so that it opens no write.
// It cannot be made exclusive, nor the other way round. In [Do], the guard of [WithGuard]
// must be a [fencing.SharedGuard]. WithMinHold and WithSlots do not go with it.
func WithShared() Option {
	return Option{func(s *contract.Settings) error {
		if s.Slots > 0 {
			return errTwoKinds
		}
		s.Shared = true
		return nil
	}}
}

// WithSlots lets up to n hold the lock at the same time. Each has a slot of its own, from 0
// to n-1 ([Lock.Slot]): it gets the smallest that is free. All must ask for the same n; while
// anybody holds the lock or waits for it, asking for another n, or for another kind of lock,
// is an error that names both. n is from 1 to [MaxSlots].
//
// A slot's own resource can have a guard. In [Do], [WithGuard] claims [SlotResource] of the
// name and slot. What all slots share cannot: see [Lock.Slot]. WithMinHold and WithShared
// do not go with it.
func WithSlots(n int) Option {
	return Option{func(s *contract.Settings) error {
		switch {
		case s.Shared:
			return errTwoKinds
		case n < 1 || n > MaxSlots:
			return fmt.Errorf("WithSlots(%d): the number is not from 1 to %d", n, MaxSlots)
		}
		s.Slots = n
		return nil
	}}
}

var errTwoKinds = errors.New("WithShared and WithSlots exclude each other")

// SlotResource is the name of the resource that belongs to a slot: name/slot.
func SlotResource(name string, slot int) string { return name + "/" + strconv.Itoa(slot) }

// WithoutRenewal gives the lock up at the end of its TTL unless the holder
// calls [Lock.Renew]. Without this option the lock is renewed by itself.
func WithoutRenewal() Option {
	return Option{func(s *contract.Settings) error {
		s.NoRenewal = true
		return nil
	}}
}

// WithWait makes Lock wait for d at most, and bounds nothing else: in [Do] it leaves the
// context of the function alone. When d is over, by this machine's clock, the error is the
// one of a context that ends then: [ErrTaken] if anybody has said that the lock is taken,
// else [ErrUnavailable], and errors.Is finds [context.DeadlineExceeded] in it. The default
// is to wait until the context ends. TryLock does not wait, and refuses this option.
func WithWait(d time.Duration) Option {
	return Option{func(s *contract.Settings) error {
		if d <= 0 {
			return fmt.Errorf("wait %v is not positive: TryLock does not wait at all", d)
		}
		s.Wait = d
		return nil
	}}
}

// WithMinHold keeps the lock from everybody else for d after the grant, also when Unlock
// comes sooner. A job that N machines start at the same time, and that takes less time
// than their clocks differ by, runs once if d is greater than that difference and less
// than the time between two starts:
//
//	err := locker.TryDo(ctx, locks, "report", work, locker.WithMinHold(30*time.Second))
//
// Unlock does not wait for the end of d. Where [Guarantees].KeepsMinHold is true, the store
// has the lock for what is left of d, under nobody's value and by its own clock. Elsewhere this
// process keeps it in the background, and it is free early if the process ends. Everywhere
// it is free early if it is lost before Unlock, for a holder that crashes has no
// minimum, or if the store does not answer an Unlock for as long as the TTL. The default is
// none; more than [MaxTTL], or than the maximum hold, is an error.
func WithMinHold(d time.Duration) Option {
	return Option{func(s *contract.Settings) error {
		switch {
		case d <= 0:
			return fmt.Errorf("minimum hold %v is not positive: without the option there is none", d)
		case d > MaxTTL:
			return fmt.Errorf("minimum hold %v is over the limit of %v", d, MaxTTL)
		}
		s.MinHold = d
		return nil
	}}
}

// WithMaxHold bounds how long the lock can be held, renewals included. At the
// end of d, by this machine's clock, it is lost, and freed in the store. The default is
// no bound: a holder that hangs keeps everybody else out, and so does a *[Lock] that nobody
// unlocks, for it is renewed until its process ends.
func WithMaxHold(d time.Duration) Option {
	return Option{func(s *contract.Settings) error {
		if d <= 0 {
			return fmt.Errorf("maximum hold %v is not positive", d)
		}
		s.MaxHold = d
		return nil
	}}
}

// WithMinValidity refuses a lock that was granted so slowly that less than d of
// its validity is left when the grant arrives: that is an [ErrUnavailable]. The
// default is 0: any validity will do.
func WithMinValidity(d time.Duration) Option {
	return Option{func(s *contract.Settings) error {
		if d < 0 {
			return fmt.Errorf("minimum validity %v is negative", d)
		}
		s.MinValidity = &d
		return nil
	}}
}

// WithHolder sets the text that an [Inspector] shows for the holder: at most
// [MaxHolder] bytes of printable UTF-8, and no secret. The store does not tell
// holders apart by it. The default names the process and its host.
func WithHolder(text string) Option {
	return Option{func(s *contract.Settings) error {
		if len(text) > MaxHolder {
			return fmt.Errorf("holder text has %d bytes, the limit is %d", len(text), MaxHolder)
		}
		for _, c := range text {
			if c == utf8.RuneError || !unicode.IsPrint(c) {
				return fmt.Errorf("holder text %q is not printable UTF-8", text)
			}
		}
		s.Holder = &text
		return nil
	}}
}

// WithGuard makes [Do] claim resources with the lock's token before it calls
// its function. So an earlier holder's late write is refused even if it comes before
// the new holder's first write. Name the resources that are written under the lock, as the
// guard calls them; they are not the lock's name, which has a meaning of its own where the
// lock and the data are in one store. With [WithShared] it claims them for
// reading. With [WithSlots] it claims [SlotResource], and must be given no resources. Lock,
// TryLock, LockAll and [With] refuse this option; package election takes it, as Do does. It can
// be given once.
func WithGuard(g fencing.Guard, resources ...string) Option {
	return Option{func(s *contract.Settings) error {
		switch {
		case g == nil:
			return errors.New("WithGuard was given no guard")
		case s.Guard != nil:
			return errors.New("WithGuard was given twice: Do claims with one guard; call the other one's Check yourself")
		case slices.Contains(resources, ""):
			return errors.New("WithGuard was given a resource without a name")
		}
		s.Guard = &contract.Guard{Guard: g, Resources: resources}
		return nil
	}}
}

// apply returns what s and options ask for together. It is called only where there are options:
// s is then allocated.
func apply(s contract.Settings, opts []Option) (contract.Settings, error) {
	for _, opt := range opts {
		if opt.apply == nil {
			return s, errors.New("an option is the zero Option: make one with a function such as WithTTL")
		}
		if err := opt.apply(&s); err != nil {
			return s, err
		}
	}
	return s, nil
}

// given is an option that asks for all that s asks for. So whoever has parsed options hands
// them on without parsing them again.
func given(s contract.Settings) Option {
	return Option{func(to *contract.Settings) error { return lay(s, to) }}
}

// lay lays what s asks for over to.
func lay(s contract.Settings, to *contract.Settings) error {
	switch {
	case s.Shared && to.Slots > 0, to.Shared && s.Slots > 0:
		return errTwoKinds
	case s.Guard != nil && to.Guard != nil:
		return errors.New("WithGuard was given twice")
	}
	to.TTL, to.Wait = cmp.Or(s.TTL, to.TTL), cmp.Or(s.Wait, to.Wait)
	to.MaxHold, to.MinHold = cmp.Or(s.MaxHold, to.MaxHold), cmp.Or(s.MinHold, to.MinHold)
	to.MinValidity, to.Holder = cmp.Or(s.MinValidity, to.MinValidity), cmp.Or(s.Holder, to.Holder)
	to.Shared, to.Slots = to.Shared || s.Shared, cmp.Or(s.Slots, to.Slots)
	to.NoRenewal, to.Alone = to.NoRenewal || s.NoRenewal, to.Alone || s.Alone
	to.Guard = cmp.Or(s.Guard, to.Guard)
	to.Observers = append(to.Observers, s.Observers...)
	return nil
}

// agree returns an error if two options contradict each other. While no TTL is known, because a
// wrapper of somebody's may have a default of its own, it says nothing of what needs one.
func agree(s *contract.Settings, name string) error {
	valid := time.Duration(math.MaxInt64)
	if s.TTL > 0 {
		valid = s.TTL - contract.Drift(s.TTL)
	}
	switch {
	case s.MinValidity != nil && *s.MinValidity >= valid:
		return fmt.Errorf("minimum validity %v cannot be met with a TTL of %v: it leaves %v after the allowance for clock drift", *s.MinValidity, s.TTL, valid)
	case s.MaxHold > 0 && s.MinValidity != nil && *s.MinValidity > 0 && s.MaxHold <= *s.MinValidity:
		return fmt.Errorf("maximum hold %v is not over the minimum validity of %v: no lock could have both", s.MaxHold, *s.MinValidity)
	case s.MaxHold > 0 && s.MinHold > s.MaxHold:
		return fmt.Errorf("minimum hold %v is over the maximum hold of %v", s.MinHold, s.MaxHold)
	case s.MinHold > 0 && s.Shared:
		return errors.New("WithMinHold works with exclusive locks only, and not with WithShared")
	case s.MinHold > 0 && s.Slots > 0:
		return errors.New("WithMinHold works with exclusive locks only, and not with WithSlots")
	case s.Slots > 0 && s.Guard != nil && len(s.Guard.Resources) > 0:
		return fmt.Errorf("WithGuard with slots claims %q and the like, so name no resources: the tokens of those who have different slots are not in order, and no guard can protect what they share", SlotResource(name, 0))
	case s.NoRenewal && s.MinHold >= valid:
		return fmt.Errorf("minimum hold %v does not fit into the validity of %v, which is all that a lock without renewal has", s.MinHold, valid)
	}
	return nil
}

// thisProcess is the default text for WithHolder.
var thisProcess = sync.OnceValue(func() *string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	text := fmt.Sprintf("process %d on %.200s", os.Getpid(), host)
	return &text
})
