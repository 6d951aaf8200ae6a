package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

var versionCommand = command{name: "version", about: "print the version", do: version}

func version(invocation) (int, error) {
	v := "unknown version"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		v = info.Main.Version
	}
	return answer(fmt.Sprintf("locker %s %s %s/%s\n", v, runtime.Version(), runtime.GOOS, runtime.GOARCH))
}
