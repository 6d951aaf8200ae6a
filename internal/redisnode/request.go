package redisnode

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"
)

// request is a script with its keys and arguments, as a command. Keys are strings, as the
// client's own methods send them: a hook of its user's may rewrite them. The other
// arguments are mostly pointers, which go-redis follows when it writes them: a string or
// a number in an any is memory of its own, a pointer is not. So what they point to must
// never change, for a request may be under way for longer than anybody waits for it.
type request struct {
	script *script
	args   []any
}

// request returns one with the keys that most scripts expect.
func (a *Attempt) request(s *script, args ...any) request {
	return a.Keys.request(s, a.Keys.all[ownKey], args...)
}

// request returns one whose last key is mark. The lock's key comes first, where tracing
// shows it; values are secrets, and not shown.
func (k *Keys) request(s *script, mark any, args ...any) request {
	const more = 2 // arguments that a quorum adds
	all := make([]any, 0, 3+len(k.all)+len(args)+more)
	all = append(append(s.call(all), len(k.all)), k.all[:ownKey]...)
	return request{script: s, args: append(append(all, mark), args...)}
}

// requestOf returns one with these keys only.
func requestOf(s *script, keys []any, args ...any) request {
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(append(s.call(all), len(keys)), keys...)
	return request{script: s, args: append(all, args...)}
}

// key is the first key.
func (r request) key() string { return r.args[3].(string) }

// command returns what is sent, once: the arguments are its own, for a hook that
// rewrites keys would rewrite those of the next try again.
func (r request) command(ctx context.Context) once {
	return once{redis.NewCmd(ctx, slices.Clone(r.args)...)}
}

// byText is the command for a server that has not seen the script.
func (r request) byText(ctx context.Context) once {
	args := slices.Clone(r.args)
	args[0], args[1] = "eval", r.script.text
	return once{redis.NewCmd(ctx, args...)}
}

// once is a command that go-redis must not send a second time by itself: without
// knowing of the first, we could not tell a lock that was lost from one that the first
// has released.
type once struct{ *redis.Cmd }

// NoRetry tells go-redis.
func (once) NoRetry() bool { return true }
