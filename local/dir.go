package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/lockstile/locker/internal/lockdir"
)

// DefaultDir returns the directory in which the programs of this user keep their locks
// by default, and makes it if need be: lockstile in $XDG_RUNTIME_DIR, or else
// lockstile-<uid> in [os.TempDir]. It is an error if that belongs to somebody else or
// others can write to it: they could break locks.
//
// A runtime directory that is not this user's own, as sudo -E and su leave it behind,
// is ignored. The directory for temporary files has to be root's or this user's, and
// sticky where everybody can write to it. Otherwise somebody else could move ours away
// and let a second holder in.
//
// Processes that exclude each other must agree on the directory. A job of cron has no
// $XDG_RUNTIME_DIR where the terminal of the same user has one: where both lock, give
// [New] a directory by name.
func DefaultDir() (string, error) {
	if lockdir.Unsupported != nil {
		return "", fmt.Errorf("local: %w", lockdir.Unsupported)
	}
	parent, dir := os.TempDir(), "lockstile-"+strconv.Itoa(os.Geteuid())
	runtime := os.Getenv("XDG_RUNTIME_DIR")
	if filepath.IsAbs(runtime) && trust(runtime, false) == nil { // its specification says to ignore a relative one
		parent, dir = runtime, "lockstile"
	} else if err := trust(parent, true); err != nil {
		return "", fmt.Errorf("local: the directory %s, where the default one would be, %w: use a directory of your own", parent, err)
	}
	dir = filepath.Join(parent, dir)
	err := os.Mkdir(dir, 0o700)
	if err == nil {
		err = os.Chmod(dir, 0o700) //nolint:gosec // a directory, of which the umask may have left us less
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("local: make the default directory: %w", err)
	}
	if err := checkOwn(dir); err != nil {
		return "", fmt.Errorf("local: the default directory %s %w: use a directory of your own", dir, err)
	}
	return dir, nil
}

// trust returns an error if another user could move away a directory that we make in
// parent, or a directory or link that leads to it. It trusts root, who always can, and
// the group that the owner has chosen. If parent is not there, making ours says so.
func trust(parent string, orRoot bool) error {
	real, err := filepath.EvalSymlinks(parent)
	if err != nil {
		return nil //nolint:nilerr // see above
	}
	if err := trustOne(real, orRoot); err != nil {
		return err
	}
	for _, path := range []string{parent, real} { // the links on the way, and where they lead
		for ; path != filepath.Dir(path); path = filepath.Dir(path) {
			if err := trustOne(path, true); err != nil {
				return fmt.Errorf("is reached through %s, which %w", path, err)
			}
		}
	}
	return nil
}

func trustOne(path string, orRoot bool) error {
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return nil //nolint:nilerr // see trust
	case owner(info) != os.Geteuid() && (!orRoot || owner(info) != 0):
		return fmt.Errorf("belongs to user %d and not to %d", owner(info), os.Geteuid())
	case info.IsDir() && info.Mode().Perm()&0o002 != 0 && info.Mode()&os.ModeSticky == 0:
		return fmt.Errorf("can be written to by others (mode %04o)", info.Mode().Perm())
	}
	return nil
}

// checkOwn does not follow a link, which somebody else may have put there.
func checkOwn(dir string) error {
	info, err := os.Lstat(dir)
	switch {
	case err != nil:
		return fmt.Errorf("cannot be looked at: %w", err)
	case !info.IsDir():
		return errors.New("is not a directory")
	case owner(info) != os.Geteuid():
		return fmt.Errorf("belongs to user %d and not to %d", owner(info), os.Geteuid())
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("can be written to by others (mode %04o)", info.Mode().Perm())
	}
	return nil
}
