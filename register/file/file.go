// Package file implements [locker.Locker] on files in a directory: locks with a TTL between the processes of one machine, without a
// server.
//
//	locks, err := file.New("/var/lib/app/locks")
//
// A lock is a file that says who has it, and not something of a process. So it has a TTL, is there after its process
// has ended, and needs a guard for its writes, like a lock on a server. Where a lock should end with its process, use package local, which is
// quicker and whose holder may be paused. The two refuse each other's files.
//
// All that is said in package register holds here. The directory must exist, on a local file system, where nobody cleans up. It works
// on Linux, macOS and the BSDs.
//
// # Guarantees
//
// At most one holder believes in a lock, if it is not suspended between its look at the lock and its write. A record is on the
// disk before a lock is granted. Tokens increase, also after a crash of the machine. If a file was deleted, they go on from the
// machine's clock in microseconds.
//
// Waiters look at the file every 5 ms, or less often where a process waits for more than 32 names. That takes some 4 % of a processor
// for each waiting process.
//
// # Losing a lock
//
// As package register says: a holder that has not written for its TTL loses the lock. A disk that is full can make that happen, because a
// write needs a new file. One spare file in the directory is given up for renewals and releases, so they go on for as long as no other program takes
// its room.
//
// A process that is stopped in the middle of a write keeps others from writing to the same lock's file until it goes on or ends. They get errors.
//
// # Clocks
//
// On Linux, a record's age is counted on the clock that runs on while the machine is suspended. A record from before the machine's last start
// is as old as that, or as its file by the wall clock less five seconds, whichever is less. Containers that hide the machine's
// boot_id (systemd-nspawn) know each other's records by the wall clock alone. Elsewhere records have the wall clock of who wrote them.
//
// # Requirements
//
// The directory is on a file system of this machine with hard links. On Linux [New] refuses those of a network, and others whose locks may reach
// one machine alone (NFS, CIFS, FUSE, virtiofs, 9P and so on). All processes run as one user, or as root: files are for the directory's owner alone. If
// a link leads to the directory, it must not be changed while programs run: they would have different locks.
//
// Each name keeps its file. If somebody deletes the file of a lock that is held, or is being asked for, a second holder gets in. If somebody
// restores it from a backup, its tokens go back: programs that clean up directories must leave this one out. On Linux the files have the sticky bit, which
// systemd-tmpfiles respects. Files that begin with ".new-" and are older than a day may go: processes left them that were killed.
package file

import (
	"cmp"
	"context"
	cryptorand "crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/internal/lockdir"
	"github.com/lockstile/locker/register"
)

// New returns a Locker that keeps its files in dir, which must exist and be writable. Everybody who can write there can break the
// locks. Close ends the waiting, and closes nothing.
func New(dir string) (*register.Locker, error) {
	s, err := newStore(dir)
	if err != nil {
		return nil, fmt.Errorf("file: %w", err)
	}
	return register.New(s, s.options())
}

// Guarantees are those of every Locker that [New] returns.
func Guarantees() locker.Guarantees {
	l, err := register.New(&store{}, (&store{}).options())
	if err != nil {
		panic(err)
	}
	return l.Guarantees()
}

// store is the [register.Store]. The kernel's lock on a file is held while the file is replaced by a new one. Who reads needs no
// lock: a file never changes once it has its name.
type store struct {
	dir      string
	clock    clock
	busy     chan struct{} // has one entry for each call that waits for the disk
	watching atomic.Int64
}

const (
	// mostBusy is how many calls may wait for the disk at once: each that was given up keeps a thread.
	mostBusy = 64
	// lookTime is how long a watch pauses between two looks.
	lookTime = 5 * time.Millisecond
	// most is the largest file.
	most = register.DefaultLimit + 8<<10
	// clockStep is by how much the wall clock may have been set since a record was written.
	clockStep = 5 * time.Second
)

// These are variables so that tests can see, or say, what the kernel does.
var (
	fileSystemOf = lockdir.FileSystemOf
	flock        = lockdir.Flock
	openFile     = lockdir.Open
)

