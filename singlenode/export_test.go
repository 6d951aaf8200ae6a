package singlenode

// InLine counts the goroutines that hold the lock or wait for it.
func (l *Locker) InLine(name string) int { return l.lines.Len(name) }
