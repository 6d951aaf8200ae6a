// Package local implements [locker.Locker] between the processes of one host,
// by kernel file locks. It needs no server.
//
//	locks, err := local.New("/run/app")
//
// Use it for processes of one host that share a directory, as one Unix user. The kernel frees the lock
// of a process that ends, in whatever way, at once. Nobody else gets it while its holder is paused, so
// writes need no guard. (A lock with [locker.WithMaxHold] or [locker.WithoutRenewal] is another matter.)
// The order of waiters is not promised. Shared locks and slots are there on Linux
// alone. It does not work on Windows.
//
// The directory must exist, on a local file system, where nobody cleans up.
//
// # Guarantees
//
// At most one holder at a time, whatever clocks do and however long a process is
// paused: the kernel keeps the lock until the process gives it back or ends. There can
// be two only if somebody takes the lock by force ([Locker.Break]) or deletes its file,
// until the old holder notices that. A lock that ends by itself ([locker.WithoutRenewal],
// [locker.WithMaxHold]) may end between its holder's look at it and the write: that write
// comes late, and only its token tells.
//
// The file of a lock keeps the last token. A grant has 64 tokens, or 8 where the file's
// are ahead of the clock, and is returned only when the last of them is on the disk. The
// first is one more than the last of the grant before, or this machine's clock in
// microseconds if that is ahead. So tokens increase even when the file was deleted (a
// directory in memory is empty after a reboot), unless the clock goes back at the same
// time, or the lock is granted again within 64 µs of the grant before. A damaged file is
// an error and is never repaired behind your back.
//
// Programs that clean up directories for temporary files delete what looks old, and the
// file of a lock that is held for days looks old. On Linux the files have the sticky bit:
// systemd-tmpfiles leaves those alone, also in $XDG_RUNTIME_DIR. Others do not (tmpreaper,
// tmpwatch, those of macOS and the BSDs, a find in a cron job): make them leave the
// directory out, or keep locks where nobody cleans up. All of them may remove a directory
// in which no name was ever locked; then locking in it fails.
//
// On Linux there are shared locks and slots. The numbers of their holders come from the same
// counter, and are drawn where nobody can get the lock alone: a reader's number is greater
// than those of all earlier writers, and smaller than those of all later ones. While other
// holders live, a number need not be on the disk itself: the end of a range of numbers is,
// and their lives show that the system has not crashed since. How many slots there are is
// known while anybody holds one or waits for one. No holder of a slot keeps others from a
// smaller one that is free.
//
// The order in which processes are served is not promised. A newcomer lets those who
// wait try first. Goroutines of one Locker pass the lock on to each other in memory, in
// order, up to 64 times and for 25 ms at most, before other processes have their chance.
// A writer that waits keeps later readers out. Readers that have waited while somebody had
// the lock alone do not leave it to the next writer: both have the same chance.
//
// # Losing a lock
//
// The lock of a process that ends, in whatever way, is free at once. Children
// that it has started do not keep it. A lock has no lease and is held until it
// is unlocked, except with [locker.WithoutRenewal] (until the end of its TTL) or
// [locker.WithMaxHold]. It is lost if it was broken or its file was deleted: the
// holder looks every third of the TTL, and when it gives the lock back. After Unlock the
// process keeps the lock for the rest of [locker.WithMinHold]: it is free early if the process ends.
//
// Waiters look every 1 to 4 ms, one per process and name. They look less often where a Locker waits
// for some 32 names or more, or where as many slots are taken: about every 40 ms for one of 512.
// A waiter that is stopped keeps nothing that others need, unless it is stopped in the moment of
// its first look, or of its grant. What it waits for is left to it for a quarter of a second;
// if it is a writer, readers stay out for that long after the last reader has left.
//
// If ctx ends while a write waits for the disk, Lock, TryLock and Break return all the same, a
// quarter of a second later at most. The error of Lock and TryLock is a
// [locker.ErrOutcomeUnknown] if the lock was about to be granted and the disk has not answered
// by then: nobody has it, and others get it when the disk answers.
//
// # Clocks
//
// Exclusion depends on no clock. No token is less than the wall clock in microseconds. The
// end of a TTL or of WithMaxHold is by the holder's clock of elapsed time.
//
// # Requirements
//
// Linux (open file description locks), macOS or a BSD (flock). Elsewhere [New]
// returns an error. On the BSDs and macOS there are exclusive locks alone, waiters are not
// counted, and a newcomer does not let those of other processes try first.
//
// Other programs that lock the whole file with the same call of the system exclude all kinds of
// locks, and are excluded by them: on Linux fcntl (lockf), on the BSDs and macOS flock. Linux
// keeps the two apart, so flock(1) and a Locker do not see each other there.
//
// A directory on a local file system with hard links. Over a network (NFS, CIFS,
// FUSE) locks may reach this host alone or nobody at all, and break with the
// connection: use a backend with a server there. All processes run as one user,
// or as root: files are made for their owner alone. Each held lock and each name
// waited for takes one descriptor. Files stay when locks are given back, 8 kB for every name
// and 1 kB more for each who has shared it, or had a slot, at the same time as others: a few
// more where there are more than 64 of them. Nobody removes files; delete one only when nobody uses its lock.
package local

import (
	"errors"
	"fmt"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/internal/lockdir"
)

// Locker grants locks on one host. It implements [locker.Locker], [locker.Inspector],
// [locker.Breaker] and [locker.Lister].
//
// TryLock: if the lock is free and other processes wait for it, they have a quarter of a
// second to take it: those that do not are paused. A reader leaves it to writers alone.
// TryLock of a shared lock or a slot waits, for ten seconds at most, while others are being
// granted theirs: on a slow disk that takes a while, and there may be room for both. TryLock
// of an exclusive lock does not wait for them: it is taken.
//
// Inspect makes no file. A holder that has not written its tokens yet is shown with the text
// and the token of one before it. List looks at each file in the directory.
//
// Break replaces the file of the lock, so the old holders keep the kernel's locks on a file
// that nobody else opens. They learn of that at their next look, after a third of their TTL
// at most, with the reason ReasonForced. After an error the lock may have been broken or not.
// With BreakHolder one of those who share a lock or have slots is marked in the file, and
// others lock it beside what that one still has.
//
// Close ends the waiting: waiters get [locker.ErrClosed]. Locks that are held stay held and
// unlockable.
type Locker struct {
	driver.Methods
	store *store
}

// New returns a Locker that keeps its files in dir, which must exist and be
// writable ([DefaultDir] makes one). Everybody who can write there can break the
// locks. Two Lockers exclude each other if they have the same directory, in one
// process as well.
func New(dir string) (*Locker, error) {
	if dir == "" {
		return nil, errors.New("local: no directory was given: DefaultDir has one")
	}
	path, err := lockdir.Find(dir)
	if err != nil {
		return nil, fmt.Errorf("local: %w", err)
	}
	s := &store{dir: path, busy: make(chan struct{}, mostBusy), breaking: make(chan struct{}, 1)}
	return &Locker{driver.New("local", s, driver.Options{}), s}, nil
}

// Guarantees implements [locker.Locker]. They are the same for every Locker, the
// zero one included.
func (*Locker) Guarantees() locker.Guarantees { return promised }
