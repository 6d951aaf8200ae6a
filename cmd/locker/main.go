// Command locker runs a command while it holds a lock, and looks at locks.
// "locker help" says how.
package main

import (
	"fmt"
	"os"
	"strings"
)

func main() {
	status, err := dispatch(os.Args[1:])
	if err != nil {
		for line := range strings.Lines(err.Error()) { // several errors, joined
			fmt.Fprintln(os.Stderr, "locker:", strings.TrimPrefix(strings.TrimSuffix(line, "\n"), "locker: "))
		}
	}
	os.Exit(status)
}
