package doctor

import (
	"fmt"
	"os"
)

const (
	// roomBytes and roomFiles are what a directory for locks should have
	// left: some thousand names at 12 kB each.
	roomBytes = 32 << 20
	roomFiles = 2000
)

// Local looks at a directory in which package local keeps its locks. byDefault
// says that nobody named it.
func Local(r *Report, dir string, byDefault bool) error {
	a := r.at(dir)
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	a.permissions(info)
	a.fileSystem(dir)
	if byDefault {
		a.note("the directory is this user's default one, which depends on XDG_RUNTIME_DIR and TMPDIR",
			"a job of cron or a service mostly has other variables than a terminal: they do not exclude each other",
			"name a directory in every job: -b local:DIR")
	}
	return nil
}

// permissions: whoever can remove a lock's file lets a second holder in.
func (a at) permissions(info os.FileInfo) {
	mode := info.Mode()
	switch {
	case mode.Perm()&0o022 == 0:
	case mode&os.ModeSticky == 0:
		a.danger(fmt.Sprintf("other users can write to the directory (mode %04o)", mode.Perm()),
			"whoever deletes the file of a held lock lets a second holder in", "chmod go-w "+a.where)
	default:
		a.note(fmt.Sprintf("other users can make files in the directory (mode 1%03o)", mode.Perm()),
			"they cannot delete locks, but can make a name's file first and keep you out", "chmod go-w "+a.where)
	}
	a.checked("permissions %04o", mode.Perm())
	if uid, known := ownerOf(info); known && uid != 0 && uid != os.Geteuid() {
		a.danger(fmt.Sprintf("the directory belongs to user %d, and this is user %d", uid, os.Geteuid()),
			"its owner can delete the file of a held lock, which lets a second holder in", "use a directory of your own")
	}
}

// space is what statfs tells.
type space struct {
	kind        kind
	bytes       uint64 // for whoever is not root
	files       uint64
	countsFiles bool // some file systems make room for files as they come
}

// kind is a file system as far as locks are concerned.
type kind struct {
	name  string
	reach reach
}

type reach uint8

const (
	onDisk reach = iota
	inMemory
	overNetwork
	layered
)

func (a at) fileSystem(dir string) {
	s, err := statfs(dir)
	if err != nil {
		a.blind("the file system", err, "see that it is a local one")
		return
	}
	switch s.kind.reach {
	case overNetwork:
		a.danger("the directory is on "+s.kind.name+", a file system that is not this machine's own",
			"locks may reach this host alone or nobody at all, and break with the connection",
			"use a directory on a local disk; between hosts, a backend with a server")
	case inMemory:
		a.note("the directory is in memory ("+s.kind.name+")",
			"a reboot empties it; tokens go on from the machine's clock, which must not have gone back by then",
			"use a directory on a disk, or a clock that is kept by NTP")
	case layered:
		a.note("the directory is in the layers of a container ("+s.kind.name+")",
			"processes in other containers and on the host do not see these locks, and the files go with the container",
			"mount a directory of the host that all of them share")
	case onDisk:
	}
	a.checked("file system %s", s.kind.name)
	a.room(s)
}

func (a at) room(s space) {
	const means = "a lock whose token cannot be written is refused with an error; none that is held is lost"
	switch {
	case s.bytes < roomBytes:
		a.note(fmt.Sprintf("%d kB are left on the file system", s.bytes>>10), means, "make room, or use another file system")
	case s.countsFiles && s.files < roomFiles:
		a.note(fmt.Sprintf("%d files can still be made on the file system", s.files), means, "make room for files (inodes), or use another file system")
	}
	a.checked("%d MB free", s.bytes>>20)
}
