package zookeeper

// UnderWay counts the clean-ups that are under way.
func (l *Locker) UnderWay() int { return l.store.locks.UnderWay() }

// Watches counts those that are remembered.
func (l *Locker) Watches() int {
	w := &l.store.watches
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.live)
}
