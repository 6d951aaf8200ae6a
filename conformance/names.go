package conformance

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/lockstile/locker"
)

var nameClauses = []Clause{
	{"odd-names", "A name that is cut, changed in case or read as a pattern excludes the wrong holders, or nobody.", oddNames},
	{"bad-names", "A name that the store would change must be refused, not locked under another name.", badNames},
	{"many-names", "A program that locks a name for each order may hold a thousand at once.", manyNames},
}

// names returns names that must not be taken for each other. All of them are valid: see
// [locker.CheckName].
func names(base string) []string {
	long := base + strings.Repeat("x", locker.MaxName-len(base)-1)
	ns := []string{
		long + "1", long + "2", // they differ in the last byte that is allowed
		base, strings.ToUpper(base), strings.ToLower(base),
		strings.Repeat("ä", (locker.MaxName-len(base)-1)/2) + base, // more bytes than characters
	}
	for _, odd := range []string{
		"/", "//", "/b", "/b/", "/../b", "/.", "/..", "\\", ":", ":b", "-", "_", ".", "..", ".lock", "-0000000001",
		" ", "  ", "\t", "\n", "\r\n", "\x01", "\x7f", "\"", "'", "''", "`", ";", "; DROP TABLE locks", "$1", "?", "#", "&", "=",
		"%", "%2F", "%2f", "%00", "%s", "%%", "+", "*", "[a-z]", "{}", "{a}", "{a}b", "}{", "\\x00", "\\n",
		"é", "e\u0301", "ß", "ss", "İ", "i", "I", "日本語", "\u200b", "\u202e", "\ufeff", "🔒",
	} {
		ns = append(ns, base+odd)
	}
	return append(ns, "/"+base, "//"+base, " "+base, "../"+base, "{"+base+"}", "{"+base, "-"+base, ".", "..", "/", "*", "%", "{}", " ", "\n")
}

// oddNames holds all of them at the same time: none may exclude another. Then it finds
// every one of them taken: each must exclude itself.
func oddNames(x *trial) {
	a, b := x.locker(), x.locker()
	var held []*locker.Lock
	seen := make(map[string]bool)
	for _, name := range names("Conformance-" + suffix() + "a") {
		if seen[name] {
			x.failf("the suite's list has %.60q twice", name)
		}
		seen[name] = true
		lock, err := a.Lock(x.patient(), name)
		if err != nil {
			x.failf("Lock of %.60q, while other names are held: %w", name, err)
		}
		if lock.Name() != name {
			x.failf("the lock of %.60q says that its name is %.60q", name, lock.Name())
		}
		held = append(held, lock)
	}
	for _, lock := range held {
		x.taken(b, lock.Name(), fmt.Sprintf("of %.60q, which another client holds,", lock.Name()))
	}
	for _, lock := range held {
		x.unlock(lock)
	}
	for _, lock := range held[:len(held)-shared] {
		x.free(b, lock.Name(), fmt.Sprintf("of %.60q after unlock", lock.Name()))
	}
}

// shared is how many of the names are the same in every run: other runs on the store may
// hold them.
const shared = 8

func badNames(x *trial) {
	l := x.locker()
	for what, name := range map[string]string{
		"no name":                     "",
		"a name of 513 bytes":         strings.Repeat("n", locker.MaxName+1),
		"a name with a zero byte":     "conformance\x00name",
		"a name that ends in zero":    "conformance\x00",
		"a name that is not UTF-8":    "conformance\xff",
		"half a character at the end": "conformance\xc3",
	} {
		for verb, lock := range map[string]func() (*locker.Lock, error){
			"Lock":    func() (*locker.Lock, error) { return l.Lock(x.patient(), name) },
			"TryLock": func() (*locker.Lock, error) { return l.TryLock(x.patient(), name) },
		} {
			lock, err := lock()
			if err == nil {
				x.failf("%s of %s succeeded", verb, what)
			}
			if lock != nil || !strings.Contains(err.Error(), "name") {
				x.failf("%s of %s returned %s and error %q, want one that speaks of the name", verb, what, had(lock), err)
			}
		}
	}
}

// manyNames holds a thousand names at once, or twenty where each is a connection of the server's. A machine that stalls for longer than their
// leases, which may be as short as a session, loses them all, and rightly so. One that is so
// slow that no Unlock is confirmed leaves them to their leases. Then the clause has seen
// nothing, and tries again.
func manyNames(x *trial) {
	a, b, n := x.locker(), x.locker(), 1000
	if a.Guarantees().FreedBy == locker.FreedByConnection {
		n = 20
	}
	for range 3 {
		if x.holdMany(a, b, n) {
			return
		}
	}
	x.failf("none of %d locks was still held when the last of them was granted, or no Unlock was confirmed, three times", n)
}

// holdMany reports whether some of n locks that it has taken were held to the end, and some
// were given back.
func (x *trial) holdMany(a, b locker.Locker, n int) (seen bool) {
	base := x.name()
	locks := make([]*locker.Lock, n)
	errs := make([]error, n)
	each := func(f func(k int)) {
		var workers sync.WaitGroup
		asking := make(chan struct{}, 64) // a slow machine would answer none of a thousand questions in time, and none of those that follow
		for k := range n {
			asking <- struct{}{}
			workers.Go(func() {
				defer func() { <-asking }()
				f(k)
			})
		}
		workers.Wait()
		for k, err := range errs {
			if err != nil {
				x.failf("with %d names at once, name %d: %w", n, k, err)
			}
		}
	}
	giveBack := func(lock *locker.Lock, was string) { // behind what the crowd has still to send
		if err := x.unlockInACrowd(lock); err != nil {
			x.failf("Unlock of one of many names, %s before: %w", was, err)
		}
	}
	crowd := x.within(10 * x.h.patience) // on a busy machine the last of so many waits for long
	each(func(k int) {
		locks[k], errs[k] = x.lockSlowly(crowd, a, fmt.Sprint(base, "/", k), locker.WithTTL(2*x.longTTL()))
	})
	for k := 0; k < n; k += n / 10 {
		other, err := askSlowly(crowd, x, func() (*locker.Lock, error) { return b.TryLock(x.patient(), locks[k].Name()) })
		if locks[k].Err() != nil {
			if err == nil {
				giveBack(other, "lost")
			}
			continue
		}
		seen = true
		if !errors.Is(err, locker.ErrTaken) || other != nil {
			x.failf("TryLock of one of many names that another client holds returned %s and error %v, want ErrTaken", had(other), err)
		}
	}
	unlocked := make([]bool, n)
	unlock := func(k int) {
		err := locks[k].Unlock(x.ctx)
		unlocked[k] = err == nil
		if !tooSlow(err) && !errors.Is(err, locker.ErrLost) {
			errs[k] = err
		}
	}
	for k := range 10 {
		unlock(k) // one by one, so that a slow machine confirms some
	}
	each(unlock)
	free := 0
	for k := n - 1; k >= 0 && free < 10; k-- {
		if unlocked[k] {
			giveBack(x.lockBeforeLease(b, locks[k].Name(), "after unlock of one of many names"), "given back")
			free++
		}
	}
	return seen && free > 0
}
