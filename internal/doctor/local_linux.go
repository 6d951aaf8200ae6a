package doctor

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// kinds are those of statfs(2) that matter. Some have no name in package unix.
var kinds = map[uint32]kind{
	unix.NFS_SUPER_MAGIC:       {"NFS", overNetwork},
	unix.CIFS_SUPER_MAGIC:      {"CIFS", overNetwork},
	unix.SMB_SUPER_MAGIC:       {"SMB", overNetwork},
	unix.SMB2_SUPER_MAGIC:      {"SMB", overNetwork},
	unix.FUSE_SUPER_MAGIC:      {"FUSE", overNetwork},
	unix.V9FS_MAGIC:            {"9P", overNetwork},
	unix.AFS_SUPER_MAGIC:       {"AFS", overNetwork},
	unix.AFS_FS_MAGIC:          {"AFS", overNetwork},
	unix.CODA_SUPER_MAGIC:      {"Coda", overNetwork},
	unix.CEPH_SUPER_MAGIC:      {"Ceph", overNetwork},
	unix.OCFS2_SUPER_MAGIC:     {"OCFS2", overNetwork},
	unix.NCP_SUPER_MAGIC:       {"NCP", overNetwork},
	0x01161970:                 {"GFS2", overNetwork},
	0x0bd00bd0:                 {"Lustre", overNetwork},
	0x47504653:                 {"GPFS", overNetwork},
	unix.TMPFS_MAGIC:           {"tmpfs", inMemory},
	unix.RAMFS_MAGIC:           {"ramfs", inMemory},
	unix.OVERLAYFS_SUPER_MAGIC: {"overlay", layered},
	unix.EXT4_SUPER_MAGIC:      {"ext", onDisk},
	unix.XFS_SUPER_MAGIC:       {"XFS", onDisk},
	unix.BTRFS_SUPER_MAGIC:     {"Btrfs", onDisk},
	unix.F2FS_SUPER_MAGIC:      {"F2FS", onDisk},
	0x2fc12fc1:                 {"ZFS", onDisk},
}

// kindOf takes one that is not in the list for a local one.
func kindOf(magic uint32) kind {
	if k, ok := kinds[magic]; ok {
		return k
	}
	return kind{fmt.Sprintf("0x%x", magic), onDisk}
}

func statfs(dir string) (space, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return space{}, err
	}
	return space{
		kind:  kindOf(uint32(s.Type)),     //nolint:gosec // magic numbers have 32 bits; some machines extend their sign
		bytes: s.Bavail * uint64(s.Bsize), //nolint:gosec // a size
		files: s.Ffree, countsFiles: s.Files > 0,
	}, nil
}

func ownerOf(info os.FileInfo) (uid int, known bool) {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(s.Uid), true
}
