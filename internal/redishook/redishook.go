// Package redishook has a hook for go-redis such as users have: it keeps tenants apart on
// one server, and counts.
package redishook

import (
	"context"
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
	errs   []error
}

// Count is how many commands of this name have gone through the hook.
func (h *Tenant) Count(name string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.counts[name]
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
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook implements [redis.Hook].
func (h *Tenant) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			h.see(cmd)
		}
		return next(ctx, cmds)
	}
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
