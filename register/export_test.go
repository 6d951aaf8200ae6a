package register

// What tests of the whole package need.
var (
	NewWithClock = newLocker
	ProbeName    = probeName
)

// Remembered returns how many names a Locker remembers.
func (l *Locker) Remembered() int {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	return len(l.store.names)
}
