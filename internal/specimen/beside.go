package specimen

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
)

// grant is what take answers.
type grant struct {
	token int64
	slot  int
	have  string // the kind, and number of slots, with which the request's does not go
}

func granted(got []string) (g grant) {
	switch g.token, _ = strconv.ParseInt(got[0], 10, 64); {
	case g.token == -2:
		g.have = got[1]
	case len(got) > 1:
		g.slot, _ = strconv.Atoi(got[1])
	}
	return g
}

func (g grant) mismatch(req *driver.Request) error {
	kind, slots := parseKind(g.have)
	return driver.Mismatch(req, kind, slots)
}

// parseKind reads what the scripts call a kind.
func parseKind(text string) (kind locker.Kind, slots int) {
	word, n, _ := strings.Cut(text, " ")
	for kind.String() != word && kind < locker.KindSlots {
		kind++
	}
	slots, _ = strconv.Atoi(n)
	return kind, slots
}

// believed is the request by which the holder judges its lock.
func (s *Locker) believed(a *attempt) *driver.Request {
	if a.req.Kind != locker.KindSlots || !s.is("the end of a slot is not noticed") {
		return a.req
	}
	req := *a.req
	req.TTL = locker.MaxTTL
	return &req
}

func (s *Locker) releaseBeside(ctx context.Context, a *attempt) error {
	freed, err := bounded(ctx, s, func() (int64, error) { return s.run(ctx, releaseBeside, a.req.Name, a.id, a.slot, s.flaw) })
	return s.released(a, freed, err)
}

// besides notes those who hold a name that is shared, or has slots: four texts for each.
func besides(info *locker.Info, kind string, shown []string) {
	for h := range slices.Chunk(shown, 4) {
		var holder locker.Holder
		number, _ := strconv.ParseUint(h[0], 10, 64)
		holder.Number = locker.Number(number)
		holder.Slot, _ = strconv.Atoi(h[1])
		holder.Text = h[2]
		left, _ := strconv.Atoi(h[3])
		holder.TimeLeft = time.Duration(left) * time.Millisecond
		info.Held, info.Holder, info.TimeLeft = true, "", max(info.TimeLeft, holder.TimeLeft)
		info.Kind, info.Slots = parseKind(kind)
		info.Holders = append(info.Holders, holder)
	}
	slices.SortFunc(info.Holders, func(a, b locker.Holder) int { return cmp.Compare(a.Number, b.Number) })
}
