package dial

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/credentials"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/etcd"
)

const (
	// etcdKeepAlive is after how long a silent connection is asked for a sign
	// of life, so that a member which hangs is left for another. The client
	// asks no sooner than this, whatever it is told.
	etcdKeepAlive = 10 * time.Second

	// etcdKeepAliveReply is how long the answer may take.
	etcdKeepAliveReply = 3 * time.Second
)

func etcdSchemes() []Scheme {
	client, err := clientv3.New(etcdConfig([]string{"1", "2", "3"}))
	if err != nil {
		panic(err) // no user and no TLS: it connects when it is used
	}
	b, err := newEtcd(client, etcd.Options{})
	if err != nil {
		panic(err) // a client and no options: nothing that could be wrong
	}
	g := b.Guarantees()
	_ = b.Close() // nothing was opened
	return []Scheme{
		{"etcd://[USER:PASS@]HOST[:PORT][,…]", "an etcd cluster (here: of 3): name all its members", g},
		{"etcds://[USER:PASS@]HOST[:PORT][,…]", "the same, over TLS", g},
	}
}

// Etcd is a Locker and the client that was made for it.
type Etcd struct {
	*etcd.Locker
	Client *clientv3.Client
	Prefix string // of the keys
}

func newEtcd(client *clientv3.Client, opts etcd.Options) (*Etcd, error) {
	l, err := etcd.New(client, opts)
	if err != nil {
		return nil, err
	}
	return &Etcd{l, client, opts.Prefix}, nil
}

// Close closes the Locker first: its clean-ups need the client.
func (b *Etcd) Close() error {
	err := b.Locker.Close()
	if cerr := b.Client.Close(); !errors.Is(cerr, context.Canceled) { // as it reports that its own context has ended
		err = errors.Join(err, cerr)
	}
	return err
}

// etcdConfig sets what URL has no parameters for. The log would go to stderr.
func etcdConfig(hosts []string) clientv3.Config {
	return clientv3.Config{
		Endpoints:            hosts,
		DialTimeout:          2 * answerTime, // bounds the request for the user's first token, which also ends with ctx
		DialKeepAliveTime:    etcdKeepAlive,
		DialKeepAliveTimeout: etcdKeepAliveReply,
		Logger:               zap.NewNop(),
	}
}

func openEtcd(ctx context.Context, scheme, rest string) (Backend, error) {
	a, err := parseServers(rest, "2379")
	if err != nil {
		return nil, err
	}
	if a.path != "" {
		return nil, fmt.Errorf("%s:// takes no path: what goes before the names of locks is ?prefix=TEXT", scheme)
	}
	if err := a.wholeUser(scheme); err != nil {
		return nil, err
	}
	config := etcdConfig(a.hosts)
	config.Username, config.Password = a.user, a.pass
	var creds credentials.TransportCredentials
	if config.TLS, creds, err = etcdTLS(&a, scheme); err != nil {
		return nil, err
	}
	opts := etcd.Options{Prefix: a.take("prefix")}
	if err := a.nothingLeft(scheme); err != nil {
		return nil, err
	}
	b, err := dialEtcd(ctx, config, creds, opts)
	if err != nil {
		err = fmt.Errorf("etcd at %s: %w: %w", strings.Join(a.hosts, ","), locker.ErrUnavailable, err)
	}
	return b, err
}

// etcdTLS reads the parameters that etcdctl calls --cacert, --cert, --key and
// --insecure-skip-tls-verify. Without TLS it returns nil.
func etcdTLS(a *address, scheme string) (*tls.Config, credentials.TransportCredentials, error) {
	base := &tls.Config{MinVersion: tls.VersionTLS12}
	skip := a.query.Has("skip_verify")
	if err := a.boolean("skip_verify", &base.InsecureSkipVerify); err != nil {
		return nil, nil, err
	}
	if skip && scheme == "etcd" {
		return nil, nil, errors.New("skip_verify is for TLS: write etcds://")
	}
	f, err := a.takeFiles(scheme == "etcds", "etcds")
	if err != nil || scheme == "etcd" {
		return nil, nil, err
	}
	return base, f.credentials(base), nil
}

// dialEtcd returns the backend, with an error unless a majority answers, and lets the user read
// below the prefix. The client logs the user in when it is made, and looks at no
// context but the one of its life.
func dialEtcd(ctx context.Context, config clientv3.Config, creds credentials.TransportCredentials, opts etcd.Options) (Backend, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, answerTime, fmt.Errorf("no answer within %v", answerTime))
	defer cancel()
	tried := newDialed(config.Endpoints)
	ctx, leave := tried.within(ctx)
	defer leave()
	config.DialOptions = tried.options(creds)
	life, end := context.WithCancel(context.Background())
	config.Context = life
	stop := context.AfterFunc(ctx, end)
	client, err := clientv3.New(config)
	if !stop() || err != nil {
		end()
		if err == nil {
			_ = client.Close() // nothing was asked yet
		}
		return nil, etcdCause(ctx, tried, err)
	}
	b, err := newEtcd(client, opts)
	if err != nil {
		end()
		return nil, errors.Join(err, client.Close())
	}
	// No lock's key has a slash after the prefix.
	if _, err := client.Get(ctx, opts.Prefix+"/"); err != nil {
		return b, etcdCause(ctx, tried, err)
	}
	return b, nil
}

// etcdCause says why there is no answer: what the servers say, or else why ctx
// ended, and what is known of connections.
func etcdCause(ctx context.Context, tried *dialed, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return tried.explain(cause)
	}
	return err
}
