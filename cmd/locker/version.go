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

func (c *versionCommand) flags(fs flagSet) { fs.json(&c.json) }

func (c *versionCommand) do() (int, error) {
	v := "unknown version"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		v = info.Main.Version
	}
	if c.json {
		return answerJSON(map[string]string{"version": v, "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH})
	}
	return answer(fmt.Sprintf("locker %s %s %s/%s\n", v, runtime.Version(), runtime.GOOS, runtime.GOARCH))
}
