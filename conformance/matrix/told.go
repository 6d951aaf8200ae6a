package matrix

import (
	"errors"
	"fmt"
)

// holdsTrue holds what an attempt was told against the store: after an error that
// promises that nothing is held, w gets the lock, which nobody else wants. Only a
// store that says for half a lease that it is taken proves the opposite: what
// cannot be had for any other reason does not, and a machine that is slow is not
// called a liar.
func (p *Play) holdsTrue(told error, w *Worker) {
	var no *refusal
	if !errors.As(told, &no) || !no.Nothing {
		return
	}
	for end := now().Add(p.TTL / 2); ; p.Sleep(p.TTL / 20) {
		late := now() > end // before the question: its answer may be slow
		g, err := w.Try(patience)
		var taken *refusal
		switch {
		case err == nil:
			g.Unlock()
			return
		case !errors.As(err, &taken):
			p.must(err)
		case !taken.Taken:
			return
		case late:
			p.History.untrue("%s was told that it holds nothing, and %s that the lock is taken: %s", no.who, w.Name, no.Err)
			return
		}
	}
}

// untrue notes that a caller was told what is not true.
func (h *History) untrue(format string, args ...any) {
	h.mark(format, args...)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Untrue = fmt.Sprintf(format, args...)
}
