package zookeeper

// UnderWay counts the clean-ups that are under way.
func (l *Locker) UnderWay() int { return l.store.locks.UnderWay() }

// Watches counts those that are remembered.
func (l *Locker) Watches() (n int) {
	l.store.watches.Range(func(any, any) bool { n++; return true })
	return n
}
