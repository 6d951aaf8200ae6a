// Command locker runs a command while it holds a lock, and looks at locks.
// "locker help" says how.
package main

import (
	"fmt"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/redis/go-redis/v9/logging"
	"github.com/urfave/cli/v3"
)

func main() {
	logging.Disable() // the Redis client writes to stderr what it also returns as errors
	err := dispatch(os.Args[1:])
	if err != nil {
		complain(err)
	}
	os.Exit(statusOf(err))
}

// handles is what a handle looks like. Somebody may have put one in the place of a NAME.
var handles = regexp.MustCompile(`lockstile\d+-[\w-]+`)

// complain prints an error for people.
func complain(err error) {
	for line := range strings.Lines(handles.ReplaceAllString(err.Error(), "(a handle)")) { // several errors, joined
		fmt.Fprintln(os.Stderr, "locker:", strings.TrimPrefix(strings.TrimSuffix(line, "\n"), "locker: "))
	}
}

// dispatch carries out the command line.
func dispatch(args []string) error {
	if len(args) > 0 && args[0] == completionVerb { // from the scripts of "completion"
		return complete(args[1:])
	}
	p := newProgram()
	if err := p.parse(args); err != nil {
		return err
	}
	if p.chosen == nil {
		return answer(p.help.String()) // or the version
	}
	return p.chosen.do()
}

// plain is a command without arguments that asks no store.
type plain struct{ inJSON }

func (plain) accept(args []string) error {
	_, err := atMost(0, args)
	return err
}

// helpCommand is "locker help". What it prints is what --help prints.
type helpCommand struct{ verb []string }

func (*helpCommand) flags() []cli.Flag { return nil }

func (c *helpCommand) accept(args []string) (err error) {
	c.verb, err = atMost(1, args)
	return err
}

func (c *helpCommand) do() error {
	p := newProgram()
	if len(c.verb) == 1 && p.Command.Command(c.verb[0]) == nil {
		return fmt.Errorf("help: %w", p.noCommand(c.verb))
	}
	return dispatch(append(c.verb, "--help"))
}

type versionCommand struct{ plain }

func (c *versionCommand) do() error {
	parts := map[string]string{"version": version(), "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH}
	return tell(c.json, parts, fmt.Sprintf("locker %s\n", versionText()))
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
