package main

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/dial"
)

type backendsCommand struct{ plain }

func (c *backendsCommand) do() error {
	if c.json {
		return c.printJSON()
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "URL\tBACKEND\tEXCLUSION ASSUMES\tTOKENS ASSUME\tFAIR\tFREES A DEAD HOLDER\tALSO")
	for _, s := range dial.Schemes() {
		fair := "no"
		if s.Guarantees.Fair {
			fair = "yes"
		}
		fmt.Fprintf(w, "%s\t%s\t%v\t%v\t%s\t%v\t%s\n", s.Form, s.About, s.Guarantees.Exclusion, s.Guarantees.Tokens, fair, s.Guarantees.FreedBy, beside(s.Guarantees))
	}
	return output(w.Flush())
}

func (c *backendsCommand) printJSON() error {
	for _, s := range dial.Schemes() {
		g := s.Guarantees
		if err := answerJSON(struct {
			URL          string   `json:"url"`
			About        string   `json:"about"`
			Exclusion    []string `json:"exclusion_assumes"`
			Tokens       []string `json:"tokens_assume"`
			Fair         bool     `json:"fair"`
			Release      string   `json:"frees_a_dead_holder"`
			KeepsMinHold bool     `json:"keeps_min_hold"` // also when the process ends
			Shared       bool     `json:"shared"`
			Slots        bool     `json:"slots"`
			Detaches     bool     `json:"detaches"` // "locker lock" works
		}{s.Form, s.About, words(g.Exclusion), words(g.Tokens), g.Fair, g.FreedBy.String(), g.KeepsMinHold, g.Shared, g.Slots, g.Detaches}); err != nil {
			return err
		}
	}
	return nil
}

// beside is what a backend can beside exclusive locks that end with their process.
func beside(g locker.Guarantees) string {
	var all []string
	for _, kind := range []struct {
		name string
		has  bool
	}{{"shared", g.Shared}, {"slots", g.Slots}, {"detach", g.Detaches}} {
		if kind.has {
			all = append(all, kind.name)
		}
	}
	return cmp.Or(strings.Join(all, ", "), "-")
}

// words are the assumptions one by one. Of none there is an empty list.
func words(a locker.Assumptions) []string {
	if a == 0 {
		return []string{}
	}
	return strings.Split(a.String(), ", ")
}
