package zookeeper

// AwaitSweeps returns when nothing is left to clean up.
func (l *Locker) AwaitSweeps() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.sweeping {
		l.idle.Wait()
	}
}

// InLine counts the goroutines that hold the name or wait for it.
func (l *Locker) InLine(name string) int { return l.lines.Len(name) }
