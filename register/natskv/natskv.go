// Package natskv implements [locker.Locker] in a key-value bucket of NATS JetStream, through package [register].
//
//	nc, err := nats.Connect(url, nats.ReconnectBufSize(-1), nats.MaxReconnects(-1), nats.PingInterval(5*time.Second))
//	js, err := jetstream.New(nc)
//	_, err = js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "locks"})
//	locks, err := natskv.New(ctx, js, "locks", natskv.Options{})
//
// # Guarantees
//
// What package [register] says. The server keeps minimum holds.
//
// Exclusion and tokens assume that the server loses nothing in a crash ([locker.DurableServer]). By default it syncs its files every two
// minutes, and confirms writes before (https://github.com/nats-io/nats-server/issues/7564): a crash of the machine may forget them, a
// crash of the server alone does not. See [Options].SyncAlways. A bucket with replicas serves for as long as a majority of
// them does. There exclusion assumes agreed clocks too ([locker.AgreedClocks]), because the next leader's clock says how old a record is.
//
// # Losing a lock
//
// What package [register] says. By default the client takes some minutes to notice that its connection is dead, and gives up for good when it has
// had none for two minutes. Then its locks are lost when their TTLs end. Set nats.PingInterval and nats.MaxReconnects(-1).
//
// # Clocks
//
// What package [register] says. The store's clock is that of the server where the bucket is, or of the leader of its replicas.
//
// # Requirements
//
// NATS 2.10 or later. A bucket for locks alone, in which keys do not expire. All programs use this bucket, and no mirror of it. They have the right to
// subscribe to _INBOX.>, and to publish to these subjects, where LOCKS is the bucket:
//
//	$KV.LOCKS.>
//	$JS.API.STREAM.INFO.KV_LOCKS
//	$JS.API.STREAM.MSG.GET.KV_LOCKS
//	$JS.API.CONSUMER.CREATE.KV_LOCKS.>
//	$JS.API.CONSUMER.DELETE.KV_LOCKS.>
//
// Stop all programs before you purge the bucket, delete it or restore a backup of it, for its revisions may come back: then a request from before
// passes for a new one.
package natskv

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/register"
)

// Options are the settings of a Locker in a bucket. The zero value is ready to use.
type Options struct {
	// SyncAlways declares that the server has "sync_interval: always" in its configuration, which clients cannot see. Then exclusion and tokens
	// do not assume a durable server, for what it has confirmed is on its disk. New refuses it for a bucket in memory, and for one with replicas, where confirmed
	// writes were lost even so (https://github.com/nats-io/nats-server/issues/7545).
	SyncAlways bool
}

// headers is how many bytes beside a record count against the limits. The least limit is what package register may need.
const headers, least = len("NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: 18446744073709551615\r\n\r\n"), 16 << 10

// New returns a Locker in a bucket, about which it asks the server. It never closes the connection, nor changes anything about the
// bucket. If the connection or the bucket is not safe for locks, the error says what to change.
func New(ctx context.Context, js jetstream.JetStream, bucket string, opts Options) (*register.Locker, error) {
	s, like, err := open(ctx, js, bucket, opts)
	if err != nil {
		return nil, fmt.Errorf("natskv: bucket %q: %w", bucket, err)
	}
	return register.New(s, like)
}

