package redlock

import "github.com/lockstile/locker/internal/contract"

// UnderWay counts the requests and clean-ups of l that have not ended.
func UnderWay(l *Locker) int { return l.store.locks.UnderWay(contract.Key{}) }
