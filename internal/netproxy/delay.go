package netproxy

import (
	"io"
	"time"
)

// slow returns a reader that gives each piece of from a time d after it came. Pieces that
// come meanwhile are delayed by d, too, and not by the sum.
func slow(from io.Reader, d time.Duration) io.Reader {
	if d == 0 {
		return from
	}
	r := &slowReader{pieces: make(chan piece, 64)}
	go func() { // ends with from, which the Proxy closes
		defer close(r.pieces)
		for {
			buf := make([]byte, 4<<10)
			n, err := from.Read(buf)
			r.pieces <- piece{buf[:n], err, time.Now().Add(d)}
			if err != nil {
				return
			}
		}
	}()
	return r
}

type piece struct {
	bytes []byte
	err   error
	due   time.Time
}

type slowReader struct {
	pieces chan piece
	now    piece
}

func (r *slowReader) Read(p []byte) (int, error) {
	if len(r.now.bytes) == 0 {
		next, ok := <-r.pieces
		if !ok {
			return 0, io.EOF
		}
		time.Sleep(time.Until(next.due))
		r.now = next
	}
	n := copy(p, r.now.bytes)
	r.now.bytes = r.now.bytes[n:]
	if len(r.now.bytes) > 0 {
		return n, nil
	}
	return n, r.now.err
}
