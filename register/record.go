package register

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
)

// format is the version of the records' layout. A record of another one is left untouched.
const format = 1

// maxNumber is the greatest number that a record may have: beyond it there would be no room for a grant's tokens.
const maxNumber = 1 << 62

// record is all that is known of a name. It is JSON, which people and other languages can read. Numbers of 64 bits are strings,
// for not every language carries them exactly.
type record struct {
	Format int    `json:"lockstile"`
	Name   string `json:"name"` // a store may take two names for one
	// Order is one more with every write. Two records with the same Order may still differ: after a backup was restored, it
	// counts from an earlier write again.
	Order uint64  `json:"order,string"`
	Nonce string  `json:"nonce"`          // of this write alone
	Wall  int64   `json:"wall,omitempty"` // the writer's wall clock in Unix milliseconds, where the store has no Age
	Last  number  `json:"last"`           // the greatest number that was granted
	Holds []entry `json:"holds,omitempty"`
	Queue []entry `json:"queue,omitempty"`
	// Freed are numbers of holders that have released their locks, and Broken of those whose locks were broken, the latest last.
	Freed  []number `json:"freed,omitempty"`
	Broken []number `json:"broken,omitempty"`
}

// entry is one attempt: a place in the queue, or a hold.
type entry struct {
	ID    string `json:"id"`
	Beat  string `json:"beat"`           // the nonce of the write that was its last heartbeat; "" is that of the next write
	TTL   int64  `json:"ttl"`            // in milliseconds, like all times here
	Idle  int64  `json:"idle,omitempty"` // for how long at least the beat was the same already when this was written
	Kind  string `json:"kind"`
	Slots int    `json:"slots,omitempty"`
	Text  string `json:"text,omitempty"`

	Claim int64 `json:"claim,omitempty"` // how long a waiter takes to notice that it is its turn, and to claim the lock

	Number number `json:"number,omitzero"`
	Slot   int    `json:"slot,omitempty"`
	Kept   bool   `json:"kept,omitempty"` // it was released, and nobody else gets it before its TTL is over
}

// number is a token, as a string.
type number uint64

// MarshalText implements [encoding.TextMarshaler].
func (n number) MarshalText() ([]byte, error) { return strconv.AppendUint(nil, uint64(n), 10), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (n *number) UnmarshalText(text []byte) error {
	parsed, err := strconv.ParseUint(string(text), 10, 64)
	*n = number(parsed)
	return err
}

func kindOf(e *entry) locker.Kind {
	for _, k := range kinds {
		if k.String() == e.Kind {
			return k
		}
	}
	return locker.KindExclusive // parse has refused others
}

var kinds = []locker.Kind{locker.KindExclusive, locker.KindShared, locker.KindSlots}

// parse reads a record, which may be none of ours: then it is an error, and stays as it is.
func parse(name string, text []byte) (*record, error) {
	r := new(record)
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields() // a later format has them, and means something by them
	err := d.Decode(r)
	if _, more := d.Token(); err == nil && more != io.EOF {
		err = errors.New("something follows it")
	}
	if err == nil {
		err = r.check(name)
	}
	if err != nil {
		return nil, driver.Refused(fmt.Errorf("what the store has under this name is no record that this version of Lockstile can read, and is left as it is: %w", err))
	}
	return r, nil
}

// check returns an error if no program of ours can have written r.
func (r *record) check(name string) error {
	switch {
	case r.Format != format:
		return fmt.Errorf("it has the format %d, and not %d", r.Format, format)
	case r.Name != name:
		return fmt.Errorf("it is the record of %q: the store takes the two names for one", r.Name)
	case r.Order == 0 || r.Nonce == "" || r.Last > maxNumber || r.Wall < 0 || len(r.Freed) > freed || len(r.Broken) > broken:
		return errors.New("a field is out of range")
	}
	ids := make(map[string]bool)
	for i, e := range slices.Concat(r.Holds, r.Queue) {
		if ids[e.ID] || !e.possible() || !e.placed(i < len(r.Holds), r.Last) {
			return fmt.Errorf("the entry %q is out of range", e.ID)
		}
		ids[e.ID] = true
	}
	for i := range r.Holds {
		if !fits(r.Holds[:i], &r.Holds[i]) {
			return errors.New("its holders do not go together")
		}
	}
	return nil
}

// possible reports whether an entry can be one.
func (e *entry) possible() bool {
	ttl := milliseconds(e.TTL)
	known := slices.ContainsFunc(kinds, func(k locker.Kind) bool { return k.String() == e.Kind })
	return e.ID != "" && e.Beat != "" && known && (kindOf(e) == locker.KindSlots) == (e.Slots > 0) && ttl > 0 && ttl <= longest &&
		e.Idle >= 0 && milliseconds(e.Idle) <= ttl+driver.Drift(ttl) && e.Claim >= 0 && milliseconds(e.Claim) <= longest
}

// placed reports whether an entry has what a hold has, or what a place has.
func (e *entry) placed(held bool, last number) bool {
	if held {
		return 0 < e.Number && e.Number <= last && 0 <= e.Slot && e.Slot < max(e.Slots, 1) && e.Claim == 0
	}
	return e.Number == 0 && e.Slot == 0 && !e.Kept
}

// clone returns a copy that can be changed.
func (r *record) clone() *record {
	c := *r
	c.Holds, c.Queue, c.Freed, c.Broken = slices.Clone(r.Holds), slices.Clone(r.Queue), slices.Clone(r.Freed), slices.Clone(r.Broken)
	return &c
}

// next makes r the next write, in which those who are alive beat. For the others it says for how long they have not.
func (r *record) next(nonce string, alive func(e *entry) bool, idle func(e *entry) time.Duration) {
	r.Order++
	r.Nonce = nonce
	for _, entries := range [][]entry{r.Holds, r.Queue} {
		for i := range entries {
			if e := &entries[i]; e.Beat == "" || alive(e) {
				e.Beat, e.Idle = r.Nonce, 0
			} else {
				ttl := milliseconds(e.TTL)
				e.Idle = min(idle(e), ttl+driver.Drift(ttl)).Milliseconds()
			}
		}
	}
}

// encode returns the text of r.
func (r *record) encode() []byte {
	text, err := json.Marshal(r)
	if err != nil {
		panic(err) // it has only texts and numbers
	}
	return text
}
