package zookeeper

// AwaitSweeps returns when nothing is left to clean up.
func (l *Locker) AwaitSweeps() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.sweeping {
		l.idle.Wait()
	}
}
