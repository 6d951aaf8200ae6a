package locker

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/lockstile/locker/internal/contract"
)

func settings(name string, opts ...Option) (contract.Settings, error) {
	return ParseOptions(contract.Key{}, nil, name, opts)
}

func TestTheDefaultsOfARequest(t *testing.T) {
	s, err := settings("invoices/42")
	if err != nil {
		t.Fatal(err)
	}
	want := contract.Settings{TTL: 30 * time.Second, Holder: thisProcess()}
	if !reflect.DeepEqual(s, want) {
		t.Errorf("got  %+v\nwant %+v", s, want)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Skip("this machine has no name: ", err)
	}
	if got := fmt.Sprintf("process %d on %.200s", os.Getpid(), host); *s.Holder != got {
		t.Errorf("holder %q, want %q", *s.Holder, got)
	}
	if len(*s.Holder) > MaxHolder {
		t.Errorf("the default holder has %d bytes", len(*s.Holder))
	}
}

func TestOptionsChangeTheRequest(t *testing.T) {
	s, err := settings("a", WithTTL(time.Minute), WithoutRenewal(), WithMaxHold(time.Hour), WithMinValidity(time.Second), WithHolder("nightly job é"),
		WithWait(3*time.Second), WithMinHold(4*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	holder, least := "nightly job é", time.Second
	want := contract.Settings{
		TTL: time.Minute, MaxHold: time.Hour, MinValidity: &least, Holder: &holder, Wait: 3 * time.Second, MinHold: 4 * time.Second, NoRenewal: true,
	}
	if !reflect.DeepEqual(s, want) {
		t.Errorf("got  %+v\nwant %+v", s, want)
	}
}

func TestOptionsAreValidatedAndNeverClamped(t *testing.T) {
	ttl, drift := 10*time.Second, 102*time.Millisecond
	for _, c := range []struct {
		name string
		opts []Option
		says string // part of the error; "" for none
	}{
		{"ttl at its least", []Option{WithTTL(MinTTL)}, ""},
		{"ttl under its least", []Option{WithTTL(MinTTL - time.Millisecond)}, "under the limit of 100ms"},
		{"ttl at its most", []Option{WithTTL(MaxTTL)}, ""},
		{"ttl over its most", []Option{WithTTL(MaxTTL + time.Millisecond)}, "over the limit of 24h0m0s"},
		{"ttl of zero", []Option{WithTTL(0)}, "under the limit"},
		{"ttl below zero", []Option{WithTTL(-time.Second)}, "under the limit"},
		{"ttl with a fraction", []Option{WithTTL(time.Second + time.Microsecond)}, "whole number of milliseconds"},
		{"ttl in milliseconds", []Option{WithTTL(time.Second + time.Millisecond)}, ""},
		{"max hold of a nanosecond", []Option{WithMaxHold(1), WithMinValidity(0)}, ""},
		{"max hold of zero", []Option{WithMaxHold(0)}, "not positive"},
		{"wait of a nanosecond", []Option{WithWait(1)}, ""},
		{"wait of zero", []Option{WithWait(0)}, "not positive: TryLock"},
		{"min hold of a nanosecond", []Option{WithMinHold(1)}, ""},
		{"min hold of zero", []Option{WithMinHold(0)}, "not positive"},
		{"min hold at its most", []Option{WithMinHold(MaxTTL)}, ""},
		{"min hold over its most", []Option{WithMinHold(MaxTTL + 1)}, "over the limit of 24h0m0s"},
		{"min hold as long as max hold", []Option{WithMinHold(time.Hour), WithMaxHold(time.Hour)}, ""},
		{"min hold over max hold", []Option{WithMinHold(time.Hour + 1), WithMaxHold(time.Hour)}, "over the maximum hold of 1h0m0s"},
		{"min hold without renewal", []Option{WithTTL(ttl), WithoutRenewal(), WithMinHold(ttl - drift - 1)}, ""},
		{"min hold over all validity", []Option{WithTTL(ttl), WithoutRenewal(), WithMinHold(ttl - drift)}, "does not fit into the validity of 9.898s"},
		{"max hold below zero", []Option{WithMaxHold(-1)}, "not positive"},
		{"min validity of zero", []Option{WithMinValidity(0)}, ""},
		{"min validity below zero", []Option{WithMinValidity(-1)}, "negative"},
		{"min validity that can be met", []Option{WithTTL(ttl), WithMinValidity(ttl - drift - 1)}, ""},
		{"min validity that cannot", []Option{WithTTL(ttl), WithMinValidity(ttl - drift)}, "cannot be met"},
		{"min validity before its ttl", []Option{WithMinValidity(ttl - drift), WithTTL(ttl)}, "cannot be met"},
		{"no holder", []Option{WithHolder("")}, ""},
		{"longest holder", []Option{WithHolder(strings.Repeat("h", MaxHolder))}, ""},
		{"holder too long", []Option{WithHolder(strings.Repeat("h", MaxHolder+1))}, "257 bytes, the limit is 256"},
		{"holder with a line end", []Option{WithHolder("a\nb")}, "not printable"},
		{"holder with an escape", []Option{WithHolder("a\x1b[2J")}, "not printable"},
		{"holder not UTF-8", []Option{WithHolder("a\xff")}, "not printable"},
		{"one slot", []Option{WithSlots(1)}, ""},
		{"slots at their most", []Option{WithSlots(MaxSlots)}, ""},
		{"no slots", []Option{WithSlots(0)}, "WithSlots(0): the number is not from 1 to 1024"},
		{"slots over their most", []Option{WithSlots(MaxSlots + 1)}, "not from 1 to 1024"},
		{"shared twice", []Option{WithShared(), WithShared()}, ""},
		{"slots twice", []Option{WithSlots(2), WithSlots(3)}, ""},
		{"shared, then slots", []Option{WithShared(), WithSlots(2)}, "exclude each other"},
		{"slots, then shared", []Option{WithSlots(2), WithShared()}, "exclude each other"},
		{"min hold of a reader", []Option{WithMinHold(1), WithShared()}, "not with WithShared"},
		{"min hold of a slot", []Option{WithMinHold(1), WithSlots(2)}, "not with WithSlots"},
		{"an observer", []Option{WithObserver(func(Event) {})}, ""},
		{"no observer", []Option{WithObserver(nil)}, "no observer"},
		{"no guard", []Option{WithGuard(nil)}, "no guard"},
		{"a resource without a name", []Option{WithGuard(&claims{}, "a", "")}, "without a name"},
		{"two guards", []Option{WithGuard(&claims{}), WithGuard(&claims{})}, "WithGuard was given twice"},
		{"max hold as long as min validity", []Option{WithMaxHold(time.Second), WithMinValidity(time.Second)}, "maximum hold 1s is not over the minimum validity of 1s"},
		{"max hold over min validity", []Option{WithMaxHold(time.Second + 1), WithMinValidity(time.Second)}, ""},
		{"the zero Option", []Option{{}}, "an option is the zero Option"},
	} {
		_, err := settings("the name", c.opts...)
		switch {
		case c.says == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.says != "" && err == nil:
			t.Errorf("%s: accepted", c.name)
		case c.says != "" && (!strings.Contains(err.Error(), c.says) || !strings.HasPrefix(err.Error(), `locker: lock "the name": `)):
			t.Errorf("%s: error %q does not name the lock and say %q", c.name, err, c.says)
		}
	}
}

// Programs and dashboards keep them: these words never change.
func TestKindsInWords(t *testing.T) {
	for k, want := range map[Kind]string{KindExclusive: "exclusive", KindShared: "shared", KindSlots: "slots", KindSlots + 1: "unknown kind", 255: "unknown kind"} {
		if got := k.String(); got != want {
			t.Errorf("Kind %d reads %q, want %q", uint8(k), got, want)
		}
	}
}

func TestNamesOfLocks(t *testing.T) {
	for name, ok := range map[string]bool{
		"a":                                  true,
		"a/b c\n\t{}*:é世":                    true,
		strings.Repeat("n", 512):             true,
		strings.Repeat("é", MaxName/2):       true,
		"":                                   false,
		strings.Repeat("n", 513):             false,
		strings.Repeat("é", MaxName/2) + "n": false,
		"a\x00b":                             false,
		"\x00":                               false,
		"a\xffb":                             false,
		"\xed\xa0\x80":                       false, // half a surrogate pair
	} {
		err := CheckName(name)
		if (err == nil) != ok {
			t.Errorf("CheckName(%.20q of %d bytes): %v", name, len(name), err)
		}
		if err != nil && (!strings.HasPrefix(err.Error(), "locker: ") || len(err.Error()) > 200) {
			t.Errorf("CheckName(%.20q): error %q", name, err)
		}
		if _, got := settings(name); (got == nil) != ok {
			t.Errorf("options for the name %.20q: %v", name, got)
		}
	}
}
