package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

type versionCommand struct {
	plain
	json bool
}

func (c *versionCommand) do() (int, error) {
	if c.json {
		return answerJSON(map[string]string{"version": version(), "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH})
	}
	return answer(fmt.Sprintf("locker %s\n", versionText()))
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown version"
}

func versionText() string {
	return fmt.Sprintf("%s %s %s/%s", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
