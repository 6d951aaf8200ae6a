package registertest

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/register"
)

// patience bounds every wait for an answer.
const patience = 30 * time.Second

// suite checks what the contract of a [register.Store] says, with two clients of it.
type suite struct {
	*testing.T
	opts register.Options
	a, b register.Store
	name string // of this run alone
}

// checkStore checks the Store itself.
func checkStore(t *testing.T, h Harness) {
	for what, check := range map[string]func(*suite){
		"a record is what was written":              (*suite).keeps,
		"a record is created once":                  (*suite).createsOnce,
		"a write that is late is refused":           (*suite).refusesLate,
		"of writes at once one succeeds":            (*suite).oneOfMany,
		"names that differ in a byte are two names": (*suite).namesDiffer,
		"a record may be as large as the limit":     (*suite).largest,
		"age is a lower bound":                      (*suite).ages,
		"a watch tells of changes":                  (*suite).watches,
		"a list has the names below a prefix":       (*suite).lists,
		"who gives up does not wait":                (*suite).givesUp,
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			check(&suite{T: t, opts: h.Options, a: h.New(t), b: h.New(t), name: "registertest/" + rand.Text()})
		})
	}
}

func (s *suite) ctx() context.Context {
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	s.Cleanup(cancel)
	return ctx
}

func (s *suite) get(from register.Store, name string) register.Entry {
	s.Helper()
	e, err := from.Get(s.ctx(), name)
	if err != nil {
		s.Fatalf("Get: %v", err)
	}
	return e
}

// swap writes, and returns the new version.
func (s *suite) swap(from register.Store, name, version, record string) string {
	s.Helper()
	next, err := from.Swap(s.ctx(), name, version, []byte(record))
	if err != nil || next == "" || next == version {
		s.Fatalf("Swap at version %q returned version %q and the error %v: each write needs a version of its own", version, next, err)
	}
	return next
}

// refused checks that a write is refused, and changes nothing.
func (s *suite) refused(from register.Store, name, version string) {
	s.Helper()
	before := s.get(s.b, name)
	if _, err := from.Swap(s.ctx(), name, version, []byte("refused")); !errors.Is(err, register.ErrChanged) {
		s.Errorf("Swap at version %q, where the record has %q, returned the error %v, and not ErrChanged", version, before.Version, err)
	}
	if after := s.get(s.b, name); after.Version != before.Version || string(after.Record) != string(before.Record) {
		s.Errorf("a write that was refused has changed the record from %q to %q", before.Record, after.Record)
	}
}

func (s *suite) keeps() {
	if e := s.get(s.a, s.name); e.Version != "" || len(e.Record) > 0 {
		s.Fatalf("a name that nobody has used has %+v", e)
	}
	version := ""
	for _, record := range []string{`{"one":1}`, " ä ß 😀 \\ \" ' ` % <&> ", `{"one":1}`, "x"} { // records are JSON, without control characters
		version = s.swap(s.a, s.name, version, record)
		if e := s.get(s.b, s.name); e.Version != version || string(e.Record) != record {
			s.Errorf("another client has %q at version %q, and not %q at version %q", e.Record, e.Version, record, version)
		}
	}
}

func (s *suite) createsOnce() {
	s.swap(s.a, s.name, "", "first")
	s.refused(s.b, s.name, "")
	s.refused(s.a, s.name, "")
	s.refused(s.a, s.name+"/none", s.get(s.a, s.name).Version) // of another name, which has no record
}

func (s *suite) refusesLate() {
	versions := []string{"", s.swap(s.a, s.name, "", "1")}
	for _, record := range []string{"2", "3"} {
		versions = append(versions, s.swap(s.b, s.name, versions[len(versions)-1], record))
	}
	for i, version := range versions[:len(versions)-1] {
		for _, earlier := range versions[:i] {
			if version == earlier {
				s.Errorf("version %q came back", version)
			}
		}
		s.refused(s.a, s.name, version)
	}
}

func (s *suite) oneOfMany() {
	version := ""
	for range 10 {
		var all sync.WaitGroup
		var mu sync.Mutex
		var won []string
		for i := range 8 {
			from := s.a
			if i%2 == 0 {
				from = s.b
			}
			all.Go(func() {
				next, err := from.Swap(s.ctx(), s.name, version, []byte(rand.Text()))
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					won = append(won, next)
				} else if !errors.Is(err, register.ErrChanged) {
					s.Errorf("Swap: %v", err)
				}
			})
		}
		all.Wait()
		was := version
		version = s.get(s.a, s.name).Version
		switch {
		case len(won) > 1:
			s.Fatalf("of 8 writes at once %d succeeded", len(won))
		case len(won) == 1 && won[0] != version, len(won) == 0 && version != was:
			s.Fatalf("of 8 writes at once %d succeeded, with the version %q, and then the record has %q", len(won), won, version)
		}
	}
}

