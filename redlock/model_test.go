package redlock

import (
	"flag"
	"math/rand/v2"
	"testing"
)

// The model is the protocol without the network: nodes that grant, forget and
// restart, clients whose requests and replies are lost or come late, clocks that
// differ. One step is one request. Clocks tick slowly, so that counters matter. Rules
// can be taken away from it to see that each is needed.
type rules struct {
	writeBack bool // nodes of the majority are raised to its token
	whole     bool // and to the end of the range that begins with it
	voteLoss  bool // a node that does not confirm does not count
	restart   bool // a node that forgot has no vote for one TTL
	majority  int
	validity  bool // a lock that comes after its validity is given back

	readersToo     bool // readers' numbers are written back as well
	readersDraw    bool // a reader's number is the next one, not the last writer's
	readersRestart bool // a node that forgot has no vote for readers either
	readersMost    int  // nodes that a reader needs
	ownEntry       bool // a reader's release, and its renewal, touch its own entry alone
	unlike         bool // a node gives no two readers one number
}

var sound = rules{
	writeBack: true, whole: true, voteLoss: true, restart: true, majority: 3, validity: true,
	readersToo: true, readersDraw: true, readersRestart: true, readersMost: 3, ownEntry: true, unlike: true,
}

const (
	modelNodes   = 5
	modelClients = 4
	modelTTL     = 120
	modelRange   = 4 // tokens of a grant
	tick         = 8 // of the clocks that tokens are lifted to
	tolerance    = 3 // for what a client offers
	skew         = 1 // of clocks
)

type modelNode struct {
	skew, counter, young int
	entries              map[int]*entry // by value: one writer's, or readers'
	marks                map[int]bool
}

type entry struct {
	first, until int
	shared       bool
}

func newModelNode(skew int) *modelNode {
	return &modelNode{skew: skew, entries: make(map[int]*entry), marks: make(map[int]bool)}
}

// grant is the acquire script.
func (n *modelNode) grant(r rules, now, value, offer int, shared bool) (token int) {
	if now < n.young && (r.readersRestart || !shared) || n.marks[value] {
		return 0
	}
	if e := n.of(now, value); e != nil {
		e.until = now + modelTTL
		return e.first
	}
	for v, e := range n.entries {
		if e.until <= now {
			delete(n.entries, v)
		} else if !shared || !e.shared {
			return 0
		}
	}
	clock := now/tick + n.skew
	first := max(n.counter+1, clock-tolerance, min(offer, clock+tolerance))
	switch {
	case !shared:
		n.counter = first + modelRange - 1
	case r.readersDraw:
		n.counter = first
	default:
		first = n.counter
	}
	n.entries[value] = &entry{first, now + modelTTL, shared}
	return first
}

// of returns what a value has, or nil.
func (n *modelNode) of(now, value int) *entry {
	if e := n.entries[value]; e != nil && e.until > now {
		return e
	}
	return nil
}

// raise is the script of that name. It returns what the number has come to, or 0.
func (n *modelNode) raise(r rules, now, value, first, counter int) int {
	e := n.of(now, value)
	switch {
	case e == nil:
		return 0
	case !e.shared:
		n.counter = max(n.counter, counter)
		return first
	case e.first >= first:
		return e.first
	}
	for _, other := range n.entries {
		if r.unlike && other.first == first {
			first = n.counter + 1
		}
	}
	e.first, n.counter = first, max(n.counter, first)
	return first
}

func (n *modelNode) release(r rules, now, value int) {
	n.marks[value] = true
	if e := n.of(now, value); e != nil {
		delete(n.entries, value)
		if e.shared && !r.ownEntry {
			clear(n.entries)
		}
	}
}

type phase int

const (
	resting phase = iota
	asks
	raises
	holds
)

type modelClient struct {
	phase              phase
	shared             bool
	skew, value, since int
	order              []int
	asked              int
	tokens             map[int]int // by node
	token, until       int
	paused             int // until then
}

type model struct {
	rules
	rnd     *rand.Rand
	now     int
	nodes   []*modelNode
	clients []*modelClient
	values  int
	late    []func() // requests on their way

	last                 int // token of the latest range, or number of a reader
	lastWriter           int // the same of writers alone
	grants, stale, twice int
	alike                int // readers that have one number at the same time
}

