package postgres

import "context"

// Busy keeps the session's connection busy with a statement that does not end by
// itself, and returns a channel with its error.
func Busy(s *SessionLocker) (<-chan error, error) {
	sess, err := s.live(context.Background())
	if err != nil {
		return nil, err
	}
	done := make(chan error, 1)
	go func() {
		var slept bool
		done <- sess.do(context.Background(), `SELECT pg_sleep(3600) IS NULL`, nil, []any{&slept})
	}()
	return done, nil
}

// Queued is how many statements wait for the session's connection.
func Queued(s *SessionLocker) int {
	sess, err := s.live(context.Background())
	if err != nil {
		return -1
	}
	sess.mu.Lock()
	defer sess.mu.Unlock()
	return len(sess.calls)
}