func newStore(dir string) (*store, error) {
	if dir == "" {
		return nil, errors.New("no directory was given")
	}
	path, err := lockdir.Find(dir)
	if err != nil {
		return nil, err
	}
	if system, err := fileSystemOf(path); err == nil && system.Kind == lockdir.Network {
		return nil, fmt.Errorf("locks cannot be kept in %s, which is on %s: the kernel's locks may reach this machine alone there, and break with the connection: "+
			"use a directory on a local disk, or between machines a backend with a server", dir, system.Name)
	}
	return &store{dir: path, clock: newClock(), busy: make(chan struct{}, mostBusy)}, nil
}

func (s *store) options() register.Options {
	return register.Options{Backend: "file", Age: hasClock, Tokens: locker.ForwardClock, NoProbe: true}
}

func (s *store) path(name string) string { return filepath.Join(s.dir, lockdir.FileName(name)) }

// stamp is the last line of a file, behind the record.
type stamp struct {
	Name string `json:"name"`
	Boot string `json:"boot,omitempty"`      // of the machine
	At   int64  `json:"at,string,omitempty"` // on its clock, in nanoseconds, when the write began
}

// content is what a file has.
type content struct {
	register.Entry
	stamp
}

// Get implements [register.Store].
func (s *store) Get(ctx context.Context, name string) (register.Entry, error) {
	return driver.Within(ctx, s.busy, func() (register.Entry, error) {
		c, err := s.load(s.path(name))
		if errors.Is(err, fs.ErrNotExist) {
			_, err = os.Stat(s.dir) // without the directory nobody knows who has what
		}
		return c.Entry, refusal(err)
	})
}

func (s *store) load(path string) (content, error) {
	f, info, err := openFile(path, os.O_RDONLY)
	if err != nil {
		return content{}, err
	}
	defer f.Close() // nothing was written
	return s.read(f, info)
}

func (s *store) read(f *os.File, info os.FileInfo) (c content, err error) {
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return c, refusal(err)
	}
	body, line, ok := cutLast(text)
	if !ok || json.Unmarshal(line, &c.stamp) != nil || c.Name == "" {
		return c, driver.Refused(fmt.Errorf("%s %w", f.Name(), errForeign))
	}
	c.Entry = register.Entry{Record: body, Version: version(text), Age: s.clock.age(c.stamp, info)}
	return c, nil
}

var errForeign = errors.New("is no file of this package, and is left as it is: it may be damaged, or of package local (local:DIR), which needs a directory of its own")

// cutLast cuts a text at the end of its last line but one.
func cutLast(text []byte) (before, last []byte, ok bool) {
	t := strings.TrimSuffix(string(text), "\n")
	i := strings.LastIndexByte(t, '\n')
	if i < 0 || len(t) == len(text) {
		return nil, nil, false
	}
	return text[:i], text[i+1 : len(t)], true
}

// version is a hash of all that is in a file. No two records are alike.
func version(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// Swap implements [register.Store]. While another process writes, it tries again, and keeps nobody from the disk meanwhile.
func (s *store) Swap(ctx context.Context, name, old string, record []byte) (string, error) {
	path := s.path(name)
	for waits := false; ; waits = true {
		next, err := driver.Within(ctx, s.busy, func() (string, error) {
			line, err := json.Marshal(s.clock.stamp(name))
			if err != nil {
				return "", err
			}
			text := append(append(append([]byte{}, record...), '\n'), append(line, '\n')...)
			if old == "" {
				err = s.create(path, text)
			} else {
				err = s.replace(path, old, text)
			}
			if err == nil {
				s.keepSpare() // the room of the file that was replaced is free by now
			}
			return version(text), err
		})
		switch {
		case waits && err != nil && errors.Is(err, context.Cause(ctx)):
			return "", fmt.Errorf("another process is writing to %s, or was stopped while it did: %w", path, err)
		case !errors.Is(err, errWriting):
			return next, err
		}
		pause(ctx)
	}
}

var errWriting = errors.New("another process is writing")

// pause waits for a moment, or until ctx ends.
func pause(ctx context.Context) {
	select {
	case <-time.After(time.Millisecond + rand.N(3*time.Millisecond)):
	case <-ctx.Done():
	}
}

// create makes the first file of a name.
func (s *store) create(path string, text []byte) error {
	if _, err := os.Lstat(path); err == nil {
		return register.ErrChanged
	}
	temp, err := lockdir.NewTemp(s.dir, text)
	if err != nil {
		return refusal(err)
	}
	defer temp.Close() // it was synced
	err = os.Link(temp.Name(), path)
	_ = os.Remove(temp.Name()) // a name less, of a file that nobody looks for
	switch {
	case errors.Is(err, fs.ErrExist):
		return register.ErrChanged
	case errors.Is(err, syscall.EPERM) || errors.Is(err, errors.ErrUnsupported):
		return driver.Refused(fmt.Errorf("the file system has to have hard links: %w", err))
	case err != nil:
		return refusal(err)
	}
	return lockdir.SyncDir(s.dir)
}

// replace puts text in the place of the file with this version.
func (s *store) replace(path, old string, text []byte) error {
	f, info, err := openFile(path, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return register.ErrChanged
	}
	if err != nil {
		return refusal(err)
	}
	defer f.Close() // which unlocks it
	if ok, err := flock(f, lockdir.Exclusive); err != nil || !ok {
		return cmp.Or(err, errWriting)
	}
	c, err := s.read(f, info)
	if err != nil {
		return err
	}
	there, err := os.Lstat(path)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return refusal(err)
	case err != nil || !os.SameFile(info, there) || c.Version != old: // another file has this name: it was replaced before we had the lock
		return register.ErrChanged
	}
	temp, err := lockdir.NewTemp(s.dir, text)
	for tries := 0; full(err) && tries < 50; tries++ { // somebody else may have the room of the spare file just now
		if os.Remove(s.spare()) != nil {
			time.Sleep(rand.N(5 * time.Millisecond))
		}
		temp, err = lockdir.NewTemp(s.dir, text)
	}
	if err != nil {
		return refusal(err)
	}
	defer temp.Close() // it was synced
	if err := os.Rename(temp.Name(), path); err != nil {
		_ = os.Remove(temp.Name()) // the error is that of the rename
		return refusal(err)
	}
	return lockdir.SyncDir(s.dir)
}

