package zookeeper

// Watches counts those that are remembered.
func (l *Locker) Watches() (n int) {
	l.store.watches.Range(func(any, any) bool { n++; return true })
	return n
}
