package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/lockstile/locker/internal/meter"
	"github.com/lockstile/locker/internal/netproxy"
)

// processContest is a contention of processes, with one goroutine in each. To wake another
// process costs more than to wake a goroutine of the process that measures.
type processContest struct {
	count   int
	section time.Duration
	network time.Duration // there and back; 0 for the loopback interface alone
}

func (p processContest) name() string {
	return fmt.Sprintf("processes-%d-%v-%v", p.count, p.section, p.network)
}

func (p processContest) about() string {
	network := ""
	if p.network > 0 {
		network = fmt.Sprintf(", over a network of %v", p.network)
	}
	return fmt.Sprintf("One name, %d processes of one goroutine, held for %v%s", p.count, p.section, network)
}

// task tells one of the processes what to do.
type task struct {
	Store, Subject string
	Addrs          []string
	Section        time.Duration
}

// holdTime is when a process had the lock, in nanoseconds of the machine's clock.
type holdTime struct{ Granted, Released int64 }

// processVerb makes a process one of those that compete. It is not for people.
const processVerb = "compete"

func (p processContest) run(ctx context.Context, t trial) (figures, error) {
	addrs, end, err := p.reach(t.running.addrs)
	if err != nil {
		return nil, err
	}
	defer end()
	all := make([]*competitor, p.count)
	for i := range all {
		if all[i], err = start(ctx, task{t.running.store, t.subject.name, addrs, p.section}); err != nil {
			return nil, err
		}
		defer all[i].end()
	}
	return p.compete(ctx, all, t)
}

// reach returns addresses of proxies that delay what passes, if a delay is wanted.
func (p processContest) reach(servers []string) (addrs []string, end func(), err error) {
	end = func() {}
	if p.network == 0 {
		return servers, end, nil
	}
	for _, server := range servers {
		proxy, err := netproxy.Listen(server)
		if err != nil {
			end()
			return nil, nil, err
		}
		proxy.Delay(p.network / 2)
		addrs, end = append(addrs, proxy.Addr()), both(end, proxy.Close)
	}
	return addrs, end, nil
}

func both(a, b func()) func() { return func() { a(); b() } }

func (p processContest) compete(ctx context.Context, all []*competitor, t trial) (figures, error) {
	name := fmt.Sprint("bench/processes/", races.Add(1))
	for _, pr := range all {
		if err := pr.say(name); err != nil {
			return nil, err
		}
	}
	pause(ctx, 200*time.Millisecond)
	requests, begin := t.subject.requests(), time.Now()
	pause(ctx, t.each)
	end := time.Now()
	requests = t.subject.requests() - requests
	notes := meter.New(len(all))
	notes.Count(true)
	type event struct {
		holdTime
		who int
	}
	var events []event
	for who, pr := range all {
		holds, err := pr.result()
		if err != nil {
			return nil, err
		}
		for _, h := range holds {
			if h.Granted >= begin.UnixNano() && h.Granted < end.UnixNano() {
				events = append(events, event{h, who})
			}
		}
	}
	slices.SortFunc(events, func(a, b event) int { return cmp.Compare(a.Granted, b.Granted) })
	for _, e := range events {
		notes.Granted(e.who, time.Unix(0, e.Granted))
		notes.Leaves(time.Unix(0, e.Released))
	}
	return contest(notes, end.Sub(begin), requests), ctx.Err()
}

// competitor is one of the processes, seen from the one that measures.
type competitor struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// start starts a process, which is ready to compete when it returns.
func start(ctx context.Context, t task) (*competitor, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	p := &competitor{cmd: exec.CommandContext(ctx, self, processVerb, string(text))} //nolint:gosec // ourselves
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	if line, err := p.out.ReadString('\n'); line != "ready\n" {
		p.end()
		return nil, fmt.Errorf("a process that should compete said %q: %w", line, errors.Join(err, ctx.Err()))
	}
	return p, nil
}

func (p *competitor) say(line string) error {
	_, err := fmt.Fprintln(p.in, line)
	return err
}

// result tells the process to stop, and returns when it had the lock.
func (p *competitor) result() (holds []holdTime, err error) {
	if err := p.in.Close(); err != nil {
		return nil, err
	}
	return holds, json.NewDecoder(p.out).Decode(&holds)
}

func (p *competitor) end() {
	_ = p.in.Close()
	_ = p.cmd.Process.Kill() // it has said all that it had to say
	_ = p.cmd.Wait()
}

// beProcess is what a competing process does: it reads the name of the lock, and locks
// and unlocks until its input ends.
func beProcess(text string) error {
	var t task
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c, err := t.open()
	if err != nil {
		return err
	}
	defer c.Close()
	if err := warm(ctx, []client{c}, 1); err != nil {
		return err
	}
	fmt.Println("ready")
	in := bufio.NewScanner(os.Stdin)
	in.Scan()
	name := in.Text()
	go func() {
		in.Scan()
		cancel()
	}()
	holds := []holdTime{}
	for ctx.Err() == nil {
		h, err := c.Lock(ctx, name)
		if err != nil {
			if ctx.Err() != nil {
				break
			}
			return err
		}
		granted := time.Now().UnixNano()
		time.Sleep(t.Section)
		holds = append(holds, holdTime{granted, time.Now().UnixNano()})
		if err := h.Unlock(context.WithoutCancel(ctx)); err != nil {
			return err
		}
	}
	return json.NewEncoder(os.Stdout).Encode(holds)
}

// open opens the client of a task.
func (t task) open() (client, error) {
	for _, st := range stores() {
		if st.name != t.Store || st.at == nil {
			continue
		}
		for _, sub := range st.at(t.Addrs, func(...string) func() int64 { return nil }) {
			if sub.name == t.Subject {
				return sub.open()
			}
		}
	}
	return nil, fmt.Errorf("there is no subject %q on %q", t.Subject, t.Store)
}
