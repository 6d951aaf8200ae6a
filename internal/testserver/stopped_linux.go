package testserver

import "golang.org/x/sys/unix"

// AwaitStopped returns when all threads of a child that was sent SIGSTOP have stopped, or it has
// ended. A server with many threads may still answer for a moment.
func AwaitStopped(pid int) error {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return err
		}
	}
}
