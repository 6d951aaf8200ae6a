package main

import (
	"syscall"
	"testing"
)

func TestCommandDiesWithALockerThatIsKilled(t *testing.T) {
	t.Parallel()
	p := launch(t, "run", "-b", redisURL(t), "x", "--", "sh", "-c", report)
	p.word("token")
	p.signal(syscall.SIGKILL)
	p.ends(-int(syscall.SIGKILL))
}
