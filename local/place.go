package local

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/fencing"
)

// A kernel's lock on bytes of the lock file says who does what. The bytes need not be there.
// The kernel frees those of a process that has ended.
//
//   - The turn: whoever has it decides alone who gets the lock, and draws the number. That
//     is the exclusive holder, or for a moment somebody who asks, or who breaks the lock.
//   - A place for each who shares the lock or has a slot. The holder's record is in the
//     file, behind the grants.
//   - A byte for each who waits, which says for what.
//
// An exclusive lock is on the turn and on all places at once. Where a lock was broken and its
// holder lives, the kernel keeps that place: then an exclusive lock is on the turn and the
// byte behind it.
const (
	turn       = 0
	firstPlace = 2 // the byte before makes an exclusive lock longer than the turn
	mostPlaces = 1 << 16
	whole      = firstPlace + mostPlaces // bytes of an exclusive lock

	waiterBits  = 40 // waiters of one sort have so many bytes, of which each takes one by chance
	writers     = 1  // sorts: those who want an exclusive lock
	readers     = 2 + locker.MaxSlots
	firstWaiter = writers << waiterBits
	lastWaiter  = (readers+1)<<waiterBits - 1
)

// sortOf says for what a request waits. Those who want n slots have the sort 1+n.
func sortOf(req *driver.Request) int64 {
	switch req.Kind {
	case locker.KindShared:
		return readers
	case locker.KindSlots:
		return 1 + int64(req.Slots)
	}
	return writers
}

// showWaiting lets others see that we wait, and for what. Should the byte be another
// waiter's by chance, we are not counted: waiting does not depend on it.
func (f *file) showWaiting(req *driver.Request) error {
	if f.seen || f.closed || !byteRanges {
		return nil
	}
	f.seen = true
	_, err := lockBytes(f.File, sortOf(req)<<waiterBits+rand.Int64N(1<<waiterBits), 1)
	return err
}

// ahead reports whether others wait whom req leaves the lock to. A reader lets other readers
// pass. If they wait for slots that do not go with req, that is an error.
func (f *file) ahead(req *driver.Request) (bool, error) {
	last := int64(lastWaiter)
	if req.Kind == locker.KindShared {
		last = readers<<waiterBits - 1
	}
	at, _, ok, err := getLock(f.File, firstWaiter, last-firstWaiter+1)
	if n := at>>waiterBits - 1; ok && n >= 1 && n <= locker.MaxSlots && int(n) != req.Slots {
		return false, driver.Mismatch(req, locker.KindSlots, int(n))
	}
	return ok, err
}

// state reports whether others have the lock or decide about it, and whether somebody has
// it alone.
func (f *file) state() (locked, alone bool, err error) {
	locked, alone, err = f.decides()
	if err == nil && !locked {
		_, _, locked, err = getLock(f.File, firstPlace, mostPlaces)
	}
	return locked, alone, err
}

// take takes the lock as req wants it. If it is not ok, others keep it from that; alone says
// that somebody has all of it. Until draw nobody else can take any of it.
func (f *file) take(req *driver.Request) (ok, alone bool, err error) {
	if req.Kind == locker.KindExclusive {
		ok, err = lockBytes(f.File, turn, whole)
	}
	if !ok && err == nil && byteRanges {
		if ok, alone, err = f.room(req); ok && err == nil {
			ok, alone, err = f.takeTurn(req)
		}
		if ok && err == nil {
			if ok, err = f.join(req); !ok || err != nil {
				err = errors.Join(err, unlockBytes(f.File, turn, whole))
			}
		}
	}
	if ok && err == nil && f.seen { // we wait no more
		err = unlockBytes(f.File, firstWaiter, lastWaiter-firstWaiter+1)
	}
	return ok, alone, err
}

// room reports whether it is worth taking the turn for req. A waiter looks again and again, and
// takes the turn only if there may be room: a process that is stopped with the turn keeps
// everybody out. TryLock always takes it: without the turn, a holder that leaves and comes back
// during the count may be counted twice.
func (f *file) room(req *driver.Request) (ok, alone bool, err error) {
	if req.Kind == locker.KindShared {
		return true, false, nil // takeTurn asks whether somebody has it alone
	}
	if _, alone, err = f.decides(); alone || err != nil {
		return false, alone, err
	}
	full, err := f.full(req)
	return !full || !f.seen, false, err
}

// decides reports whether others have the turn, and whether the one who has it has the lock alone.
func (f *file) decides() (ok, alone bool, err error) {
	_, n, ok, err := getLock(f.File, turn, 1)
	return ok, ok && n != 1, err
}

// full reports whether those who have a place leave no room for req. A reader goes beside other readers,
// so for a reader it only says that somebody has the lock. Without the turn a record may be that of the
// place's last holder. If it does not go with req, the answer is no, and join decides.
func (f *file) full(req *driver.Request) (bool, error) {
	others, err := f.beside(req)
	left := max(1, req.Slots)
	for _, o := range others {
		if !o.known || o.slots != req.Slots {
			return false, err
		}
		if !o.broken {
			left--
		}
	}
	return left <= 0, err
}

// errTurn means that somebody else has had the turn for longer than it should take.
var errTurn = errors.New("somebody else has the turn")

// takeTurn takes the turn, unless somebody has the lock alone. Others have it for a moment,
// and if req goes with theirs it waits that long.
func (f *file) takeTurn(req *driver.Request) (ok, alone bool, err error) {
	for range 20 {
		if ok, err = lockBytes(f.File, turn, 1); ok || err != nil || req.Kind == locker.KindExclusive {
			return ok, false, err
		}
		if _, alone, err = f.decides(); alone || err != nil {
			return false, alone, err
		}
		time.Sleep(50 * time.Microsecond)
	}
	return false, false, errTurn
}

