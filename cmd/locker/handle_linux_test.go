package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockstile/locker/internal/async"
	"github.com/lockstile/locker/internal/netproxy"
	"github.com/lockstile/locker/internal/testserver"
)

func ended(t *testing.T, p *process) int {
	t.Helper()
	select {
	case status := <-p.status:
		p.status <- status
		return status
	case <-time.After(patience):
		t.Fatalf("%v does not end", p.cmd.Args[1:])
	}
	return 0
}

func TestLockWhoseHandleIsTakenLateByNobodyIsGivenBack(t *testing.T) {
	t.Parallel()
	url := redisURL(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	fd := int(w.Fd())
	if err := syscall.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	for full := make([]byte, 4096); err == nil; {
		_, err = syscall.Write(fd, full)
	}
	if err := syscall.SetNonblock(fd, false); err != nil {
		t.Fatal(err)
	}
	hanging := exec.Command("sh", "-c", `exec "$0" lock -b "$1" x >&3`, os.Args[0], url)
	hanging.ExtraFiles = []*os.File{w}
	p := spawn(t, nil, hanging)
	_ = w.Close()
	waitFor(t, "the lock", func() bool { return inspected(t, url).Held })
	time.Sleep(time.Second)
	p.signal(syscall.SIGTERM)
	select {
	case status := <-p.status:
		p.status <- status
		t.Logf("SIGTERM ends it, with %d", status)
	case <-time.After(10 * time.Second):
		t.Error("SIGTERM does not end it within 10 s, while it waits for whoever is to read the handle")
	}
	_ = r.Close()
	t.Logf("status %d: %s", ended(t, p), p.errs)
	free(t, url, "x")
}

func TestLockThatIsCancelledBeforeItsHandleIsWritten(t *testing.T) {
	t.Parallel()
	srv := testserver.Redis(t)
	proxy, err := netproxy.Listen(srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	proxy.Delay(200 * time.Millisecond)
	file := filepath.Join(t.TempDir(), "handle")
	p := launch(t, "lock", "-b", "redis://"+proxy.Addr(), "--ttl", "1h", "--handle-file", file, "x")
	waitFor(t, "the grant", func() bool { return srv.Do("EXISTS", "x") == "1" })
	srv.Do("PEXPIRE", "x", "60000")
	waitFor(t, "the renewal with which it is detached", func() bool { n, _ := strconv.Atoi(srv.Do("PTTL", "x")); return n > 60_000 })
	if _, err := os.Stat(file); err == nil {
		t.Fatal("nothing is tested: the handle is written")
	}
	p.signal(syscall.SIGINT)
	status := ended(t, p)
	if left := srv.Do("PTTL", "x"); status == 0 || left != "-2" {
		t.Errorf("status %d, it said %q, and the lock is left for %s ms", status, p.out, left)
	}
}

func TestUsageErrorsDoNotShowAHandle(t *testing.T) {
	t.Parallel()
	url := redisURL(t)
	handle := locked(t, url, "x")
	for _, args := range [][]string{
		{"unlock", "-b", url, "--token", handle},
		{"unlock", "-b", url, "--force", "--token", handle, "x"},
		{"unlock", "-b", url, "--force", handle},
		{"unlock", "-b", url, "--force", "x", handle},
		{"renew", "-b", url, "--ttl", handle},
		{"renew", "-b", url, "--json=" + handle},
		{"unlock", "-b", url, "--" + handle},
		{"unlock", "-b", url, "--handle-file", handle},
		{"unlock", "-b", url, "--handle=" + handle},
		{"unlock", "-b", handle},
		{handle, "unlock"},
		{"-b", url, handle},
		{"help", handle},
		{"doctor", "-b", url, handle},
		{"list", "-b", url, "x", handle},
		{"inspect", "-b", url, "x", handle},
		{"lock", "-b", url, "--no-wait", "y", handle},
	} {
		p := launch(t, args...)
		status := ended(t, p)
		p.errs.ends()
		p.out.ends()
		if said := p.out.String() + p.errs.String(); strings.Contains(said, handle) {
			t.Errorf("%q, status %d: %s", strings.Split(strings.ReplaceAll(strings.Join(args, "\x00"), handle, "HANDLE"), "\x00"), status, strings.ReplaceAll(said, handle, "<THE SECRET>"))
		}
	}
}

func TestEmptyHandleFileIsAVariableThatIsNotSet(t *testing.T) {
	t.Parallel()
	url := redisURL(t)
	p := launch(t, "lock", "-b", url, "--handle-file", "", "x")
	if status := ended(t, p); status != 64 {
		t.Errorf("lock: status %d; where the token was expected, it printed the handle: %v", status, strings.HasPrefix(p.out.String(), "lockstile1-"))
	}
	other := locked(t, url, "other")
	p = launchWith(t, []string{"LOCKER_HANDLE=" + other}, "unlock", "-b", url, "--handle-file", "")
	if status := ended(t, p); status != 64 {
		t.Errorf("unlock: status %d", status)
	}
	if launch := launch(t, "inspect", "-b", url, "other"); ended(t, launch) == 0 && strings.Contains(launch.out.String(), "no") {
		t.Errorf("the lock of LOCKER_HANDLE was freed, in place of the one whose file was to be named")
	}
}

func TestHandleFileThatIsNoOrdinaryFile(t *testing.T) {
	t.Parallel()
	url, dir := redisURL(t), t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	read := make(chan string, 1)
	r, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		b := make([]byte, 2000)
		n, _ := r.Read(b)
		read <- string(b[:n])
	}()
	p := launch(t, "lock", "-b", url, "--handle-file", fifo, "x")
	status := ended(t, p)
	info, err := os.Lstat(fifo)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-read:
		if !strings.HasPrefix(got, "lockstile1-") {
			t.Errorf("the reader of the pipe has read %q", got)
		}
	case <-time.After(2 * time.Second):
		if status == 0 {
			t.Errorf("the reader of the pipe hears nothing, and the status is 0: the pipe has become a %v", info.Mode())
		}
	}
	_ = r.Close()

	target, link := filepath.Join(dir, "target"), filepath.Join(dir, "link")
	writeFile(t, target, "", 0o600)
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	p = launch(t, "lock", "-b", url, "--handle-file", link, "y")
	if status := ended(t, p); status == 0 && readFile(t, target) == "" {
		info, _ := os.Lstat(link)
		t.Errorf("a link: status 0, where it leads there is nothing, and it has become a %v", info.Mode())
	}

	if os.Getuid() != 0 {
		return
	}
	device := filepath.Join(dir, "null") // as /dev/null, /dev/stdout, /dev/fd/3 are, in a container where a job is root
	if err := syscall.Mknod(device, syscall.S_IFCHR|0o666, 1<<8|3); err != nil {
		t.Skip(err)
	}
	p = launch(t, "lock", "-b", url, "--handle-file", device, "z")
	status = ended(t, p)
	if info, err := os.Lstat(device); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		t.Errorf("a device: status %d, and it has become a %v that everybody used, with a secret in it", status, info.Mode())
	}
}

