package doctor

import (
	"os"
	"syscall"
)

func ownerOf(info os.FileInfo) (uid int, known bool) {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(s.Uid), true
}
