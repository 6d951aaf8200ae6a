//go:build linux

package doctor_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/lockstile/locker/internal/doctor"
)

func TestFileSystemThatIsNotTheMachinesOwnIsADanger(t *testing.T) {
	t.Parallel()
	finds(t, examine(t, "local:"+mountFUSE(t)), doctor.Danger, "FUSE", "not this machine's own")
}

// mountFUSE mounts an empty file system that this process serves: what
// somebody needs who looks at its root, and no more.
func mountFUSE(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Open("/dev/fuse", syscall.O_RDWR|syscall.O_CLOEXEC, 0) // package os wants to poll it before it can be
	if err != nil {
		t.Skipf("no FUSE: %v", err)
	}
	done := make(chan struct{})
	served := false
	t.Cleanup(func() { // after the file system is unmounted
		if served {
			<-done
		}
		_ = syscall.Close(fd)
	})
	dir := mount(t, "fuse", fmt.Sprintf("fd=%d,rootmode=40000,user_id=%d,group_id=0", fd, os.Geteuid()))
	served = true
	go func() {
		defer close(done)
		serveFUSE(fd)
	}()
	return dir
}

// The requests of linux/fuse.h that are answered.
const (
	fuseGetAttr = 3
	fuseStatFS  = 17
	fuseInit    = 26
	fuseForget  = 2 // wants no answer
)

func serveFUSE(fd int) {
	in := make([]byte, 1<<17)
	for {
		n, err := syscall.Read(fd, in)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || n < 40 {
			return // unmounted
		}
		var words []uint32
		var failed int32
		switch binary.NativeEndian.Uint32(in[4:]) {
		case fuseForget:
			continue
		case fuseInit:
			words = make([]uint32, 16)
			words[0], words[1], words[5], words[6] = 7, 31, 4096, 1 // version, largest write, grain of times
		case fuseGetAttr:
			words = make([]uint32, 26)
			words[4], words[19], words[20] = 1, syscall.S_IFDIR|0o700, 2 // inode, mode, links
			words[21] = uint32(os.Geteuid())
		case fuseStatFS:
			words = make([]uint32, 20)
			words[4], words[10], words[11], words[12] = 1<<20, 4096, 255, 4096 // blocks that are left, and their size
		default:
			failed = -int32(syscall.ENOSYS)
		}
		if !answerFUSE(fd, in, failed, words) {
			return
		}
	}
}

func answerFUSE(fd int, request []byte, failed int32, words []uint32) bool {
	var out bytes.Buffer
	for _, v := range []any{uint32(16 + 4*len(words)), failed, request[8:16], words} {
		if binary.Write(&out, binary.NativeEndian, v) != nil {
			return false
		}
	}
	_, err := syscall.Write(fd, out.Bytes())
	return err == nil
}
