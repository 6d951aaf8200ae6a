package local

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// nobody is a user other than root.
const nobody = 65534

// openDir makes a directory that everybody can come to and that belongs to a
// user who is not root: nobody, or ourselves.
func openDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	err := os.Chmod(filepath.Dir(dir), 0o711) // which is the test's own
	if err == nil && os.Geteuid() == 0 {
		err = os.Chown(dir, nobody, nobody)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// startNotRoot starts a worker as the user of openDir. The test binary lies where
// another user cannot come, and is found all the same as what the process runs.
func startNotRoot(t *testing.T, kind string, args ...string) *worker {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", args...)
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	return startAs(t, cmd, kind)
}

// sweep has systemd-tmpfiles delete what it may in dir, however young it is.
func sweep(t *testing.T, dir string) {
	t.Helper()
	sweeper, err := exec.LookPath("systemd-tmpfiles")
	if err != nil {
		t.Skip("systemd-tmpfiles is not installed, so that nobody sweeps")
	}
	litter := filepath.Join(dir, "litter")
	writeFile(t, litter, nil)
	config := filepath.Join(t.TempDir(), "sweep.conf")
	writeFile(t, config, []byte("d "+dir+" - - - 0\n"))
	if out, err := exec.Command(sweeper, "--clean", config).CombinedOutput(); err != nil {
		t.Fatalf("systemd-tmpfiles: %v: %s", err, out)
	}
	if _, err := os.Stat(litter); err == nil {
		t.Fatal("systemd-tmpfiles has deleted nothing")
	}
}

// A lock that is held for longer than files may lie about stays held.
func TestSweeperOfTemporaryFilesLeavesTheFileOfAHeldLock(t *testing.T) {
	for what, prepare := range map[string]func(dir string){
		"new": func(string) {},
		"of a lock that was broken": func(dir string) {
			broken := mustLock(t, newLocker(t, dir), "x")
			mustBreak(t, newLocker(t, dir), true)
			_ = broken.Unlock(t.Context())
		},
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			prepare(dir)
			lock := mustLock(t, newLocker(t, dir), "x")
			sweep(t, dir)
			if second, err := newLocker(t, dir).TryLock(patience(t), "x"); err == nil {
				t.Errorf("two hold the lock, with tokens %d and %d", lock.Token(), second.Token())
				mustUnlock(t, second)
				return
			}
			mustUnlock(t, lock)
		})
	}
}

// Everything that is ever in the directory is protected from all that sweep on this
// machine.
func TestFilesAreMadeSticky(t *testing.T) {
	dir := t.TempDir()
	l := newLocker(t, dir)
	for _, name := range []string{"x", "y"} {
		mustUnlock(t, mustLock(t, l, name))
	}
	lock := mustLock(t, l, "x")
	mustBreak(t, newLocker(t, dir), true)
	_ = lock.Unlock(t.Context())
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 3 {
		t.Fatalf("%v, %v, want two locks and .break", files, err)
	}
	for _, f := range files {
		if info, err := f.Info(); err != nil || info.Mode() != os.ModeSticky|0o600 {
			t.Errorf("%s: %v, %v, want -rw------- and sticky", f.Name(), info.Mode(), err)
		}
	}
}

// withUmask starts what start starts with no permission left in what it makes.
func withUmask(t *testing.T, start func() *worker) *worker {
	t.Helper()
	before := syscall.Umask(0o777)
	defer syscall.Umask(before)
	return start()
}

// Root reads what nobody may read, so this takes another user.
func TestUmaskThatAllowsNothingLeavesLocksUsable(t *testing.T) {
	dir := openDir(t)
	start := func(kind string) *worker {
		return withUmask(t, func() *worker { return startNotRoot(t, kind, dir, "x") })
	}
	t.Setenv("XDG_RUNTIME_DIR", dir)
	for range 2 {
		start("home").line(t)
		first := start("hold")
		first.line(t)
		for _, want := range []string{"true", "false"} { // .break is made, and used again
			if got := start("break").line(t); got != want {
				t.Errorf("broken: %s, want %s", got, want)
			}
		}
		second := start("hold")
		second.line(t)
		first.kill()
		second.kill()
	}
}

// Root's directories are nobody's runtime directory but root's.
func TestRuntimeDirectoryOfRootIsNoOtherUsers(t *testing.T) {
	temp := openDir(t)
	t.Setenv("XDG_RUNTIME_DIR", "/")
	t.Setenv("TMPDIR", temp)
	if got := startNotRoot(t, "home").line(t); filepath.Dir(got) != temp {
		t.Errorf("%s, want one in %s", got, temp)
	}
}
