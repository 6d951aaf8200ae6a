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
		complain(err)
	}
	os.Exit(status)
}

// complain prints an error for people.
func complain(err error) {
	for line := range strings.Lines(err.Error()) { // several errors, joined
		fmt.Fprintln(os.Stderr, "locker:", strings.TrimPrefix(strings.TrimSuffix(line, "\n"), "locker: "))
	}
}

// dispatch carries out the command line.
func dispatch(args []string) (status int, err error) {
	if len(args) > 0 && args[0] == completionVerb { // from the scripts of "completion"
		return complete(args[1:])
	}
	p := newProgram()
	if err := p.parse(args); err != nil {
		return exitUsage, err
	}
	if p.chosen == nil {
		return answer(p.help.String()) // or the version
	}
	return p.chosen.do()
}

// plain is a command without flags and arguments.
type plain struct{}

func (plain) accept(args []string) error {
	_, err := atMost(0, args)
	return err
}

// helpCommand is "locker help". What it prints is what --help prints.
type helpCommand struct{ verb []string }

func (c *helpCommand) accept(args []string) (err error) {
	c.verb, err = atMost(1, args)
	return err
}

func (c *helpCommand) do() (int, error) {
	p := newProgram()
	if len(c.verb) == 1 && p.Command.Command(c.verb[0]) == nil {
		return exitUsage, fmt.Errorf("help: %w", p.unknown(c.verb[0]))
	}
	return dispatch(append(c.verb, "--help"))
}
