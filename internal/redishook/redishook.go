// Package redishook has a hook for go-redis such as users have: it keeps tenants apart on
// one server, and counts.
package redishook

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Tenant puts a prefix before every key of every script, and counts the commands.
type Tenant struct {
	Prefix string // none: it only counts

	mu     sync.Mutex
	counts map[string]int
	lost   map[string]int
	errs   []error
}

// Count is how many commands of this name have gone through the hook.
func (h *Tenant) Count(name string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.counts[name]
}

// Lost is how many of them have no answer. The server may have been sent them, or not: the client's time can be over before.
func (h *Tenant) Lost(name string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lost[name]
}

// Errors is what the hook could make nothing of.
func (h *Tenant) Errors() []error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.errs)
}

// DialHook implements [redis.Hook].
func (h *Tenant) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements [redis.Hook].
func (h *Tenant) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.see(cmd)
		err := next(ctx, cmd)
		h.hear(cmd, err)
		return err
	}
}

// ProcessPipelineHook implements [redis.Hook].
func (h *Tenant) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			h.see(cmd)
		}
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			h.hear(cmd, cmd.Err())
		}
		return err
	}
}

func (h *Tenant) hear(cmd redis.Cmder, err error) {
	if err == nil || errors.As(err, new(redis.Error)) { // the server's
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lost == nil {
		h.lost = make(map[string]int)
	}
	h.lost[cmd.Name()]++
}

func (h *Tenant) see(cmd redis.Cmder) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.counts == nil {
		h.counts = make(map[string]int)
	}
	h.counts[cmd.Name()]++
	args := cmd.Args()
	if h.Prefix == "" || cmd.Name() != "eval" && cmd.Name() != "evalsha" {
		return // no other command of ours has keys
	}
	for i := range args[2].(int) {
		key, ok := args[3+i].(string)
		if !ok {
			h.errs = append(h.errs, fmt.Errorf("key %d of %s is a %T, and not a string", i+1, cmd.Name(), args[3+i]))
			continue
		}
		args[3+i] = h.Prefix + key
	}
}
