package matrix

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// stopMyself is a pause without warning, such as a garbage collection, a page fault or a
// suspended machine. It lasts until SIGCONT. The signal goes to this thread, which takes
// it before it goes on. If it went to the process, another thread could take it while
// this one runs on for a while.
func stopMyself() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGSTOP) // to ourselves: it cannot fail
}
