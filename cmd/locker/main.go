// Command locker runs a command while it holds a lock, and looks at locks.
// "locker help" says how.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
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

// command is one of locker's commands. Its settings are its fields.
type command interface {
	// flags declares the command's flags.
	flags(fs flagSet)
	// accept takes the other arguments, with any "--" among them. Its error
	// means wrong usage.
	accept(args []string) error
	// do carries the command out.
	do() (status int, err error)
}

// entry is a command and what the help says of it.
type entry struct {
	name  string
	form  string // of its arguments, without flags
	about string // one line
	more  string // the rest of its help
	command
}

func commands() []entry {
	return []entry{
		{"run", "NAME… -- COMMAND [ARG…]", "run COMMAND while holding the lock NAME, or several", runHelp, &runCommand{}},
		{"list", "[PREFIX]", "show the locks that are held, and watch them change", listHelp, &listCommand{}},
		{"inspect", "NAME", "show who holds a lock, the token, and how many wait", inspectHelp, &inspectCommand{}},
		{"unlock", "--force NAME", "take a lock from its holder", unlockHelp, &unlockCommand{}},
		{"doctor", "", "look at a store for what can hurt its locks", doctorHelp, &doctorCommand{}},
		{"backends", "", "list the forms of URLs, and what each backend promises", backendsHelp, &backendsCommand{}},
		{"bench", "", "measure the locks of a store, and check that they exclude", benchHelp, &benchCommand{}},
		{"completion", "bash|zsh|fish", "print a script that makes a shell's tab key complete", completionHelp, &completionCommand{}},
		{"help", "[COMMAND]", "say how to use locker, or one of its commands", "", &helpCommand{}},
		{"version", "", "print the version", "", &versionCommand{}},
	}
}

// dispatch carries out the command line.
func dispatch(args []string) (status int, err error) {
	if len(args) == 0 {
		return exitUsage, fmt.Errorf("no command given: use one of %s; \"locker help\" says more", names())
	}
	if args[0] == "__complete" { // from the scripts of "completion"
		return complete(args[1:])
	}
	c, ok := find(args[0])
	if !ok {
		return exitUsage, fmt.Errorf("unknown command %q: use one of %s; \"locker help\" says more", args[0], names())
	}
	words, err := declare(c).parse(args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return answer(helpOn(c))
	}
	if err == nil {
		err = c.accept(words)
	}
	if err != nil {
		return exitUsage, fmt.Errorf("%s: %s; \"locker help %s\" says more", c.name, strings.TrimPrefix(err.Error(), "locker: "), c.name)
	}
	return c.do()
}

func find(name string) (entry, bool) {
	switch name {
	case "-h", "-help", "--help":
		name = "help"
	case "--version":
		name = "version"
	}
	all := commands()
	i := slices.IndexFunc(all, func(e entry) bool { return e.name == name })
	if i < 0 {
		return entry{}, false
	}
	return all[i], true
}

func names() string {
	var all []string
	for _, e := range commands() {
		all = append(all, e.name)
	}
	return strings.Join(all, ", ")
}