func (s *suite) namesDiffer() {
	longest := locker.MaxName - len(s.name) - 1
	names := []string{
		"a", "A", "a ", " a", "a/", "a%2F", "a%2f", "a.", "ä", "a\u0308", "ß", "ss", "😀", "a*", "a>", "a%", "a_", "aA", "a=41", "a\n", `a"`, "a'", "a\\", "..", "a/../a",
		strings.Repeat("x", longest), strings.Repeat("x", longest-1), strings.Repeat("/", longest), strings.Repeat("ä", longest/2),
	}
	for _, name := range names {
		s.swap(s.a, s.name+"/"+name, "", "of "+name)
	}
	for _, name := range names {
		if e := s.get(s.b, s.name+"/"+name); string(e.Record) != "of "+name {
			s.Errorf("the name %q has the record %q", name, e.Record)
		}
	}
}

func (s *suite) largest() {
	limit := s.opts.Limit
	if limit == 0 {
		limit = register.DefaultLimit
	}
	text := strings.Repeat("x", limit)
	s.swap(s.a, s.name, "", text)
	if e := s.get(s.b, s.name); string(e.Record) != text {
		s.Errorf("of a record of %d bytes %d came back", limit, len(e.Record))
	}
}

// ages looks at records that were written at different parts of a second: a clock may count in whole ones. Then the last one's age is known
// to within two seconds or three, and no record is like another, for a version may be a hash.
func (s *suite) ages() {
	var version string
	var before time.Time
	for i := range 8 {
		before = time.Now()
		version = s.swap(s.a, s.name, version, strconv.Itoa(i))
		for _, pause := range []time.Duration{0, 300 * time.Millisecond, 850 * time.Millisecond} {
			time.Sleep(pause)
			e := s.get(s.b, s.name)
			if most := time.Since(before); e.Age > most {
				s.Fatalf("a record that was written %v ago at most is said to be %v old", most, e.Age)
			}
		}
	}
	time.Sleep(time.Until(before.Add(5 * time.Second)))
	if e := s.get(s.b, s.name); s.opts.Age && e.Age <= 0 {
		s.Error("a record that was written five seconds ago has no age, which Options.Age promises")
	}
}

func (s *suite) watches() {
	w, ok := s.b.(register.Watcher)
	if !ok {
		s.Skip("the Store is no Watcher")
	}
	told := make(chan register.Entry, 100)
	ctx, cancel := context.WithCancel(s.ctx())
	ended := make(chan error, 1)
	version := s.swap(s.a, s.name, "", "1")
	go func() { ended <- w.Watch(ctx, s.name, func(e register.Entry) { told <- e }) }()
	for _, record := range []string{"1", "2", "3"} {
		if record > "1" {
			version = s.swap(s.a, s.name, version, record)
		}
		for e := (register.Entry{}); e.Version != version; {
			select {
			case e = <-told:
			case <-time.After(patience):
				s.Fatalf("the watch did not tell of %q", record)
			}
		}
	}
	cancel()
	select {
	case err := <-ended:
		if err == nil {
			s.Error("the watch ended with its context, and without an error")
		}
	case <-time.After(patience):
		s.Error("the watch did not end with its context")
	}
}

func (s *suite) lists() {
	l, ok := s.b.(register.Lister)
	if !ok {
		s.Skip("the Store is no Lister")
	}
	for _, name := range []string{"/a", "/a/b", "/b", "%"} {
		s.swap(s.a, s.name+name, "", "of "+name)
	}
	entries, err := l.List(s.ctx(), s.name+"/a")
	if err != nil || len(entries) != 2 {
		s.Fatalf("List returned %v, %v", entries, err)
	}
	for name, e := range entries {
		if got := s.get(s.a, name); string(got.Record) != string(e.Record) || got.Version != e.Version || got.Age < e.Age {
			s.Errorf("List has %+v of %q, and Get %+v", e, name, got)
		}
	}
}

func (s *suite) givesUp() {
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	began := time.Now()
	_, _ = s.a.Get(ctx, s.name)
	_, _ = s.a.Swap(ctx, s.name, "", []byte("1"))
	if passed := time.Since(began); passed > patience/2 {
		s.Errorf("with a context that was over, Get and Swap took %v", passed)
	}
}