func (s *store) spare() string { return filepath.Join(s.dir, ".spare") }

// keepSpare makes the spare file, unless it is there and whole. It is as large as the largest record, and no file system can make it smaller.
func (s *store) keepSpare() {
	if info, err := os.Stat(s.spare()); err == nil && info.Size() == most {
		return
	}
	noise := make([]byte, most)
	_, _ = cryptorand.Read(noise) // never fails
	temp, err := lockdir.NewTemp(s.dir, noise)
	if err != nil {
		return
	}
	if os.Rename(temp.Name(), s.spare()) != nil {
		_ = os.Remove(temp.Name())
	}
	_ = temp.Close()
}

func full(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// refusal marks what lasts until somebody does something about it.
func refusal(err error) error {
	for _, lasting := range []error{fs.ErrPermission, fs.ErrNotExist, fs.ErrInvalid, syscall.EROFS, syscall.ELOOP, syscall.ENXIO, syscall.ENOTDIR} {
		if full(err) || errors.Is(err, lasting) {
			return driver.Refused(err)
		}
	}
	return err
}

// Watch implements [register.Watcher].
func (s *store) Watch(ctx context.Context, name string, tell func(register.Entry)) error {
	s.watching.Add(1)
	defer s.watching.Add(-1)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for seen := "none"; ; {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
		}
		e, err := s.Get(ctx, name)
		if err != nil {
			return err
		}
		if e.Version != seen {
			seen = e.Version
			tell(e)
		}
		timer.Reset(lookTime * time.Duration(1+s.watching.Load()/32))
	}
}

// List implements [register.Lister]. It looks at each file in the directory.
func (s *store) List(ctx context.Context, prefix string) (map[string]register.Entry, error) {
	return driver.Within(ctx, s.busy, func() (map[string]register.Entry, error) {
		files, err := os.ReadDir(s.dir)
		if err != nil {
			return nil, refusal(err)
		}
		entries := make(map[string]register.Entry)
		for _, file := range files {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			c, err := s.listed(file)
			if err != nil {
				return nil, refusal(err)
			}
			if c.Name != "" && lockdir.FileName(c.Name) == file.Name() && strings.HasPrefix(c.Name, prefix) {
				entries[c.Name] = c.Entry
			}
		}
		return entries, nil
	})
}

// listed returns what a file has, or nothing if it is none of ours, or gone.
func (s *store) listed(file fs.DirEntry) (c content, err error) {
	if !file.Type().IsRegular() || filepath.Ext(file.Name()) != lockdir.Suffix {
		return c, nil
	}
	c, err = s.load(filepath.Join(s.dir, file.Name()))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errForeign) {
		return content{}, nil
	}
	return c, err
}
