package main

import (
	"flag"
	"fmt"
	"strings"
)

func helpCommand() command {
	return command{name: "help", form: "[COMMAND]", about: "say how to use locker, or one of its commands", takes: mayTakeWord, do: help}
}

func help(in invocation) (int, error) {
	if in.name == "" {
		return answer(helpOnAll())
	}
	c, ok := find(in.name)
	if !ok {
		return exitUsage, fmt.Errorf("help: unknown command %q: use one of %s", in.name, names())
	}
	return answer(helpOn(c))
}

func helpOnAll() string {
	var b strings.Builder
	b.WriteString("locker runs a command while it holds a lock, and looks at locks.\n\nUsage:\n")
	for _, c := range commands() {
		fmt.Fprintf(&b, "  %s\n        %s\n", usage(c), c.about)
	}
	b.WriteString(`
Exit status:
  64   wrong usage
  69   the lock store is unreachable or refused to serve
  70   the lock was lost while the command ran
  74   the output could not be written
  75   the lock is taken
  126  the command could not be executed, 127 it was not found
  else the command's own, or 128 + n if signal n ended it
`)
	return b.String()
}

func helpOn(c command) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Usage: %s\n\n%s.\n", usage(c), strings.ToUpper(c.about[:1])+c.about[1:])
	if len(c.flags) > 0 {
		b.WriteString("\nFlags:\n")
	}
	flagSet(c, &invocation{}).VisitAll(func(f *flag.Flag) {
		value, text := flag.UnquoteUsage(f)
		fmt.Fprintf(&b, "  %s\n        %s\n", strings.TrimSpace(dashed(f.Name)+" "+value), strings.ReplaceAll(text, "\n", "\n        "))
	})
	if c.more != "" {
		b.WriteString("\n" + strings.TrimSpace(c.more) + "\n")
	}
	return b.String()
}

// usage is the form of c's command line.
func usage(c command) string {
	parts := []string{"locker", c.name}
	fs := flagSet(c, &invocation{})
	for _, name := range c.flags {
		value, _ := flag.UnquoteUsage(fs.Lookup(name))
		parts = append(parts, "["+strings.TrimSpace(dashed(name)+" "+value)+"]")
	}
	if c.form != "" {
		parts = append(parts, c.form)
	}
	return strings.Join(parts, " ")
}

func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}
