package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/lockstile/locker"
)

// invocation is a command line, understood.
type invocation struct {
	help    bool
	name    string
	command []string // what "run" runs

	backend string // a URL
	ttl     time.Duration
	wait    time.Duration // 0: for ever
	noWait  bool
	maxHold time.Duration // 0: for ever
	force   bool
	json    bool

	backends, scenarios              string // words, by comma
	short                            bool
	html, markdown, readme, jsonFile string // paths

	bench benchSettings
}

// flagSet returns the flags that c takes, which fill in.
func flagSet(c command, in *invocation) *flag.FlagSet {
	fs := flag.NewFlagSet(c.name, flag.ContinueOnError)
	fs.SetOutput(io.Discard) // errors are returned
	define := map[string]func(name string){
		"b": func(n string) {
			in.backend = os.Getenv("LOCKER_BACKEND")
			fs.Func(n, "`URL` of the backend (see \"locker backends\"); default $LOCKER_BACKEND,\nwhich keeps a password out of the list of processes, else \"local:\"", given(&in.backend))
		},
		"ttl": func(n string) {
			in.ttl = locker.DefaultTTL
			fs.Func(n, "a locker that was killed keeps its lock for `DURATION` at most, where the\nstore has leases; the \"local:\" one frees it at once; default 30s", positive(&in.ttl))
		},
		"wait": func(n string) {
			fs.Func(n, "wait for the lock for `DURATION` at most; default for ever", positive(&in.wait))
		},
		"no-wait": func(n string) { fs.BoolVar(&in.noWait, n, false, "do not wait for the lock at all") },
		"max-hold": func(n string) {
			fs.Func(n, "end COMMAND so that the lock is held for `DURATION` at most; default for ever", positive(&in.maxHold))
		},
		"force": func(n string) { fs.BoolVar(&in.force, n, false, "yes, take it from whoever holds it") },
		"backends": func(n string) {
			fs.StringVar(&in.backends, n, "", "only backends with one of these `WORDS` in their name, by comma")
		},
		"scenarios": func(n string) {
			fs.StringVar(&in.scenarios, n, "", "only scenarios with one of these `WORDS` in their name, by comma")
		},
		"short": func(n string) {
			fs.BoolVar(&in.short, n, false, "the backends and scenarios that tell most, in about a minute")
		},
		"html":     func(n string) { fs.StringVar(&in.html, n, "", "write one page with a timeline of every run to `FILE`") },
		"markdown": func(n string) { fs.StringVar(&in.markdown, n, "", "write the matrix as Markdown to `FILE`") },
		"readme": func(n string) {
			fs.StringVar(&in.readme, n, "", "put the matrix in brief into `FILE`, between its two comments")
		},
		"json": func(n string) {
			if c.name == compareName {
				fs.StringVar(&in.jsonFile, n, "", "write everything that happened as JSON to `FILE`")
				return
			}
			fs.BoolVar(&in.json, n, false, "print JSON")
		},
	}
	maps.Copy(define, benchFlags(fs, &in.bench))
	for _, name := range c.flags {
		define[name](name)
	}
	return fs
}

// emptyBackend reports whether the environment names the backend, with nothing.
// That mostly comes from a variable that is not set, as with -b.
func emptyBackend(c command, in invocation) bool {
	_, set := os.LookupEnv("LOCKER_BACKEND")
	return set && in.backend == "" && slices.Contains(c.flags, "b")
}

// given refuses an empty value: it mostly comes from a variable that is not set,
// and the default would then be another store than the one that was meant.
func given(to *string) func(string) error {
	return func(text string) error {
		if text == "" {
			return errors.New("it is empty")
		}
		*to = text
		return nil
	}
}

func positive(to *time.Duration) func(string) error {
	return func(text string) error {
		d, err := time.ParseDuration(text)
		switch {
		case err != nil:
			return errors.New("not a duration such as 30s or 1m30s")
		case d <= 0:
			return errors.New("not above zero")
		}
		*to = d
		return nil
	}
}

// parse understands the arguments of c. Flags may stand before and after NAME.
// Everything after the first -- is taken as it is; a NAME that begins with a
// dash goes there.
func parse(c command, args []string) (in invocation, err error) {
	own, rest := args, []string(nil)
	dashes := slices.Index(args, "--")
	if dashes >= 0 {
		own, rest = args[:dashes], args[dashes+1:]
	}
	words, err := parseFlags(flagSet(c, &in), own)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return invocation{help: true}, nil
	case err != nil:
		return in, err
	case emptyBackend(c, in):
		return in, errors.New("LOCKER_BACKEND is set and empty, which would mean another store than the one that was meant: " +
			"unset it, or name a backend (\"local:\" is the default)")
	case in.noWait && in.wait > 0:
		return in, errors.New("--wait and --no-wait exclude each other")
	}
	if c.takes != takesNameAndCommand {
		return in, in.takeWords(c, append(words, rest...))
	}
	if len(words) == 0 && len(rest) > 0 {
		words, rest = rest[:1], rest[1:]
		if len(rest) == 0 || rest[0] != "--" {
			return in, errors.New("NAME is missing before -- COMMAND")
		}
		rest = rest[1:]
	}
	if len(words) > 1 || len(words) == 1 && len(rest) == 0 {
		return in, fmt.Errorf("after NAME (%q) comes -- and then COMMAND", words[0])
	}
	if len(rest) > 0 && rest[0] == "" {
		return in, errors.New("COMMAND is empty")
	}
	in.command = rest
	return in, in.takeWords(c, words)
}

// parseFlags returns the words that are not flags.
func parseFlags(fs *flag.FlagSet, args []string) (words []string, err error) {
	for {
		if err := fs.Parse(args); err != nil {
			return nil, err
		}
		if fs.NArg() == 0 {
			return words, nil
		}
		words = append(words, fs.Arg(0))
		args = fs.Args()[1:]
	}
}

func (in *invocation) takeWords(c command, words []string) error {
	most := 1
	if c.takes == takesNothing {
		most = 0
	}
	switch {
	case len(words) > most:
		return fmt.Errorf("%q is one argument too many", words[most])
	case len(words) == 1:
		in.name = words[0]
	case c.takes == takesName || c.takes == takesNameAndCommand:
		return errors.New("NAME is missing")
	}
	if c.takes == takesName || c.takes == takesNameAndCommand {
		return locker.CheckName(in.name)
	}
	return nil
}
