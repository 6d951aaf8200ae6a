package doctor

import (
	"os"
	"path/filepath"

	"github.com/lockstile/locker/internal/dial"
)

// local looks at a directory in which package local keeps its locks.
func (r *Report) local(b *dial.Local) error {
	dir, err := filepath.Abs(b.Dir)
	if err != nil {
		return err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	a, mode := r.at(dir), info.Mode()
	switch {
	case mode.Perm()&0o022 == 0:
	case mode&os.ModeSticky == 0:
		a.found("local-writable", mode.Perm())
	default:
		a.found("local-crowded", mode.Perm())
	}
	if uid, known := ownerOf(info); known && uid != 0 && uid != os.Geteuid() {
		a.found("local-owner", uid, os.Geteuid())
	}
	if b.ByDefault {
		a.found("local-default")
	}
	a.checked("permissions %04o", mode.Perm())
	system, err := fileSystemOf(dir)
	switch {
	case err != nil:
		a.found("unseen", "the file system", err)
		return nil
	case system.code != "":
		a.found(system.code, system.name)
	}
	a.checked("file system")
	return nil
}

// fileSystem is a kind of file system that is a finding. The zero value is a disk of
// this machine.
type fileSystem struct{ name, code string }