func TestHandleOfALockThatIsHeldIsNotLost(t *testing.T) {
	t.Parallel()
	url, file := redisURL(t), filepath.Join(t.TempDir(), "handle")
	locked(t, url, "--handle-file", file, "x")
	full := exec.Command("sh", "-c", `exec "$0" lock -b "$1" --handle-file "$2" y >/dev/full`, os.Args[0], url, file)
	spawn(t, nil, full).complains(74, "output", "no space left")
	p := launch(t, "unlock", "-b", url, "--handle-file", file)
	if status := ended(t, p); status != 0 {
		t.Errorf("the handle of x was written over by that of y, which was given back: status %d, %s", status, p.errs)
	}
	free(t, url, "x")
}

func TestLongestTextOfAHolder(t *testing.T) {
	t.Parallel()
	url := redisURL(t)
	launch(t, "run", "-b", url, "--holder", strings.Repeat("h", 256), "x", "--", "true").ends(0)
	p := launch(t, "lock", "-b", url, "--holder", strings.Repeat("h", 256), "x")
	if status := ended(t, p); status != 0 {
		t.Errorf("status %d: %s", status, p.errs)
	}
}

// Whoever is to read the token hangs, and a signal comes: the lock is to be given back. While the store is asked for that, the reader goes on: the call that prints,
// which nobody waits for any more, then replaces the file, which has the handle of another lock.
func TestHandleOfAnotherLockIsNotReplacedAfterASignal(t *testing.T) {
	file := filepath.Join(t.TempDir(), "handle")
	if err := os.WriteFile(file, []byte("the handle of another lock\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	stdout := os.Stdout
	os.Stdout = w
	defer func() { os.Stdout = stdout; _ = w.Close() }()
	_ = w.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	for err == nil { // until nothing more goes into the pipe
		_, err = w.Write(make([]byte, 1<<12))
	}
	_ = w.SetWriteDeadline(time.Time{})

	signals := make(chan os.Signal, 1)
	c := &lockCommand{file: file}
	time.AfterFunc(100*time.Millisecond, func() { signals <- syscall.SIGTERM })
	printed := make(chan error, 1)
	ended := until(signals, func(ctx context.Context) { // as in handOut
		err = async.Do(ctx, func() error {
			err := c.print(ctx, lockedJSON{Name: "x", Token: 7, Handle: "of x"})
			printed <- err
			return err
		})
	})
	if ended == nil || !errors.As(err, new(*signalError)) && err == nil {
		t.Fatalf("%v, %v", ended, err)
	}
	go func() { _, _ = io.Copy(io.Discard, r) }() // here the lock is given back
	if err := <-printed; err == nil {
		t.Error("nobody waits for what is printed any more, and it is said to be")
	}
	if has := readFile(t, file); has != "the handle of another lock\n" {
		t.Errorf("the lock x is given back, and the file has the handle %q", has)
	}
}
