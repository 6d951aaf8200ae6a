package local

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
)

// A kernel's lock on bytes of the lock file says who does what. The bytes need not be there.
// The kernel frees those of a process that has ended.
//
//   - The turn: whoever has it decides alone who gets the lock, and draws the number. That
//     is the exclusive holder, or for a moment somebody who asks.
//   - A place for each who shares the lock or has a slot. The holder's record is in the
//     file, behind the grants. An exclusive lock is on the turn and on all places at once.
//   - A byte for each who waits, which says for what.
const (
	turn       = 0
	firstPlace = 2 // the byte before makes an exclusive lock longer than the turn alone
	mostPlaces = 1 << 16
	whole      = firstPlace + mostPlaces // bytes of an exclusive lock

	waiterBits  = 40 // waiters of one sort have so many bytes, of which each takes one by chance
	writers     = 1  // sorts: those who want an exclusive lock
	readers     = 2 + locker.MaxSlots
	firstWaiter = writers << waiterBits
	lastWaiter  = (readers+1)<<waiterBits - 1
)

// sortOf says for what a request waits. Those who want n slots have the sort 1+n.
func sortOf(req *locker.Request) int64 {
	switch req.Kind {
	case locker.Shared:
		return readers
	case locker.Slots:
		return 1 + int64(req.Slots)
	}
	return writers
}

// showWaiting lets others see that we wait, and for what. Should the byte be another
// waiter's by chance, we are not counted: waiting does not depend on it.
func (f *file) showWaiting(req *locker.Request) error {
	if f.seen || f.closed || !byteRanges {
		return nil
	}
	f.seen = true
	_, err := lockBytes(f.File, sortOf(req)<<waiterBits+rand.Int64N(1<<waiterBits), 1)
	return err
}

// ahead reports whether others wait whom req leaves the lock to. A reader lets other readers
// pass. If they wait for slots that do not go with req, that is an error.
func (f *file) ahead(req *locker.Request) (bool, error) {
	last := int64(lastWaiter)
	if req.Kind == locker.Shared {
		last = readers<<waiterBits - 1
	}
	at, _, ok, err := getLock(f.File, firstWaiter, last-firstWaiter+1)
	if n := at>>waiterBits - 1; ok && n >= 1 && n <= locker.MaxSlots && int(n) != req.Slots {
		return false, driver.Mismatch(req, locker.Slots, int(n))
	}
	return ok, err
}

// state reports whether others have the lock or decide about it, and whether somebody has
// it alone.
func (f *file) state() (locked, alone bool, err error) {
	_, n, ok, err := getLock(f.File, turn, 1)
	if err != nil || ok {
		return ok, ok && n != 1, err
	}
	_, _, ok, err = getLock(f.File, firstPlace, mostPlaces)
	return ok, false, err
}

// take takes the lock as req wants it, and reports false if somebody keeps it from that.
// Until draw nobody else can take it.
func (f *file) take(req *locker.Request) (bool, error) {
	ok, err := f.occupy(req)
	if ok && f.seen { // we wait no more
		err = unlockBytes(f.File, firstWaiter, lastWaiter-firstWaiter+1)
	}
	return ok, err
}

// errTurn means that somebody else has the turn, for a moment or with the lock.
var errTurn = errors.New("somebody else has the turn")

func (f *file) occupy(req *locker.Request) (bool, error) {
	if req.Kind == locker.Exclusive {
		if ok, err := lockBytes(f.File, turn, whole); ok || err != nil {
			return ok, err
		}
	}
	ok, err := lockBytes(f.File, turn, 1)
	if !ok && err == nil && req.Kind != locker.Exclusive {
		err = errTurn
	}
	if !ok || err != nil {
		return false, err
	}
	if ok, err = f.join(req); !ok || err != nil {
		err = errors.Join(err, unlockBytes(f.File, turn, whole))
	}
	return ok, err
}

