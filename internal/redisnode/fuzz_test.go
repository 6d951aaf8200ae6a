package redisnode

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/hashslot"
)

// slotOf is the rule of the Redis Cluster specification, written down once more: what is hashed
// is the text between the first brace and the next closing one, if there is any.
func slotOf(key string) uint16 {
	_, rest, found := strings.Cut(key, "{")
	if tag, _, closed := strings.Cut(rest, "}"); found && closed && tag != "" {
		return hashslot.Slot(tag)
	}
	return hashslot.Slot(key)
}

// A name's keys lie in one slot of a Cluster. No other name has any of them, for it can be read
// from the counter's key, and no name is refused but those that could be such keys.
func FuzzNameHasKeysOfItsOwn(f *testing.F) {
	for _, name := range []string{"invoices/42", "{a}", "{a}b", "a}b", "{}", "}", "{", "a{}b{c}", "lockstile:t:{a}", "t:{a}", "{a}:{a}", "{a}\x01:"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		keys, err := NewKeys(name)
		if reserves := strings.HasPrefix(name, "lockstile:"); reserves != (err != nil) {
			t.Fatalf("%q: %v", name, err)
		} else if reserves || name == "" {
			return
		}
		seen := []string{name}
		for at := lastKey; at <= ownKey; at++ {
			key := keys.text(at)
			if slotOf(key) != slotOf(name) || !strings.HasPrefix(key, "lockstile:") || slices.Contains(seen, key) {
				t.Errorf("%q has the key %q, of slot %d, and lies in slot %d", name, key, slotOf(key), slotOf(name))
			}
			seen = append(seen, key)
		}
		if back, ok := keysOfCounter(keys.text(lastKey)); !ok || back.Lock != name {
			t.Errorf("the counter of %q is %q, from which %q is read", name, keys.text(lastKey), back.Lock)
		}
		if back, ok := keysOfCounter(name); ok {
			t.Errorf("%q is a lock, and taken for the counter of %q", name, back.Lock)
		}
	})
}

// replies reads a reply from bytes, in a form that is shorter than the protocol's: numbers,
// texts, nothing, and lists of them.
type replies struct{ rest []byte }

func (r *replies) next(depth int) any {
	if len(r.rest) == 0 {
		return nil
	}
	kind := r.rest[0]
	r.rest = r.rest[1:]
	switch kind {
	case ':':
		var b [8]byte
		r.rest = r.rest[copy(b[:], r.rest):]
		return int64(binary.BigEndian.Uint64(b[:]))
	case '$':
		text, rest, _ := strings.Cut(string(r.rest), "\n")
		r.rest = []byte(rest)
		return text
	case '*':
		if len(r.rest) == 0 || depth > 3 {
			return []any{}
		}
		list := make([]any, r.rest[0]%12)
		r.rest = r.rest[1:]
		for i := range list {
			list[i] = r.next(depth + 1)
		}
		return list
	}
	return nil
}

// said is replies backwards.
func said(reply any) []byte {
	switch reply := reply.(type) {
	case int64:
		return binary.BigEndian.AppendUint64([]byte(":"), uint64(reply))
	case string:
		return []byte("$" + reply + "\n")
	case []any:
		b := []byte{'*', byte(len(reply))}
		for _, one := range reply {
			b = append(b, said(one)...)
		}
		return b
	}
	return []byte{'_'}
}

// requested returns requests of each kind.
func requested(t testing.TB) (all []*driver.Request) {
	for _, opts := range [][]locker.Option{nil, {locker.WithShared()}, {locker.WithSlots(3)}} {
		req, err := driver.NewRequest(nil, "x", opts...)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, req)
	}
	return all
}

// Whatever a server answers to a request for the lock is an error, or tokens that it could
// have counted up to and a slot that there is, or a wait that is neither negative nor endless.
func FuzzAnswerToARequestForTheLock(f *testing.F) {
	for _, reply := range []any{
		int64(0), int64(1), int64(-1), int64(1 << 52), int64(math.MaxInt64), "OK", nil,
		[]any{int64(-1)}, []any{int64(3)}, []any{int64(7), int64(2)}, []any{int64(7), int64(3)}, []any{int64(7), int64(-1)}, []any{int64(-7), int64(-1)},
		[]any{int64(100), int64(2), int64(5)}, []any{int64(math.MaxInt64), int64(-2), int64(5)}, []any{"1", int64(2)},
	} {
		f.Add(said(reply))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		reply := (&replies{b}).next(0)
		for _, req := range requested(t) {
			s, err := standing(req, reply)
			last := s.First + uint64(s.Count) - 1
			switch {
			case err != nil && s != Standing{}:
				t.Errorf("%v: %v, and %+v", reply, err, s)
			case err != nil:
			case s.First == 0:
				if look := s.NextLook(); s.Left < 0 || s.Ahead < 0 || look < 0 || s.Count != 0 {
					t.Errorf("%v: taken: %+v, look in %v", reply, s, look)
				}
			case last >= 1<<53 || s.Count != req.Tokens(Tokens):
				t.Errorf("%v: tokens %d to %d", reply, s.First, last)
			case (req.Kind == locker.KindSlots) != (s.Slot >= 0) || s.Slot >= max(req.Slots, 1):
				t.Errorf("%v: slot %d of %d", reply, s.Slot, req.Slots)
			}
		}
	})
}

