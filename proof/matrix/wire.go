package matrix

import (
	"encoding/json"
	"io"
	"sync"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/proof/matrix/internal/history"
)

// order is what a worker process is told to do.
type order struct {
	ID      int           `json:"id"`
	Verb    string        `json:"verb"` // lock, try, write, add, renew, unlock, detach, resume, renew handle
	Name    string        `json:"name"`
	Lock    int           `json:"lock,omitempty"`  // write, add, renew, unlock, detach: the ID of the order that got the lock
	Kind    locker.Kind   `json:"kind,omitempty"`  // lock, try
	Slots   int           `json:"slots,omitempty"` // if Kind is KindSlots
	TTL     time.Duration `json:"ttl,omitempty"`
	Bound   time.Duration `json:"bound,omitempty"`   // of the whole request
	NoRenew bool          `json:"noRenew,omitempty"` // WithoutRenewal
	Stop    bool          `json:"stop,omitempty"`    // write, add: SIGSTOP itself between the look at the lock and the write
	Value   int           `json:"value,omitempty"`   // add: the element; 0: none
	Handle  locker.Handle `json:"handle,omitempty"`  // resume, renew handle
	Sets    *history.Sets `json:"sets,omitempty"`    // add: as they are read
	Work    time.Duration `json:"work,omitempty"`    // add: so long between the read and the write
	Careful bool          `json:"careful,omitempty"` // add: look at the lock again after that

	Looked driver.Instant `json:"looked,omitempty"` // write: the holder has looked then, and does not look again; 0: it looks now
}

// report is what a worker process says. All times are on the clock of [driver.Now], which
// the processes of a machine share.
type report struct {
	ID       int            `json:"id"` // of the order; 0 if nobody asked
	Kind     string         `json:"kind"`
	Lock     int            `json:"lock,omitempty"` // the ID of the order that got the lock
	At       driver.Instant `json:"at"`             // of a write: when the holder began to look at its lock
	Asked    driver.Instant `json:"asked,omitempty"`
	Token    uint64         `json:"token,omitempty"`
	Shared   bool           `json:"shared,omitempty"`   // it is a reader's
	NoRenew  bool           `json:"noRenew,omitempty"`  // of a grant: WithoutRenewal
	Deadline driver.Instant `json:"deadline,omitempty"` // 0: none
	Value    int            `json:"value,omitempty"`
	Sets     *history.Sets  `json:"sets,omitempty"` // that were read, or are written
	Err      string         `json:"err,omitempty"`
	Taken    bool           `json:"taken,omitempty"`
	Unknown  bool           `json:"unknown,omitempty"`
	Lost     bool           `json:"lost,omitempty"`
	Handle   locker.Handle  `json:"handle,omitempty"`  // of a lock that was detached; or of a Resume's error, for another try
	NoKind   bool           `json:"noKind,omitempty"`  // ErrUnsupported
	NoStore  bool           `json:"noStore,omitempty"` // ErrUnavailable
	Nothing  bool           `json:"nothing,omitempty"` // the error promises that nothing is held: see lockerError
	Reason   locker.Reason  `json:"reason,omitempty"`  // of the loss
	Name     string         `json:"name,omitempty"`    // of the lock; if it has slots, of what belongs to the slot
}

// What a report is about.
const (
	kindReady   = "ready"   // the worker has its Locker
	kindGranted = "granted" // a lock, of an attempt or of a Resume
	kindRefused = "refused" // no lock
	kindLost    = "lost"    // nobody asked: the lock's Lost channel closed
	kindWrite   = "write"   // nobody asked: a write that now reaches the storage
	kindWrote   = "wrote"   // the answer to the order to write
	kindFreed   = "freed"   // the answer to an unlock: Err
	kindRenewed = "renewed" // the answer to a renewal: Err

	kindDetached = "detached" // the answer to a Detach: Handle, or Err
)

// lines writes JSON, one value a line, from any goroutine.
type lines struct {
	mu  sync.Mutex
	enc *json.Encoder
}

func newLines(w io.Writer) *lines { return &lines{enc: json.NewEncoder(w)} }

func (l *lines) send(v any) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.enc.Encode(v)
}
