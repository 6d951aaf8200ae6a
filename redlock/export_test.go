package redlock

// InLine counts the goroutines of l that have or want the lock called name.
func InLine(l *Locker, name string) int { return l.lines.Len(name) }

// UnderWay counts the requests and clean-ups of l that have not ended.
func UnderWay(l *Locker) int { return l.chores.Len() }