func newModel(r rules, seed uint64) *model {
	m := &model{rules: r, rnd: rand.New(rand.NewPCG(seed, 7)), now: 1000}
	for range modelNodes {
		m.nodes = append(m.nodes, newModelNode(m.rnd.IntN(2*skew)-skew))
	}
	for range modelClients {
		m.clients = append(m.clients, &modelClient{skew: m.rnd.IntN(8*skew) - 4*skew})
	}
	return m
}

func (m *model) chance(percent int) bool { return m.rnd.IntN(100) < percent }

// send carries a request out now, later or never, and reports whether the reply
// arrives.
func (m *model) send(request func()) bool {
	switch {
	case m.chance(90):
		request()
		return !m.chance(5)
	case m.chance(80):
		m.late = append(m.late, request)
	}
	return false
}

func (m *model) step() {
	m.now += m.rnd.IntN(3)
	c := m.clients[m.rnd.IntN(modelClients)]
	switch p := m.rnd.IntN(1000); {
	case p < 1:
		m.crash(m.nodes[m.rnd.IntN(modelNodes)])
	case p < 100 && len(m.late) > 0:
		i := m.rnd.IntN(len(m.late))
		m.late[i]()
		m.late[i] = m.late[len(m.late)-1]
		m.late = m.late[:len(m.late)-1]
	case p < 102:
		c.paused = m.now + m.rnd.IntN(2*modelTTL)
	}
	if m.now < c.paused {
		return
	}
	switch c.phase {
	case resting:
		if !m.chance(10) {
			return
		}
		m.values++
		*c = modelClient{phase: asks, shared: m.chance(60), skew: c.skew, value: m.values, since: m.now, order: m.rnd.Perm(modelNodes), tokens: make(map[int]int)}
	case asks:
		m.ask(c)
	case raises:
		m.raiseAll(c)
	case holds:
		m.hold(c)
	}
}

// crash takes from a node everything it knew.
func (m *model) crash(n *modelNode) {
	*n = *newModelNode(n.skew)
	if m.restart {
		n.young = m.now + modelTTL
	}
}

// need is how many nodes c needs.
func (m *model) need(c *modelClient) int {
	if c.shared {
		return m.readersMost
	}
	return m.majority
}

func (m *model) ask(c *modelClient) {
	if len(c.tokens) >= m.need(c) {
		c.phase = raises
		return
	}
	if c.asked == modelNodes {
		m.giveUp(c)
		return
	}
	i := c.order[c.asked]
	c.asked++
	token, value, offer, shared := 0, c.value, c.since/tick+c.skew, c.shared
	if m.send(func() { token = m.nodes[i].grant(m.rules, m.now, value, offer, shared) }) && token != 0 {
		c.tokens[i] = token
	}
}

func (m *model) raiseAll(c *modelClient) {
	for again := true; again; {
		c.token, again = 0, false
		for _, token := range c.tokens {
			c.token = max(c.token, token)
		}
		if !m.writeBack || c.shared && !m.readersToo {
			break
		}
		for _, i := range c.order { // not in the order of a map: runs must repeat
			if token, ok := c.tokens[i]; ok && token < c.token {
				m.raiseOne(c, i)
				again = again || c.tokens[i] > c.token
			}
		}
	}
	switch {
	case len(c.tokens) < m.need(c):
		c.phase = asks // another node may make up for the vote that was lost
	case m.validity && m.now >= c.since+modelTTL:
		m.giveUp(c)
	default:
		m.granted(c)
	}
}

func (m *model) raiseOne(c *modelClient, i int) {
	raised, value, first, counter := 0, c.value, c.token, c.token
	if m.whole && !c.shared {
		counter += modelRange - 1
	}
	heard := m.send(func() { raised = m.nodes[i].raise(m.rules, m.now, value, first, counter) })
	switch {
	case heard && raised != 0:
		c.tokens[i] = raised
	case m.voteLoss:
		delete(c.tokens, i)
	default:
		c.tokens[i] = c.token
	}
}

