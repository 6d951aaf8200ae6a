//go:build !linux

package doctor

import "os"

func ownerOf(os.FileInfo) (uid int, known bool) { return 0, false }
