package matrix

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// stopMyself is the pause that nobody sees coming: a garbage collection, a page
// fault, a suspended machine. It lasts until somebody sends SIGCONT. The signal
// goes to this very thread, which takes it before it goes on; sent to the
// process, another thread may take it, and this one run on for a while.
func stopMyself() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGSTOP) // to ourselves: it cannot fail
}