// open returns a Store, and what it is like.
func open(ctx context.Context, js jetstream.JetStream, bucket string, opts Options) (s *store, like register.Options, err error) {
	if js == nil {
		return nil, like, errors.New("the client is nil")
	}
	kv, err := js.KeyValue(ctx, bucket)
	stream, failed := js.Stream(ctx, "KV_"+bucket)
	s = &store{js.Conn(), kv, stream}
	if err = cmp.Or(err, failed); err != nil {
		return nil, like, fmt.Errorf("%w: %w", locker.ErrUnavailable, s.explain(err, nil, "KV_"+bucket))
	}
	c := &stream.CachedInfo().Config
	// The client sees in this copy whether any replica or mirror may answer (https://github.com/nats-io/nats-architecture-and-design/blob/main/adr/ADR-31.md).
	// They may be behind, so the leader is asked.
	c.AllowDirect = false
	like = register.Options{Backend: "natskv", Age: true, ServerFailures: (c.Replicas - 1) / 2, Exclusion: locker.DurableServer, Tokens: locker.DurableServer}
	like.Limit = int(min(uint64(s.nc.MaxPayload()), uint64(c.MaxMsgSize))) - headers // -1, which stands for no limit, is the greatest
	switch {
	case s.nc.Opts.AllowReconnect && s.nc.Opts.ReconnectBufSize >= 0:
		err = errors.New("the client would send requests from before a disconnection after it, and take locks for nobody: connect with nats.ReconnectBufSize(-1)")
	case c.MaxAge != 0:
		err = errors.New("its keys expire: set its TTL to 0")
	case c.Discard != jetstream.DiscardNew && (c.MaxBytes > 0 || c.MaxMsgs > 0):
		err = errors.New("it throws keys away when it is full: set the discard policy of its stream to new")
	case c.Mirror != nil || len(c.Sources) > 0:
		err = errors.New("its keys come from another bucket: use that one")
	case like.Limit < least:
		err = fmt.Errorf("a lock may need %d bytes: raise its MaxValueSize (%d) and the server's max_payload (%d)", least+headers, c.MaxMsgSize, s.nc.MaxPayload())
	case opts.SyncAlways && (c.Replicas > 1 || c.Storage != jetstream.FileStorage || c.PersistMode != jetstream.DefaultPersistMode):
		err = errors.New("SyncAlways is for a bucket in files of one server that are written before it confirms")
	case opts.SyncAlways:
		like.Exclusion, like.Tokens = 0, 0
	case c.Replicas > 1:
		like.Exclusion |= locker.AgreedClocks
	}
	return s, like, err
}

// store is the [register.Store] in a bucket. Versions are revisions: numbers of messages in the bucket's stream. A deleted key has one, too.
type store struct {
	nc     *nats.Conn
	kv     jetstream.KeyValue
	leader jetstream.Stream // the client's Get would not tell the revision of a deleted key
}

// escapes make a key of a name that is escaped for a URL. A dot would divide the key, and keys that begin with _kv are kept for NATS
// (https://github.com/nats-io/nats-architecture-and-design/blob/main/adr/ADR-8.md).
var escapes = strings.NewReplacer("%2F", "/", "%", "=", "+", "=20", ".", "=2E", "~", "=7E", "_kv", "=5Fkv")

func key(name string) string { return escapes.Replace(url.QueryEscape(name)) }

// Get implements [register.Store]. No answer has both a record and the server's time, so it sends two questions at once. Their order does not
// matter: the age is the time that passed since the record was written, or negative, if it was written after the time was read. A deleted key
// has no data.
func (s *store) Get(ctx context.Context, name string) (register.Entry, error) {
	var status jetstream.KeyValueStatus
	before, failed := s.nc.LastError(), make(chan error, 1)
	go func() { failed <- driver.Caught(func() (err error) { status, err = s.kv.Status(ctx); return err }) }()
	m, err := s.leader.GetLastMsgForSubject(ctx, "$KV."+s.kv.Bucket()+"."+key(name))
	switch err = cmp.Or(err, <-failed); {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return register.Entry{}, nil
	case err != nil:
		return register.Entry{}, s.explain(err, before, "KV_"+s.kv.Bucket())
	}
	return register.Entry{Record: m.Data, Version: fmt.Sprint(m.Sequence), Age: max(status.(*jetstream.KeyValueBucketStatus).StreamInfo().TimeStamp.Sub(m.Time), 0)}, nil
}

// underWay is the error of a server that waits for the replicas' answer to another write of the key. It says nothing about the revision,
// which stays what it is if there is no such answer.
var underWay = &jetstream.APIError{ErrorCode: jetstream.JSErrCodeStreamWrongLastSequenceConstant}

