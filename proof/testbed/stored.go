package testbed

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/jackc/pgx/v5"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/proof/matrix"
)

// storedOnRedis returns the keys of all servers, with the members of those that have members, and
// the memory that the servers say they use.
func storedOnRedis(servers ...*testserver.RedisServer) func() (matrix.Stored, error) {
	const count = `local n = 0
		for _, key in ipairs(redis.call('KEYS', '*')) do
			local members = ({zset = 'ZCARD', hash = 'HLEN', set = 'SCARD', list = 'LLEN'})[redis.call('TYPE', key).ok]
			n = n + 1 + (members and redis.call(members, key) or 0)
		end
		return {n, tonumber(string.match(redis.call('INFO', 'memory'), 'used_memory:(%d+)'))}`
	return func() (sum matrix.Stored, err error) {
		for _, srv := range servers {
			said, err := srv.TryDo("EVAL", count, "0")
			if err != nil {
				return sum, err
			}
			var entries int
			var bytes int64
			if _, err := fmt.Sscan(said, &entries, &bytes); err != nil {
				return sum, fmt.Errorf("counting keys: the server says %q: %w", said, err)
			}
			sum.Entries, sum.Bytes = sum.Entries+entries, sum.Bytes+bytes
		}
		return sum, nil
	}
}

// storedOnEtcd returns the keys and the leases, and the size of one member's database without the
// history of its keys, which is compacted first.
func storedOnEtcd(endpoints []string) (sum matrix.Stored, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints})
	if err != nil {
		return sum, err
	}
	defer client.Close()
	keys, err := client.Get(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithCountOnly())
	if err != nil {
		return sum, err
	}
	leases, err := client.Leases(ctx)
	if err != nil {
		return sum, err
	}
	if _, err := client.Compact(ctx, keys.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		return sum, err
	}
	status, err := client.Status(ctx, endpoints[0])
	if err != nil {
		return sum, err
	}
	return matrix.Stored{Entries: int(keys.Count) + len(leases.Leases), Bytes: status.DbSizeInUse}, nil
}

// storedOnZooKeeper returns the nodes and the sessions, and the size of the nodes' data.
func storedOnZooKeeper(lab *matrix.Lab, servers []*testserver.ZooKeeperServer) (sum matrix.Stored, err error) {
	err = lab.Try(func() {
		leader := testserver.ZooKeeperLeader(lab, servers)
		sum.Entries = int(leader.Stat("zk_znode_count") + leader.Stat("zk_global_sessions"))
		sum.Bytes = leader.Stat("zk_approximate_data_size")
	})
	return sum, err
}

// storedOnPostgres returns the rows of the backend's tables and the advisory locks, and the
// size of the tables, with what a VACUUM has not yet made free.
func storedOnPostgres(url string) (sum matrix.Stored, err error) {
	err = askPostgres(url, func(ctx context.Context, conn *pgx.Conn) error {
		err := conn.QueryRow(ctx, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'`).Scan(&sum.Entries)
		if err != nil {
			return err
		}
		rows, _ := conn.Query(ctx, `SELECT relname::text FROM pg_class WHERE relkind = 'r' AND relname LIKE 'lockstile%'`)
		tables, err := pgx.CollectRows(rows, pgx.RowTo[string]) // with the error of the query
		for _, table := range tables {
			var entries int
			var bytes int64
			count := "SELECT count(*), pg_total_relation_size($1::regclass) FROM " + pgx.Identifier{table}.Sanitize()
			err = errors.Join(err, conn.QueryRow(ctx, count, table).Scan(&entries, &bytes))
			sum.Entries, sum.Bytes = sum.Entries+entries, sum.Bytes+bytes
		}
		return err
	})
	return sum, err
}

// storedInFiles returns the files of a folder and their sizes.
func storedInFiles(dir string) (sum matrix.Stored, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			sum.Entries, sum.Bytes = sum.Entries+1, sum.Bytes+info.Size()
		}
		return err
	})
	return sum, err
}
