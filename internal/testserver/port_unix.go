//go:build unix

package testserver

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// reserve asks the kernel for a port that nobody uses. Until the test ends the kernel
// gives that port to nobody else who asks for any port, also while the server is down.
// The server can listen on it: a socket that does not listen shares its port with
// one that does, where both want that (SO_REUSEADDR, as servers set it).
func reserve(t TB) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return 0, os.NewSyscallError("socket", err)
	}
	unix.CloseOnExec(fd)
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return 0, os.NewSyscallError("setsockopt", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, os.NewSyscallError("bind", err)
	}
	addr, err := unix.Getsockname(fd)
	if err != nil {
		return 0, os.NewSyscallError("getsockname", err)
	}
	in, ok := addr.(*unix.SockaddrInet4)
	if !ok {
		return 0, errors.New("the socket has no TCP address")
	}
	return in.Port, nil
}
