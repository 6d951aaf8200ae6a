package main

import (
	"fmt"
	"strings"
)

// command is one of locker's subcommands.
type command struct {
	name  string
	form  string // of its arguments, without flags
	about string // one line
	more  string // the rest of its help
	takes arguments
	flags []string
	do    func(invocation) (status int, err error)
}

// arguments says what a subcommand wants besides flags.
type arguments uint8

const (
	takesNothing arguments = iota
	takesName
	takesNameAndCommand
	mayTakeWord
)

// commands is a function because help, one of them, lists them.
func commands() []command {
	return []command{runCommand, inspectCommand, unlockCommand, doctorCommand, backendsCommand, compareCommand, benchCommand, helpCommand(), versionCommand}
}

func find(name string) (command, bool) {
	switch name {
	case "-h", "-help", "--help":
		name = "help"
	case "--version":
		name = "version"
	}
	for _, c := range commands() {
		if c.name == name {
			return c, true
		}
	}
	return command{}, false
}

// dispatch carries out the command line.
func dispatch(args []string) (status int, err error) {
	if len(args) == 0 {
		return exitUsage, fmt.Errorf("no command given: use one of %s; \"locker help\" says more", names())
	}
	if len(args) == 2 && args[0] == workerVerb {
		return exitUnavailable, compareWorker(args[1])
	}
	c, ok := find(args[0])
	if !ok {
		return exitUsage, fmt.Errorf("unknown command %q: use one of %s; \"locker help\" says more", args[0], names())
	}
	in, err := parse(c, args[1:])
	switch {
	case err != nil:
		return exitUsage, fmt.Errorf("%s: %w; \"locker help %s\" says more", c.name, err, c.name)
	case in.help:
		return answer(helpOn(c))
	}
	return c.do(in)
}

func names() string {
	var all []string
	for _, c := range commands() {
		all = append(all, c.name)
	}
	return strings.Join(all, ", ")
}
