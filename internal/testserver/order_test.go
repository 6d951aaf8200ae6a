package testserver

import (
	"net"
	"os"
	"testing"
	"time"
)

// orderly does its clean-ups when it is told to.
type orderly struct {
	TB

	root     string
	cleanups []func()
	removed  func() // called when the folders would go
}

func (o *orderly) Cleanup(f func()) { o.cleanups = append(o.cleanups, f) }

// TempDir is as a test's: the first call decides when all folders go.
func (o *orderly) TempDir() string {
	if o.root == "" {
		o.root = o.TB.TempDir()
		o.Cleanup(func() { o.removed() })
	}
	dir, err := os.MkdirTemp(o.root, "")
	if err != nil {
		o.Fatalf("a folder: %v", err)
	}
	return dir
}

// A server that runs while its folder is removed makes new files there.
func TestServersEndBeforeTheirFolders(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(TB) (addr string){
		"redis":     func(tb TB) string { return Redis(tb).Addr() },
		"etcd":      func(tb TB) string { return Etcd(tb, 1).Members[0].Addr() },
		"zookeeper": func(tb TB) string { return ZooKeeper(tb, 1)[0].Addr() },
		"nats":      func(tb TB) string { return NATS(tb).Addr() },
		"mariadb":   func(tb TB) string { return MariaDB(tb).Addr() },
		"postgres":  func(tb TB) string { return Postgres(tb).Addr() },
	} {
		t.Run(name, func(t *testing.T) {
			o := &orderly{TB: t}
			addr := start(o)
			o.removed = func() {
				if conn, err := net.DialTimeout("tcp", addr, time.Minute); err == nil {
					t.Error("its folder goes while the server runs")
					_ = conn.Close()
				}
			}
			for len(o.cleanups) > 0 {
				last := len(o.cleanups) - 1
				f := o.cleanups[last]
				o.cleanups = o.cleanups[:last]
				f()
			}
		})
	}
}
