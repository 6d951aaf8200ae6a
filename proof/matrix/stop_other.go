//go:build !unix

package matrix

import (
	"errors"
	"os"
)

var errNoPause = errors.New("this system cannot pause a process")

func pauseProcess(*os.Process) error  { return errNoPause }
func resumeProcess(*os.Process) error { return errNoPause }
