package testserver

import (
	"net"
	"sync/atomic"
	"time"
)

// SlowConn is a connection on which each write takes a while, as with a server that has
// much to do, and which counts them. The clients of ZooKeeper and PostgreSQL write every
// request as a whole.
type SlowConn struct {
	net.Conn
	Each   time.Duration
	Writes *atomic.Int64
}

func (c SlowConn) Write(b []byte) (int, error) {
	time.Sleep(c.Each)
	c.Writes.Add(1)
	return c.Conn.Write(b)
}
