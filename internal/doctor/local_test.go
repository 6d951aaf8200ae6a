//go:build linux

package doctor_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// onDisk makes a directory whose file system is not in memory.
func onDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		t.Fatal(err)
	}
	if s.Type == unix.TMPFS_MAGIC || s.Type == unix.OVERLAYFS_SUPER_MAGIC {
		t.Skip("the directory for temporary files is not on a disk")
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestSaneDirectoryIsFineAndStaysAsItIs(t *testing.T) {
	t.Parallel()
	dir := onDisk(t)
	fine(t, examine(t, "local:"+dir), "permissions 0700", "file system")
	fine(t, examine(t, "file:"+dir), "permissions 0700", "file system")
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
		t.Errorf("it has left %v, %v", files, err)
	}
}

func TestDirectoryThatOthersCanWriteToIsFound(t *testing.T) {
	t.Parallel()
	dir := onDisk(t)
	for mode, want := range map[os.FileMode]string{0o770: "local-writable", 0o707: "local-writable", os.ModeSticky | 0o777: "local-crowded"} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		finds(t, examine(t, "local:"+dir), want, dir)
	}
}

func TestDirectoryOfSomebodyElseIsADanger(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can give a directory away")
	}
	dir := onDisk(t)
	if err := os.Chown(dir, 12345, -1); err != nil {
		t.Fatal(err)
	}
	finds(t, examine(t, "local:"+dir), "local-owner", "belongs to user 12345")
}

func TestDefaultDirectoryIsNoted(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", onDisk(t))
	finds(t, examine(t, "local:"), "local-default", "lockstile")
}

func TestDirectoryInMemoryIsNoted(t *testing.T) {
	var s unix.Statfs_t
	if err := unix.Statfs("/dev/shm", &s); err != nil || s.Type != unix.TMPFS_MAGIC {
		t.Skip("/dev/shm is not in memory")
	}
	t.Setenv("TMPDIR", "/dev/shm")
	finds(t, examine(t, "local:"+t.TempDir()), "local-memory", "tmpfs")
}

// mount puts a file system on a directory until the end of the test.
func mount(t *testing.T, kind, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount(kind, dir, kind, 0, options); err != nil {
		t.Skipf("%s cannot be mounted here: %v", kind, err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
	return dir
}

func TestLayersOfAContainerAreNoted(t *testing.T) {
	t.Parallel()
	base := mount(t, "tmpfs", "size=64m") // an overlay on another may be refused
	for _, d := range []string{"lower", "upper", "work"} {
		if err := os.Mkdir(filepath.Join(base, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	dir := mount(t, "overlay", "lowerdir="+base+"/lower,upperdir="+base+"/upper,workdir="+base+"/work")
	finds(t, examine(t, "local:"+dir), "local-container", "overlay")
}