// Whatever a node answers when it is to raise its counter is an error, or no number below the one
// that it is raised to.
func FuzzAnswerToARaise(f *testing.F) {
	for _, reply := range []any{int64(-1), int64(0), int64(9), int64(10), int64(11), int64(math.MinInt64), int64(math.MaxInt64), "10", nil} {
		f.Add(uint64(10), said(reply))
	}
	f.Fuzz(func(t *testing.T, first uint64, b []byte) {
		reply := (&replies{b}).next(0)
		if number, err := raised(first, reply); err == nil && (number < first || number >= 1<<53) || err != nil && number != 0 {
			t.Errorf("%v, to be raised to %d: %d, %v", reply, first, number, err)
		}
	})
}

// Whatever a server answers to a release, only a number says that the lock was given back.
func FuzzAnswerToARelease(f *testing.F) {
	for _, reply := range []any{int64(0), int64(1), int64(-1), int64(-2), "OK", "QUEUED", nil, []any{}, []any{int64(0)}} {
		f.Add(said(reply), true)
		f.Add(said(reply), false)
	}
	f.Fuzz(func(t *testing.T, b []byte, before bool) {
		reply := (&replies{b}).next(0)
		code, number := reply.(int64)
		err := released(reply, before)
		if gave := number && (code >= 0 || code == -1 && before); gave != (err == nil) || !number && errors.Is(err, locker.ErrLost) {
			t.Errorf("%v, sent before: %t: %v", reply, before, err)
		}
	})
}

// What a client of another library has put under a name may look like ours.
func TestNumbersThatWereNeverWrittenAreNotShown(t *testing.T) {
	for stored, want := range map[string]fencing.Token{"3 v 1 me": 0, "63 v 1 me": 0, "64 v 1 me": 1, "163 v 100 me": 100, "163": 163, "": 0} {
		if token, _, _ := lastGrant(stored); token != want {
			t.Errorf("the last grant %q has the token %d, want %d", stored, token, want)
		}
	}
	for value, want := range map[string]locker.Kind{"#v": locker.KindShared, "1#v": locker.KindSlots, "0#v": locker.KindExclusive, "-1#v": locker.KindExclusive, "x#v": locker.KindExclusive, "1": locker.KindExclusive} {
		if kind, _ := kindOf(value); kind != want {
			t.Errorf("the value %q is taken for one of a lock that is %v, want %v", value, kind, want)
		}
	}
}

// Whatever a server answers to a look is an error, or a lock that makes sense to people.
func FuzzAnswerToALook(f *testing.F) {
	value := strings.Repeat("v", valueSize)
	for _, reply := range []any{
		[]any{"", int64(-2), "", int64(0), []any{}, []any{}, "0"},
		[]any{value, int64(900), "163 " + value + " 100 me", int64(2), []any{}, []any{}},
		[]any{"-" + value, int64(math.MaxInt64), "3 " + value + " 100 me", int64(-2), []any{}, []any{}},
		[]any{"#lockstile", int64(900), "7", int64(0), []any{"#" + value, "900", "?#" + value, "9"}, []any{"7 -1 me", ""}, "0"},
		[]any{"3#lockstile", int64(900), "7", int64(0), []any{"3#" + value, "9223372036854775807", "-3#" + value, "5"}, []any{"7 9 me", nil}, "12"},
		[]any{nil, nil, nil, nil, nil, nil, nil}, []any{}, []any{"", int64(-2), "", int64(0), []any{"odd"}, []any{}, nil},
	} {
		f.Add(said(reply))
	}
	keys, err := NewKeys("x")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		reply := (&replies{b}).next(0)
		v, err := view(keys, reply)
		switch {
		case err != nil:
			return
		case v.Waiters < 0 || v.TimeLeft < 0 || v.Slots < 0 || v.Held != (len(v.Holds) > 0) || v.Kind > locker.KindSlots:
			t.Errorf("%v: %+v", reply, v)
		}
		for _, h := range v.Holds {
			if h.TimeLeft < 0 || h.TimeLeft > v.TimeLeft || h.Slot < -1 || h.Kind == locker.KindExclusive && len(v.Holds) > 1 {
				t.Errorf("%v: %+v, of %+v", reply, h, v)
			}
		}
	})
}
