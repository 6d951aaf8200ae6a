package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

type versionCommand struct{ plain }

func (versionCommand) do() (int, error) {
	v := "unknown version"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		v = info.Main.Version
	}
	return answer(fmt.Sprintf("locker %s %s %s/%s\n", v, runtime.Version(), runtime.GOOS, runtime.GOARCH))
}
