package testbed

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/etcd"
	"github.com/lockstile/locker/internal/specimen"
	"github.com/lockstile/locker/open"
	"github.com/lockstile/locker/postgres"
	"github.com/lockstile/locker/zookeeper"
)

// Open makes the Locker of a worker process, which ends with the process. It
// knows the URLs of this testbed's subjects, which are not all for users:
// "specimen:FLAW@host:port" is a lock that is broken on purpose, and
// "cluster:NODE=PROXY,…" a Redis Cluster behind proxies.
func Open(ctx context.Context, text string) (locker.Locker, error) {
	scheme, rest, _ := strings.Cut(text, ":")
	switch scheme {
	case "etcd":
		return openEtcd(strings.TrimPrefix(rest, "//"))
	case "zk":
		return openZooKeeper(strings.TrimPrefix(rest, "//"))
	case "postgres":
		return openPostgres(ctx, text)
	case "nats":
		return openNATS(ctx, text)
	case "mariadb":
		return openMariaDB(strings.TrimPrefix(rest, "//"))
	case "cluster":
		return openCluster(rest)
	case "specimen":
		i := strings.LastIndex(rest, "@")
		if i < 0 {
			return nil, fmt.Errorf("testbed: open %q: a specimen has the form specimen:FLAW@host:port", text)
		}
		l, _ := specimen.New(rest[i+1:], rest[:i])
		return l, nil
	}
	return open.URL(ctx, text)
}

func openEtcd(addrs string) (locker.Locker, error) {
	client, err := clientv3.New(clientv3.Config{
		Endpoints:         strings.Split(addrs, ","),
		DialKeepAliveTime: time.Second, DialKeepAliveTimeout: time.Second,
	})
	if err != nil {
		return nil, fmt.Errorf("testbed: %w", err)
	}
	return etcd.New(client, etcd.Options{})
}

func openZooKeeper(addrs string) (locker.Locker, error) {
	session := zookeeper.NewSession(nil)
	conn, _, err := zk.Connect(strings.Split(addrs, ","), zooKeeperTTL, zk.WithDialer(session.Dial), zk.WithLogger(silent{}))
	if err != nil {
		return nil, fmt.Errorf("testbed: %w", err)
	}
	return zookeeper.New(conn, zookeeper.Options{Session: session})
}

// silent is a log that nobody reads.
type silent struct{}

// Printf implements zk.Logger.
func (silent) Printf(string, ...any) {}

// openPostgres takes parameters that are not the server's: mode (session, tx or
// tx-aside), and sync_standby=true.
func openPostgres(ctx context.Context, text string) (locker.Locker, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, errors.New("testbed: the URL of a database is not understood") // it may show a password
	}
	query := u.Query()
	mode := query.Get("mode")
	opts := postgres.Options{SyncStandby: query.Get("sync_standby") == "true"}
	query.Del("mode")
	query.Del("sync_standby")
	u.RawQuery = query.Encode()
	pool, err := pgxpool.New(ctx, u.String())
	if err != nil {
		return nil, fmt.Errorf("testbed: %w", err)
	}
	switch mode {
	case "tx", "tx-aside":
		return newInTransactions(pool, mode == "tx-aside"), nil
	case "session":
		return postgres.NewSession(pool, postgres.Options{})
	}
	return postgres.New(pool, opts)
}