// Swap implements [register.Store]. It sends a write again only after that error. The client does so only if the server says that nobody was
// there to take it.
func (s *store) Swap(ctx context.Context, name, was string, record []byte) (string, error) {
	before := s.nc.LastError()
	revision, err := strconv.ParseUint(cmp.Or(was, "0"), 10, 64)
	if err == nil {
		revision, err = s.kv.Update(ctx, key(name), record, revision)
	}
	if errors.Is(err, underWay) {
		time.Sleep(time.Millisecond)
		return s.Swap(ctx, name, was, record)
	}
	return fmt.Sprint(revision), s.explain(err, before, "."+key(name)+`"`)
}

// Watch implements [register.Watcher]. It ends when the connection does. (The client's watch would go on, and notice after some ten
// seconds what it has missed.)
func (s *store) Watch(ctx context.Context, name string, tell func(register.Entry)) error {
	lost := s.nc.StatusChanged(nats.RECONNECTING, nats.CLOSED)
	defer s.nc.RemoveStatusListener(lost)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w, err := s.kv.Watch(ctx, key(name))
	if err != nil {
		return err
	}
	for empty := true; ; empty = false {
		select {
		case <-lost:
			cancel(errors.New("the connection was lost"))
		case e, ok := <-w.Updates(): // the client closes them when ctx ends, and waits until those before are taken
			switch {
			case !ok:
				return cmp.Or(context.Cause(ctx), errors.New("the client has ended the watch"))
			case e != nil:
				tell(register.Entry{Record: e.Value(), Version: fmt.Sprint(e.Revision())})
			case empty:
				tell(register.Entry{})
			}
		}
	}
}

// List implements [register.Lister].
func (s *store) List(ctx context.Context, prefix string) (map[string]register.Entry, error) {
	entries := make(map[string]register.Entry)
	// The client does not return, not even at the end of ctx, if the connection is closed while it makes its consumer anew.
	keys, err := driver.Within(ctx, nil, func() ([]string, error) { return s.kv.Keys(ctx) })
	if errors.Is(err, jetstream.ErrNoKeysFound) { // a list that was cut off is empty, too
		_, err = s.kv.Status(ctx)
	}
	for _, k := range keys {
		name, foreign := url.PathUnescape(strings.ReplaceAll(k, "=", "%"))
		if err == nil && foreign == nil && key(name) == k && strings.HasPrefix(name, prefix) {
			entries[name], err = s.Get(ctx, name)
		}
	}
	return entries, cmp.Or(err, ctx.Err()) // there are fewer keys if ctx has ended
}

// lasting are errors of the server that last until somebody changes a setting: an account's limits, no JetStream for it, a value that is too large, no
// bucket, no JetStream. So are those that name a maximum.
var lasting = map[jetstream.ErrorCode]bool{10002: true, 10039: true, 10054: true, 10059: true, 10076: true}

// explain says what an error means to package register. A request that is not permitted has no answer: the connection has a new error, which
// names its subject.
func (s *store) explain(err, before error, subject string) error {
	var e *jetstream.APIError
	last := s.nc.LastError()
	switch {
	case err == nil:
	case errors.Is(err, jetstream.ErrKeyRevisionMismatch):
		return fmt.Errorf("%w: %w", register.ErrChanged, err)
	case errors.As(err, &e) && (lasting[e.ErrorCode] || strings.HasPrefix(e.Description, "maximum ")), errors.Is(err, nats.ErrMaxPayload):
		return driver.Refused(err)
	case !errors.Is(last, before) && errors.Is(last, nats.ErrPermissionViolation) && strings.Contains(last.Error(), subject):
		return driver.Refused(fmt.Errorf("%w: %w", last, err))
	case errors.Is(err, nats.ErrReconnectBufExceeded):
		return fmt.Errorf("the connection is down: %w", err)
	}
	return err
}
