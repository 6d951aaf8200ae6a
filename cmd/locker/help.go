package main

import (
	"flag"
	"fmt"
	"strings"
)

type helpCommand struct {
	plain
	words []string
}

func (c *helpCommand) accept(args []string) (err error) {
	c.words, err = atMost(1, args)
	return err
}

func (c *helpCommand) do() (int, error) {
	if len(c.words) == 0 {
		return answer(helpOnAll())
	}
	e, ok := find(c.words[0])
	if !ok {
		return exitUsage, fmt.Errorf("help: unknown command %q: use one of %s", c.words[0], names())
	}
	return answer(helpOn(e))
}

func helpOnAll() string {
	var b strings.Builder
	b.WriteString("locker runs a command while it holds a lock, and looks at locks.\n\nUsage:\n")
	for _, e := range commands() {
		fmt.Fprintf(&b, "  %s\n        %s\n", usage(e), e.about)
	}
	b.WriteString(`
Exit status:
  64   wrong usage
  69   the lock store is unreachable or refused to serve
  70   the lock was lost while the command ran
  74   the output could not be written
  75   the lock is taken (run --taken-exit changes this one)
  126  the command could not be executed, 127 it was not found
  else the command's own, or 128 + n if signal n ended it
"locker help run" says how a script can tell a command's own status from these.
`)
	return b.String()
}

func helpOn(e entry) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Usage: %s\n\n%s.\n", usage(e), strings.ToUpper(e.about[:1])+e.about[1:])
	title := "\nFlags:\n"
	declare(e).VisitAll(func(f *flag.Flag) {
		_, text := flag.UnquoteUsage(f)
		fmt.Fprintf(&b, "%s  %s\n        %s\n", title, form(f), strings.ReplaceAll(text, "\n", "\n        "))
		title = ""
	})
	if e.more != "" {
		b.WriteString("\n" + strings.TrimSpace(e.more) + "\n")
	}
	return b.String()
}

// usage is the form of a command line.
func usage(e entry) string {
	flags := ""
	declare(e).VisitAll(func(*flag.Flag) { flags = "[FLAGS] " })
	return strings.TrimSpace("locker " + e.name + " " + flags + e.form)
}

// form is a flag as it is written, with what its value stands for.
func form(f *flag.Flag) string {
	dashes := "--"
	if len(f.Name) == 1 {
		dashes = "-"
	}
	value, _ := flag.UnquoteUsage(f)
	return strings.TrimSpace(dashes + f.Name + " " + value)
}