// join takes what req wants beside those who have the lock. f has the turn, so that nobody
// else takes a place, and each has written its record.
func (f *file) join(req *driver.Request) (bool, error) {
	others, err := f.beside(req)
	if err != nil {
		return false, err
	}
	used := make([]bool, req.Slots)
	for _, o := range others {
		switch {
		case !o.known:
			return false, damaged(f.path, fmt.Sprintf("the record of the place at byte %d cannot be read", o.at))
		case o.broken:
		case req.Kind == locker.KindExclusive && o.kind == locker.KindShared:
			return false, nil
		case o.kind != req.Kind || o.slots != req.Slots:
			return false, driver.Mismatch(req, o.kind, o.slots)
		case req.Kind == locker.KindSlots:
			used[o.slot] = true
		}
	}
	if req.Kind == locker.KindExclusive { // those whose locks were broken keep their places while they live
		return lockBytes(f.File, turn, firstPlace)
	}
	f.slot = 0
	for f.slot < len(used) && used[f.slot] {
		f.slot++
	}
	if f.slot == len(used) && req.Kind == locker.KindSlots {
		return false, nil
	}
	return f.takePlace()
}

// takePlace takes a free place: one that has a record already, or else the next behind them. If there
// are more than 64 records it tries 64 of them by chance, so that a crowd does not try every place.
func (f *file) takePlace() (bool, error) {
	info, err := f.Stat()
	if err != nil {
		return false, err
	}
	used := max(0, (info.Size()-fileSize)/slotSize-1) // the first record is that of the turn
	for i := range min(used, 64) {
		if used > 64 {
			i = rand.Int64N(used)
		}
		f.place = firstPlace + i
		if ok, err := lockBytes(f.File, f.place, 1); ok || err != nil {
			return ok, err
		}
	}
	for f.place = firstPlace + used; f.place < whole; f.place++ {
		if ok, err := lockBytes(f.File, f.place, 1); ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}

// place is what somebody has who shares the lock or has a slot.
type place struct {
	at    int64 // its byte
	known bool  // its record could be read, and can be true
	grant
}

// beside returns the places that decide whether req has room: all of them if it wants a slot.
// Otherwise one is enough, for all holders are of one kind; but if that one is broken, others
// may be of another kind, so all are read.
func (f *file) beside(req *driver.Request) (all []place, err error) {
	if req.Kind != locker.KindSlots {
		all, err = f.others(1)
	}
	if req.Kind == locker.KindSlots || err == nil && len(all) > 0 && all[0].broken {
		all, err = f.others(mostPlaces)
	}
	f.listed = len(all)
	return all, err
}

// others returns the places that others have, up to most of them, in order. Who has taken a place just now may
// not have written the record yet: then it is that of the holder before. With the turn, all
// are there.
func (f *file) others(most int) ([]place, error) {
	at, err := f.locked(firstPlace, whole-1, most)
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

// offset is where the record of a place is, or that of the turn.
func offset(at int64) int64 { return fileSize + max(0, at-firstPlace+1)*slotSize }

func (f *file) record(at int64) (place, error) {
	content := make([]byte, slotSize)
	n, err := f.ReadAt(content, offset(at))
	if err != nil && !errors.Is(err, io.EOF) {
		return place{}, err
	}
	g, ok := readSlot(content)
	return place{at, ok && n == slotSize && (g.kind != locker.KindSlots || g.slot < g.slots), g}, nil
}

// drawn returns the last number that was drawn of a grant which several have a part of.
func (f *file) drawn(last grant) (n fencing.Token, ok bool, err error) {
	p, err := f.record(turn)
	ok = p.known && p.last >= last.first() && p.last <= last.last
	return p.last, ok, err
}

// share draws the next number of the last grant, if somebody lives who has a place. Then the
// system has not crashed since that one drew its number, and what was written after that
// can be read, though it is not on the disk. The end of the grant is: whoever draws the first
// number of a grant writes it down after that.
func (f *file) share(last grant, req *driver.Request) (g grant, ok bool, err error) {
	if f.place == 0 || f.listed == 0 {
		return g, false, nil
	}
	n, ok, err := f.drawn(last)
	if err != nil || !ok || n == last.last {
		return g, false, err
	}
	g = last.part(n+1, req, f.slot)
	return g, true, f.settle(g)
}

// settle writes the records of the number that was drawn and of our place, if we have one,
// and gives the turn back.
func (f *file) settle(g grant) error {
	if f.place == 0 {
		return nil
	}
	f.mark = string(g.encode()[:sumSize])
	for _, at := range []int64{turn, f.place} {
		if _, err := f.WriteAt(g.encode(), offset(at)); err != nil {
			return err
		}
	}
	return unlockBytes(f.File, turn, 1)
}

// evicted returns a LostError if the lock of our place was broken.
func (f *file) evicted() error {
	b := make([]byte, sumSize)
	_, err := f.ReadAt(b, offset(f.place))
	if err == nil && string(b) != f.mark {
		err = &locker.LostError{Reason: locker.ReasonForced}
	}
	return err
}

// evict breaks the lock of the one who has a place with this number, and reports whether there
// was one. Done is false if somebody else has the turn: nothing has happened.
func (f *file) evict(number locker.Number) (broken, done bool, err error) {
	ok, err := lockBytes(f.File, turn, 1)
	if !ok || err != nil {
		return false, false, err
	}
	others, err := f.others(mostPlaces)
	for _, o := range others {
		if err != nil || !o.known || o.broken || locker.Number(o.last) != number {
			continue
		}
		o.broken = true
		if _, err = f.WriteAt(o.encode(), offset(o.at)); err == nil {
			broken = true
		}
	}
	return broken, true, err
}
