package natskv_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/conformance"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/register"
	"github.com/lockstile/locker/register/natskv"
)

// start starts a server with a bucket called locks.
func start(t testing.TB, config ...string) (*testserver.NATSServer, jetstream.KeyValue) {
	t.Helper()
	srv := testserver.NATS(t, config...)
	return srv, bucket(t, connect(t, srv.URL()), jetstream.KeyValueConfig{})
}

// The marker of a deleted key is its last message: a write at revision 0 is refused, and so is one at the revision of before.
func TestDeletedKeyIsWrittenAtTheRevisionOfItsMarker(t *testing.T) {
	t.Parallel()
	srv, kv := start(t)
	s, _ := store(t, connect(t, srv.URL()))
	last := lock(t, process(t, connect(t, srv.URL())), "a")
	unlock(t, last)
	for what, remove := range map[string]func(context.Context, string, ...jetstream.KVDeleteOpt) error{"delete": kv.Delete, "purge": kv.Purge} {
		before, err := s.Get(soon(t), "a")
		if err != nil || len(before.Record) == 0 {
			t.Fatalf("%+v, %v", before, err)
		}
		if err := remove(soon(t), natskv.Key("a")); err != nil {
			t.Fatal(err)
		}
		e, err := s.Get(soon(t), "a")
		if err != nil || len(e.Record) > 0 || e.Version == "" || e.Version == before.Version {
			t.Fatalf("after a %s: %+v, %v", what, e, err)
		}
		for _, version := range []string{"", before.Version} {
			if _, err := s.Swap(soon(t), "a", version, []byte("late")); !errors.Is(err, register.ErrChanged) {
				t.Errorf("after a %s, a write at version %q: %v", what, version, err)
			}
		}
		next := lock(t, process(t, connect(t, srv.URL())), "a")
		if next.Token() <= last.Token() {
			t.Errorf("token %d follows %d", next.Token(), last.Token())
		}
		last = next
		unlock(t, last)
	}
}