// granted is where a lock is returned to its caller, and is checked.
func (m *model) granted(c *modelClient) {
	c.phase, c.until = holds, c.since+modelTTL
	m.grants++
	before, final := m.last, c.token+modelRange-1
	if c.shared { // readers at the same time are in no order
		before, final = m.lastWriter, c.token
	}
	if c.token <= before {
		m.stale++
	}
	m.last = max(m.last, final)
	if !c.shared {
		m.lastWriter = final
	}
	for _, other := range m.clients {
		switch both := other != c && other.phase == holds && m.now < other.until && m.now < c.until; {
		case both && (!c.shared || !other.shared):
			m.twice++
		case both && c.token == other.token:
			m.alike++
		}
	}
}

// hold renews, gives back, or dies.
func (m *model) hold(c *modelClient) {
	switch {
	case m.now >= c.until || m.chance(2):
		c.phase = resting // nothing is given back: the leases end
	case m.chance(50):
		since, yes := m.now, 0
		for _, n := range m.nodes {
			ok, value := false, c.value
			if m.send(func() {
				if e := n.of(m.now, value); e != nil {
					e.until, ok = m.now+modelTTL, true
				}
			}) && ok {
				yes++
			}
		}
		if yes >= m.need(c) {
			c.until = since + modelTTL
		}
	default:
		m.giveUp(c)
	}
}

func (m *model) giveUp(c *modelClient) {
	value := c.value
	for _, n := range m.nodes {
		m.send(func() { n.release(m.rules, m.now, value) })
	}
	c.phase = resting
}

const modelSteps = 2_000_000 // of each run

var seed = flag.Uint64("seed", 1, "what the runs of the model begin with")

// runModel runs a model for as many steps, or until it is broken.
func runModel(r rules, seed uint64, broken func(*model) int) *model {
	m := newModel(r, seed)
	for step := 0; step < modelSteps && broken(m) == 0; step++ {
		m.step()
	}
	return m
}

// Tokens increase and nobody holds a lock twice, whatever is lost, late or
// forgotten.
func TestModelKeepsItsPromises(t *testing.T) {
	for run := range uint64(4) {
		m := runModel(sound, *seed+run, func(m *model) int { return m.stale + m.twice + m.alike })
		if m.stale != 0 || m.twice != 0 || m.alike != 0 || m.grants < modelSteps/1000 {
			t.Errorf("seed %d: of %d grants %d had tokens that do not increase, %d were second holders, %d had another reader's number",
				*seed+run, m.grants, m.stale, m.twice, m.alike)
		}
	}
}

// Each rule is there for a reason: without it the same model breaks.
func TestModelBreaksWithoutEachRule(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*rules)
		broken func(*model) int
	}{
		"tokens without write-back":         {func(r *rules) { r.writeBack = false }, func(m *model) int { return m.stale }},
		"nodes raised to the token alone":   {func(r *rules) { r.whole = false }, func(m *model) int { return m.stale }},
		"votes that did not confirm":        {func(r *rules) { r.voteLoss = false }, func(m *model) int { return m.stale }},
		"a restarted node votes at once":    {func(r *rules) { r.restart = false }, func(m *model) int { return m.twice }},
		"two of five are enough":            {func(r *rules) { r.majority = 2 }, func(m *model) int { return m.twice }},
		"a lock that comes too late counts": {func(r *rules) { r.validity = false }, func(m *model) int { return m.stale }},
		"readers without write-back":        {func(r *rules) { r.readersToo = false }, func(m *model) int { return m.stale }},
		"readers that draw no number":       {func(r *rules) { r.readersDraw = false }, func(m *model) int { return m.stale }},
		"a restarted node lets readers in":  {func(r *rules) { r.readersRestart = false }, func(m *model) int { return m.twice }},
		"two of five are enough to read":    {func(r *rules) { r.readersMost = 2 }, func(m *model) int { return m.twice }},
		"a reader releases for all":         {func(r *rules) { r.ownEntry = false }, func(m *model) int { return m.twice }},
		"a node numbers two readers alike":  {func(r *rules) { r.unlike = false }, func(m *model) int { return m.alike }},
	} {
		t.Run(name, func(t *testing.T) {
			r := sound
			test.change(&r)
			for run := range uint64(10) {
				m := runModel(r, *seed+run, test.broken)
				if test.broken(m) > 0 {
					t.Logf("of %d grants %d had tokens that do not increase, %d were second holders", m.grants, m.stale, m.twice)
					return
				}
			}
			t.Error("nothing broke")
		})
	}
}
