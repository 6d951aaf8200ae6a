//go:build !unix

package testserver

import (
	"errors"
	"net"
)

// reserve asks for a port that nobody uses. Somebody may take it before the server does.
func reserve(TB) (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	addr, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return 0, errors.New("the listener has no TCP address")
	}
	return addr.Port, nil
}
