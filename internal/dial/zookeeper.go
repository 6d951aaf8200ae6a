package dial

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/zkclient"
	"github.com/lockstile/locker/zookeeper"
)

// zkSessionTimeout is what is asked for without session_timeout. Servers grant 2
// to 20 of their ticks, by default 4 s to 40 s, and no lock may have a smaller
// TTL.
const zkSessionTimeout = 10 * time.Second

func zkSchemes() []Scheme {
	var none zookeeper.Locker // what it promises does not depend on its servers
	return []Scheme{{"zk://[USER:PASS@]HOST[:PORT][,…][/BASE]", "a ZooKeeper ensemble", none.Guarantees()}}
}

// ZooKeeper is a Locker and the connection that was made for it.
type ZooKeeper struct {
	*zookeeper.Locker
	Conn    *zk.Conn
	Hosts   []string
	Options zookeeper.Options
	Asked   time.Duration // for the session
}

// Close closes the Locker first: its clean-ups need the connection. The session
// ends with it.
func (b *ZooKeeper) Close() error {
	err := b.Locker.Close()
	b.Conn.Close()
	return err
}

// zkMute is a log that nobody reads.
type zkMute struct{}

func (zkMute) Printf(string, ...any) {}

// zkRing offers servers by turns, as the client's own does, but leaves their
// names to the dialer: the client looks all of them up once, at the start, and
// gives up for one that is not known.
type zkRing struct {
	mu        sync.Mutex
	servers   []string
	next, end int // the round is over at end
	underWay  bool
}

func (r *zkRing) Init(servers []string) error {
	r.servers = servers
	return nil
}

func (r *zkRing) Len() int { return len(r.servers) }

func (r *zkRing) Next() (server string, retryStart bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	server, retryStart = r.servers[r.next], r.underWay && r.next == r.end
	r.underWay = true
	r.next = (r.next + 1) % len(r.servers)
	return server, retryStart
}

func (r *zkRing) Connected() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end = (r.next + len(r.servers) - 1) % len(r.servers) // the one that is connected
}

func openZooKeeper(ctx context.Context, scheme, rest string) (Backend, error) {
	a, err := parseServers(rest, "2181")
	if err != nil {
		return nil, err
	}
	if err := a.wholeUser(scheme); err != nil {
		return nil, err
	}
	if strings.Contains(a.user, ":") {
		return nil, errors.New("ZooKeeper takes no user names with a colon in them")
	}
	opts, timeout := zookeeper.Options{}, zkSessionTimeout
	if a.path != "" {
		opts.Base = "/" + a.path
	}
	if a.user != "" {
		opts.ACL = zk.DigestACL(zk.PermAll, a.user, a.pass)
	}
	if text := a.take("session_timeout"); text != "" {
		if timeout, err = time.ParseDuration(text); err != nil || timeout < time.Millisecond || timeout > locker.MaxTTL {
			return nil, fmt.Errorf("session_timeout=%q is not a duration such as 10s, up to %v", text, locker.MaxTTL)
		}
	}
	if err := a.nothingLeft(scheme); err != nil {
		return nil, err
	}
	return dialZooKeeper(ctx, a, opts, timeout)
}

func dialZooKeeper(ctx context.Context, a address, opts zookeeper.Options, timeout time.Duration) (Backend, error) {
	tried := newDialed(a.hosts)
	opts.Session = zookeeper.NewSession(func(_, addr string, patience time.Duration) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		return tried.dial(ctx, addr)
	})
	conn, _, err := zk.Connect(a.hosts, timeout, zk.WithDialer(opts.Session.Dial), zk.WithHostProvider(&zkRing{}),
		zk.WithLogger(zkMute{}), zk.WithLogInfo(false))
	if err != nil {
		return nil, err
	}
	l, err := zookeeper.New(conn, opts)
	if err != nil {
		conn.Close()
		return nil, err
	}
	b := &ZooKeeper{l, conn, a.hosts, opts, timeout}
	if err := b.ping(ctx, a, opts, tried); err != nil {
		return b, fmt.Errorf("zookeeper at %s: %w: %w", strings.Join(a.hosts, ","), locker.ErrUnavailable, err)
	}
	return b, nil
}

// ping logs in and reads the base. The servers take any password, and compare it
// when somebody asks for a node.
func (b *ZooKeeper) ping(ctx context.Context, a address, opts zookeeper.Options, tried *dialed) error {
	ctx, cancel := context.WithTimeoutCause(ctx, answerTime, fmt.Errorf("no answer within %v", answerTime))
	defer cancel()
	ctx, leave := tried.within(ctx)
	defer leave()
	client := zkclient.New(b.Conn, opts.ACL)
	if a.user != "" {
		err := zkclient.Act(ctx, client, func() error { return b.Conn.AddAuth("digest", []byte(a.user+":"+a.pass)) })
		if err != nil {
			return tried.explain(err)
		}
	}
	base := opts.Base
	if base == "" {
		base = zookeeper.DefaultBase
	}
	err := zkclient.Act(ctx, client, func() error {
		_, _, err := b.Conn.Get(base)
		return err
	})
	switch {
	case errors.Is(err, zk.ErrNoNode): // the first lock makes it
		return nil
	case errors.Is(err, zk.ErrNoAuth):
		return fmt.Errorf("%s may not be read: check the user name and the password: %w", base, err)
	}
	return tried.explain(err)
}