// join takes what req wants beside those who have the lock. f has the turn, so that nobody
// else takes a place, and each has written its record.
func (f *file) join(req *locker.Request) (bool, error) {
	others, err := f.others()
	if err != nil {
		return false, err
	}
	used := make([]bool, req.Slots)
	for _, o := range others {
		switch {
		case !o.known:
			return false, damaged(f.path, fmt.Sprintf("the record of the place at byte %d cannot be read", o.at))
		case o.broken:
		case req.Kind == locker.Exclusive && o.kind == locker.Shared:
			return false, nil
		case o.kind != req.Kind || o.slots != req.Slots:
			return false, driver.Mismatch(req, o.kind, o.slots)
		case req.Kind == locker.Slots:
			used[o.slot] = true
		}
	}
	if req.Kind == locker.Exclusive {
		return f.surround(others)
	}
	f.slot = 0
	for f.slot < len(used) && used[f.slot] {
		f.slot++
	}
	f.place = firstPlace
	for _, o := range others { // they are in order
		if o.at == f.place {
			f.place++
		}
	}
	if f.slot == len(used) && req.Kind == locker.Slots || f.place == whole {
		return false, nil
	}
	return lockBytes(f.File, f.place, 1)
}

// surround locks all places but those of others, whose locks were broken: the kernel keeps
// a lock for as long as its holder lives.
func (f *file) surround(others []place) (ok bool, err error) {
	at := int64(turn)
	for _, o := range append(others, place{at: whole}) {
		if o.at > at {
			if ok, err = lockBytes(f.File, at, o.at-at); !ok || err != nil {
				return false, err
			}
		}
		at = o.at + 1
	}
	return true, nil
}

// place is what somebody has who shares the lock or has a slot.
type place struct {
	at    int64 // its byte
	known bool  // its record could be read
	grant
}

// others returns the places that others have, in order. Who has taken a place just now may
// not have written the record yet: then it is that of the holder before. With the turn, all
// are there.
func (f *file) others() ([]place, error) {
	at, err := f.locked(firstPlace, whole-1, mostPlaces)
	if err != nil || len(at) == 0 {
		return nil, err
	}
	all := make([]place, len(at))
	for i := range at {
		if all[i], err = f.record(at[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// locked returns where the locks begin that others have on bytes from first to last, up to
// most of them, in order. The kernel names any one of them, so those before it and behind it
// are looked for in turn. It calls itself twice for each.
func (f *file) locked(first, last int64, most int) ([]int64, error) {
	if most <= 0 || first > last {
		return nil, nil
	}
	at, n, ok, err := getLock(f.File, first, last-first+1)
	if err != nil || !ok {
		return nil, err
	}
	end := at + n
	if n == 0 {
		end = last + 1
	}
	all, err := f.locked(first, at-1, most-1)
	if err != nil {
		return nil, err
	}
	all = append(all, max(at, first)) // another program's may begin before
	behind, err := f.locked(end, last, most-len(all))
	return append(all, behind...), err
}

// offset is where the record of a place is.
func offset(at int64) int64 { return fileSize + (at-firstPlace)*slotSize }

func (f *file) record(at int64) (place, error) {
	content := make([]byte, slotSize)
	n, err := f.ReadAt(content, offset(at))
	if err != nil && !errors.Is(err, io.EOF) {
		return place{}, err
	}
	g, ok := readSlot(content)
	return place{at, ok && n == slotSize, g}, nil
}

// settle writes the record of our place, if we have one, and gives the turn back.
func (f *file) settle(g grant) error {
	if f.place == 0 {
		return nil
	}
	f.number = g.last
	if _, err := f.WriteAt(g.encode(), offset(f.place)); err != nil {
		return err
	}
	return unlockBytes(f.File, turn, 1)
}

// evicted returns a LostError if the lock of our place was broken.
func (f *file) evicted() error {
	p, err := f.record(f.place)
	if err == nil && (p.broken || !p.known || p.last != f.number) {
		err = &locker.LostError{Reason: locker.Forced}
	}
	return err
}

// evict breaks the locks of those who have a place with one of these numbers, and reports
// whether there were any. Done is false if somebody else has the turn: nothing has happened.
func (f *file) evict(numbers []uint64) (broken, done bool, err error) {
	ok, err := lockBytes(f.File, turn, 1)
	if !ok || err != nil {
		return false, false, err
	}
	others, err := f.others()
	for _, o := range others {
		if err != nil || !o.known || o.broken || !slices.Contains(numbers, uint64(o.last)) {
			continue
		}
		o.broken = true
		if _, err = f.WriteAt(o.encode(), offset(o.at)); err == nil {
			broken = true
		}
	}
	return broken, true, err
}