func TestKeysAreValidAndDifferentAndLeadBackToTheirNames(t *testing.T) {
	t.Parallel()
	srv, kv := start(t)
	js := connect(t, srv.URL())
	s, _ := store(t, js)
	if entries, err := s.List(soon(t), ""); err != nil || len(entries) != 0 {
		t.Errorf("an empty bucket has %v, %v", entries, err)
	}
	for _, foreign := range []string{"a.b", "=61", "=6", "=zz", "_kv", "=c3=a4"} { // none of these is the key of a name
		if _, err := kv.PutString(soon(t), foreign, "none of ours"); err != nil {
			t.Fatal(err)
		}
	}
	names := []string{"_kv_a", "a_kv", "_a", "a+b", "a b", "a~", "=61", "$KV", "a.b", ".", "..", ">", "*", "\x00", "ä", "ä/ö", "jobs/daily-report_2"}
	for c := range 128 {
		names = append(names, "c"+string(rune(c)))
	}
	longest := strings.Repeat("ä", locker.MaxName/2)
	names = append(names, longest, longest[2:], strings.Repeat("/", locker.MaxName))
	for _, name := range names {
		if _, err := s.Swap(soon(t), name, "", []byte(name)); err != nil {
			t.Fatalf("%q, whose key is %q: %v", name, natskv.Key(name), err)
		}
	}
	entries, err := s.List(soon(t), "")
	if err != nil || len(entries) != len(names) {
		t.Fatalf("%d names of %d are listed, %v", len(entries), len(names), err)
	}
	for _, name := range names {
		if e := entries[name]; string(e.Record) != name {
			t.Errorf("%q has the record %q", name, e.Record)
		}
	}
	for name, want := range map[string]string{"jobs/daily-report_2": "jobs/daily-report_2", "_kv": "=5Fkv", "a.b c": "a=2Eb=20c"} {
		if got := natskv.Key(name); got != want {
			t.Errorf("the key of %q is %q, want %q", name, got, want)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if entries, err := s.List(ended, ""); err == nil {
		t.Errorf("a list that was given up has %d names and no error", len(entries))
	}

	// The name of a consumer has all of the key.
	a, b := process(t, js), process(t, connect(t, srv.URL()))
	name := strings.Repeat("ö", locker.MaxName/2)
	held := lock(t, a, name)
	next := make(chan *locker.Lock, 1)
	go func() { next <- lock(t, b, name) }()
	waits(t, a, name)
	unlock(t, held)
	unlock(t, <-next)
}

// Of buckets and connections that would lose locks, or take them for nobody, New says what to change.
func TestWhatIsUnsafeIsRefused(t *testing.T) {
	t.Parallel()
	srv := testserver.NATS(t)
	small := testserver.NATS(t, "max_payload: 8192")
	js := connect(t, srv.URL())
	bucket(t, js, jetstream.KeyValueConfig{Bucket: "good"})
	bucket(t, js, jetstream.KeyValueConfig{Bucket: "limited", MaxBytes: 1 << 20, History: 5, MaxValueSize: 32 << 10})
	bucket(t, js, jetstream.KeyValueConfig{Bucket: "expiring", TTL: time.Hour})
	bucket(t, js, jetstream.KeyValueConfig{Bucket: "mirror", Mirror: &jetstream.StreamSource{Name: "good"}})
	bucket(t, js, jetstream.KeyValueConfig{Bucket: "sourced", Sources: []*jetstream.StreamSource{{Name: "good"}}})
	bucket(t, js, jetstream.KeyValueConfig{Bucket: "small", MaxValueSize: 1000})
	bucket(t, js, jetstream.KeyValueConfig{Bucket: "memory", Storage: jetstream.MemoryStorage})
	bucket(t, js, jetstream.KeyValueConfig{Bucket: "discarding", MaxBytes: 1 << 20})
	discarding, err := js.Stream(soon(t), "KV_discarding")
	if err != nil {
		t.Fatal(err)
	}
	cfg := discarding.CachedInfo().Config
	cfg.Discard = jetstream.DiscardOld
	if _, err := js.UpdateStream(soon(t), cfg); err != nil {
		t.Fatal(err)
	}
	cfg = jetstream.StreamConfig{Name: "KV_async", Subjects: []string{"$KV.async.>"}, MaxMsgsPerSubject: 1, AllowDirect: true, PersistMode: jetstream.AsyncPersistMode}
	if _, err := js.CreateStream(soon(t), cfg); err != nil {
		t.Fatal(err)
	}
	bucket(t, connect(t, small.URL()), jetstream.KeyValueConfig{Bucket: "good"})
	for what, c := range map[string]struct {
		js     jetstream.JetStream
		bucket string
		opts   natskv.Options
		says   string // "" where it is safe
	}{
		"a plain bucket":                   {js: js, bucket: "good"},
		"a bucket with limits":             {js: js, bucket: "limited"},
		"synced":                           {js: js, bucket: "good", opts: natskv.Options{SyncAlways: true}},
		"a connection that ends for good":  {js: connect(t, srv.URL(), nats.NoReconnect(), nats.ReconnectBufSize(1<<20)), bucket: "good"},
		"memory":                           {js: js, bucket: "memory"},
		"no client":                        {bucket: "good", says: "the client is nil"},
		"no bucket":                        {js: js, bucket: "none", says: "bucket not found"},
		"no name of a bucket":              {js: js, bucket: "a.b", says: "invalid bucket name"},
		"keys that expire":                 {js: js, bucket: "expiring", says: "set its TTL to 0"},
		"a mirror":                         {js: js, bucket: "mirror", says: "its keys come from another bucket"},
		"a bucket with sources":            {js: js, bucket: "sourced", says: "its keys come from another bucket"},
		"a bucket that discards":           {js: js, bucket: "discarding", says: "set the discard policy of its stream to new"},
		"small values":                     {js: js, bucket: "small", says: "raise its MaxValueSize (1000)"},
		"small messages":                   {js: connect(t, small.URL()), bucket: "good", says: "the server's max_payload (8192)"},
		"a connection that buffers":        {js: connect(t, srv.URL(), nats.ReconnectBufSize(0)), bucket: "good", says: "connect with nats.ReconnectBufSize(-1)"},
		"memory that is synced":            {js: js, bucket: "memory", opts: natskv.Options{SyncAlways: true}, says: "SyncAlways is for"},
		"writes that are confirmed before": {js: js, bucket: "async", opts: natskv.Options{SyncAlways: true}, says: "SyncAlways is for"},
	} {
		t.Run(what, func(t *testing.T) {
			l, err := natskv.New(soon(t), c.js, c.bucket, c.opts)
			switch {
			case c.says == "" && err != nil:
				t.Error(err)
			case c.says == "":
				unlock(t, lock(t, l, "a"))
			case err == nil || !strings.Contains(err.Error(), c.says) || !strings.HasPrefix(err.Error(), fmt.Sprintf("natskv: bucket %q: ", c.bucket)):
				t.Errorf("the error is %v, and not one that says %q", err, c.says)
			}
		})
	}
}

func TestGuaranteesSayWhatTheServerMustKeep(t *testing.T) {
	t.Parallel()
	srv, _ := start(t, "jetstream: {sync_interval: always}")
	js := connect(t, srv.URL())
	lazy := process(t, js)
	if err := locker.Require(lazy, locker.Correctness); err == nil || lazy.Guarantees().Exclusion != locker.PromptHolder|locker.SteadyClocks|locker.DurableServer {
		t.Errorf("%v: %v", lazy.Guarantees(), err)
	}
	synced, err := natskv.New(soon(t), js, "locks", natskv.Options{SyncAlways: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := locker.Require(synced, locker.Correctness); err != nil || synced.Guarantees().Exclusion != locker.PromptHolder|locker.SteadyClocks {
		t.Errorf("%v: %v", synced.Guarantees(), err)
	}
	unlock(t, lock(t, synced, "a"))
}

// A client with a buffer sends, as soon as it is connected again, a write that was given up long before. Ours is not connected, and says so.
func TestWriteFromBeforeADisconnectionIsNotSentAfterIt(t *testing.T) {
	t.Parallel()
	srv, _ := start(t)
	js, buffering := connect(t, srv.URL()), connect(t, srv.URL(), nats.ReconnectBufSize(0))
	s, _ := store(t, js)
	theirs, err := buffering.KeyValue(soon(t), "locks")
	if err != nil {
		t.Fatal(err)
	}
	srv.Kill()
	until(t, "both are disconnected", func() bool { return js.Conn().IsReconnecting() && buffering.Conn().IsReconnecting() })
	began := time.Now()
	if _, err := s.Swap(soon(t), "a", "", []byte("ours")); err == nil || !strings.Contains(err.Error(), "the connection is down") || time.Since(began) > patience/2 {
		t.Errorf("a write while the connection was down took %v: %v", time.Since(began), err)
	}
	given, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := theirs.Update(given, natskv.Key("b"), []byte("theirs"), 0); err == nil {
		t.Error("a server that was killed has confirmed a write")
	}
	srv.Start()
	until(t, "the other client has sent its write", func() bool {
		e, err := s.Get(soon(t), "b")
		return err == nil && string(e.Record) == "theirs"
	})
	if e, err := s.Get(soon(t), "a"); err != nil || e.Version != "" { // over the same connection: what it had kept would have been before
		t.Errorf("%+v, %v", e, err)
	}
}

// Of a mirror that has nothing, the client's own Get says again and again that there is no such key.
func TestMirrorThatIsBehindIsNotAsked(t *testing.T) {
	t.Parallel()
	srv, kv := start(t)
	js := connect(t, srv.URL())
	bucket(t, js, jetstream.KeyValueConfig{Bucket: "mirror", Mirror: &jetstream.StreamSource{Name: "locks"}})
	s, _ := store(t, js)
	version, err := s.Swap(soon(t), "a", "", []byte("1"))
	if err != nil {
		t.Fatal(err)
	}
	mirror, err := js.Stream(soon(t), "KV_mirror")
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the mirror has the key", func() bool {
		info, err := mirror.Info(soon(t))
		return err == nil && info.State.Msgs == 1
	})
	if err := mirror.Purge(soon(t)); err != nil {
		t.Fatal(err)
	}
	until(t, "the client's own Get is answered by the mirror", func() bool {
		_, err := kv.Get(soon(t), natskv.Key("a"))
		return errors.Is(err, jetstream.ErrKeyNotFound)
	})
	for range 100 {
		if e, err := s.Get(soon(t), "a"); err != nil || e.Version != version {
			t.Fatalf("%+v, %v", e, err)
		}
	}
}

// The server is killed and started again while a lock is held and somebody waits for it: nothing is lost, and the waiter is told.
func TestLockOutlivesARestartOfTheServer(t *testing.T) {
	t.Parallel()
	srv, _ := start(t)
	a, b := process(t, connect(t, srv.URL())), process(t, connect(t, srv.URL()))
	held := lock(t, a, "a", locker.WithTTL(20*time.Second))
	next := make(chan *locker.Lock, 1)
	go func() { next <- lock(t, b, "a", locker.WithTTL(20*time.Second)) }()
	waits(t, a, "a")
	srv.Kill()
	srv.Start()
	until(t, "both are connected", func() bool {
		_, first := a.Inspect(soon(t), "a")
		_, second := b.Inspect(soon(t), "a")
		return first == nil && second == nil
	})
	if err := held.Err(); err != nil {
		t.Error(err)
	}
	if info, err := b.Inspect(soon(t), "a"); err != nil || !info.Held || info.Waiters != 1 || info.Token != held.Token() {
		t.Errorf("%+v, %v", info, err)
	}
	unlock(t, held)
	got := <-next
	if got.Token() <= held.Token() {
		t.Errorf("token %d follows %d", got.Token(), held.Token())
	}
	unlock(t, got)
}

// The connection of a holder is dead, and nobody tells it. Its client notices, and the lock is renewed over another one. The next time there is no other
// one: the lock is lost when its TTL ends, by the holder's clock.
func TestHolderWhoseConnectionIsCut(t *testing.T) {
	t.Parallel()
	srv, _ := start(t)
	p := conformance.NewProxy(t, srv.Addr())
	cut := process(t, connect(t, "nats://"+p.Addr(), nats.PingInterval(200*time.Millisecond), nats.MaxPingsOutstanding(1), nats.Timeout(time.Second)))
	js := connect(t, srv.URL())
	other := process(t, js)
	s, _ := store(t, js)
	held := lock(t, cut, "a", locker.WithTTL(8*time.Second))
	version := func() string {
		e, err := s.Get(soon(t), "a")
		if err != nil {
			t.Error(err)
		}
		return e.Version
	}
	before := version()
	p.Stall() // the connection that is open
	until(t, "the lock is renewed", func() bool { return version() != before })
	if err := held.Err(); err != nil {
		t.Fatal(err)
	}
	p.Cut()
	select {
	case <-held.Lost():
	case <-time.After(patience):
		t.Fatal("a holder without a connection keeps the lock")
	}
	unlock(t, lock(t, other, "a"))
	p.Heal()
	if err := held.Unlock(soon(t)); !errors.Is(err, locker.ErrLost) {
		t.Error(err)
	}
	until(t, "the holder's client is connected again", func() bool { _, err := cut.Inspect(soon(t), "a"); return err == nil })
	unlock(t, lock(t, cut, "a"))
}

// A server that does not permit a request does not answer it.
func TestMissingRightsAreNamed(t *testing.T) {
	t.Parallel()
	srv := testserver.NATS(t, `accounts: {
		A: {
			jetstream: enabled
			users: [
				{user: all, password: x}
				{user: blind, password: x, permissions: {publish: {deny: "$JS.API.STREAM.INFO.*"}}}
				{user: mute, password: x, permissions: {publish: {deny: "$KV.>"}}}
				{user: few, password: x, permissions: {subscribe: "_INBOX.>", publish: [
					"$KV.locks.>", "$JS.API.STREAM.INFO.KV_locks", "$JS.API.STREAM.MSG.GET.KV_locks",
					"$JS.API.CONSUMER.CREATE.KV_locks.>", "$JS.API.CONSUMER.DELETE.KV_locks.>"]}}
			]
		}
	}`)
	as := func(user string) jetstream.JetStream { return connect(t, "nats://"+user+":x@"+srv.Addr()) }
	bucket(t, as("all"), jetstream.KeyValueConfig{})
	brief := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		t.Cleanup(cancel)
		return ctx
	}
	if _, err := natskv.New(brief(), as("blind"), "locks", natskv.Options{}); !errors.Is(err, locker.ErrRefused) || !strings.Contains(err.Error(), "$JS.API.STREAM.INFO.KV_locks") {
		t.Error(err)
	}
	s, _ := store(t, as("mute"))
	if _, err := s.Swap(brief(), "a", "", []byte("1")); !errors.Is(err, locker.ErrRefused) || !strings.Contains(err.Error(), "$KV.locks.a") {
		t.Error(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := s.Swap(ended, "a", "", []byte("1")); err == nil || errors.Is(err, locker.ErrRefused) {
		t.Errorf("a write that was not sent, after one that was not permitted: %v", err)
	}
	a, b := process(t, as("few")), process(t, as("few")) // all that the package's page lists, and no more
	held := lock(t, a, "a")
	next := make(chan *locker.Lock, 1)
	go func() { next <- lock(t, b, "a") }()
	waits(t, a, "a")
	unlock(t, held)
	unlock(t, <-next)
	if infos, err := a.List(soon(t), ""); err != nil || len(infos) != 0 {
		t.Errorf("%v, %v", infos, err)
	}
}

// What lasts until somebody changes a setting is refused, and names the setting.
func TestLastingErrorsAreRefusals(t *testing.T) {
	t.Parallel()
	srv := testserver.NATS(t, "max_payload: 100000")
	js := connect(t, srv.URL())
	kv := bucket(t, js, jetstream.KeyValueConfig{MaxValueSize: 20_000, MaxBytes: 40_000})
	s, like := store(t, js)
	if like.Limit != 19_929 { // less what else counts against it
		t.Errorf("the limit is %d", like.Limit)
	}
	refused := func(name string, size int, says string) {
		t.Helper()
		if _, err := s.Swap(soon(t), name, "", make([]byte, size)); !errors.Is(err, locker.ErrRefused) || !strings.Contains(err.Error(), says) {
			t.Errorf("the error is %v, and not one that says %q", err, says)
		}
		if e, err := s.Get(soon(t), name); err != nil || e.Version != "" {
			t.Errorf("after a refusal: %+v, %v", e, err)
		}
	}
	refused("a", 20_000, "message size exceeds maximum")
	refused("a", 200_000, "maximum payload exceeded")
	for _, name := range []string{"b", "c"} {
		if _, err := s.Swap(soon(t), name, "", make([]byte, like.Limit-1000)); err != nil {
			t.Fatal(err)
		}
	}
	refused("a", 10_000, "maximum bytes exceeded")
	if err := js.DeleteKeyValue(soon(t), kv.Bucket()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(soon(t), "a"); !errors.Is(err, locker.ErrRefused) || !strings.Contains(err.Error(), "stream not found") {
		t.Error(err)
	}
}

// cutoff is a connection of which no more is read when a list has begun.
type cutoff struct {
	net.Conn
	begins, silent atomic.Bool
	gone           chan struct{}
}

func (c *cutoff) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("CONSUMER.CREATE")) {
		c.begins.Store(true)
	}
	return c.Conn.Write(b)
}

func (c *cutoff) Read(b []byte) (int, error) {
	if c.silent.Load() {
		<-c.gone
		return 0, net.ErrClosed
	}
	n, err := c.Conn.Read(b)
	if end := bytes.Index(b[:n], []byte("}\r\n")); end >= 0 && c.begins.Load() { // what follows the answer are the keys
		c.silent.Store(true)
		n = end + len("}\r\n")
	}
	return n, err
}

// Dial implements [nats.CustomDialer].
func (c *cutoff) Dial(network, address string) (conn net.Conn, err error) {
	c.Conn, err = net.Dial(network, address)
	return c, err
}

// The connection ends for good when a list has begun, and before its first key has come. The client takes that for an empty bucket.
func TestListThatIsCutOffIsNoEmptyOne(t *testing.T) {
	t.Parallel()
	srv := testserver.NATS(t)
	js := connect(t, srv.URL())
	bucket(t, js, jetstream.KeyValueConfig{})
	lock(t, process(t, js), "a")
	until(t, "a list is cut off before its first key", func() bool {
		c := &cutoff{gone: make(chan struct{})}
		far := connect(t, srv.URL(), nats.SetCustomDialer(c))
		s, _ := store(t, far)
		var entries map[string]register.Entry
		answer := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(soon(t), 3*time.Second)
			defer cancel()
			var err error
			entries, err = s.List(ctx, "")
			answer <- err
		}()
		until(t, "the list has begun", c.silent.Load)
		far.Conn().Close()
		close(c.gone)
		if err := <-answer; err == nil {
			t.Error("a list that was cut off says that there is nothing")
		}
		return len(entries) == 0
	})
}

// In a domain, the client puts the domain's prefix before all subjects.
func TestBucketInADomain(t *testing.T) {
	t.Parallel()
	srv := testserver.NATS(t, "jetstream: {domain: here}")
	nc := connect(t, srv.URL()).Conn()
	js, err := jetstream.NewWithDomain(nc, "here")
	if err != nil {
		t.Fatal(err)
	}
	bucket(t, js, jetstream.KeyValueConfig{})
	a, b := process(t, js), process(t, connect(t, srv.URL()))
	held := lock(t, a, "a")
	next := make(chan *locker.Lock, 1)
	go func() { next <- lock(t, a, "a") }()
	if _, err := b.TryLock(soon(t), "a"); !errors.Is(err, locker.ErrTaken) {
		t.Errorf("without the domain, in which the server is: %v", err)
	}
	unlock(t, held)
	unlock(t, <-next)
}

// A watch tells at once that there is nothing, and that a key was deleted. It goes on when its consumer is gone, and ends with its context and with the connection.
func TestWatchTellsWhatThereIsAndEnds(t *testing.T) {
	t.Parallel()
	srv, kv := start(t)
	js := connect(t, srv.URL())
	s, _ := store(t, js)
	told := make(chan register.Entry, 10)
	watch := func(ctx context.Context) <-chan error {
		ended := make(chan error, 1)
		go func() { ended <- s.Watch(ctx, "a", func(e register.Entry) { told <- e }) }()
		return ended
	}
	expect := func(record string) {
		t.Helper()
		select {
		case e := <-told:
			if string(e.Record) != record {
				t.Errorf("it tells of %q, and not of %q", e.Record, record)
			}
		case <-time.After(patience):
			t.Errorf("it does not tell of %q", record)
		}
	}
	ends := func(ended <-chan error, says string) {
		t.Helper()
		select {
		case err := <-ended:
			if err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("it ended with %v", err)
			}
		case <-time.After(patience):
			t.Error("it did not end")
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := watch(ctx)
	expect("")
	if _, err := s.Swap(soon(t), "a", "", []byte("1")); err != nil {
		t.Fatal(err)
	}
	expect("1")
	if err := kv.Delete(soon(t), natskv.Key("a")); err != nil {
		t.Fatal(err)
	}
	expect("")
	cancel(errors.New("enough"))
	ends(ended, "enough")

	ended = watch(t.Context())
	expect("")
	srv.Kill()
	ends(ended, "the connection was lost")
	ends(watch(t.Context()), "")
	srv.Start()
	until(t, "it is connected again", js.Conn().IsConnected)
	ended = watch(t.Context())
	expect("")
	js.Conn().Close()
	ends(ended, "the connection was lost")
}
