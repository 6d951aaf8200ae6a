package redlock

import (
	"testing"
	"time"
)

// A request's context is used again, by whichever seat comes next. Who gives up a
// request that has had its answer must not end another's.
func TestARequestThatHasItsAnswerCannotBeGivenUp(t *testing.T) {
	s := &seat{timeout: time.Hour}
	b := s.brief()
	s.stop(b)
	s.giveUp()
	if err := b.Err(); err != nil {
		t.Error(err)
	}
	if s.now.Load() != nil {
		t.Error("the seat keeps it")
	}
}

// More than once, for what is in a pool may be dropped at any time.
func TestNoRequestBeginsWithAContextThatHasEnded(t *testing.T) {
	end := map[string]func(*seat) *brief{
		"given up": func(s *seat) *brief {
			s.timeout = time.Hour
			b := s.brief()
			s.giveUp()
			return b
		},
		"too late": func(s *seat) *brief {
			s.timeout = time.Nanosecond
			b := s.brief()
			<-b.Done()
			return b
		},
	}
	for name, ended := range end {
		t.Run(name, func(t *testing.T) {
			for range 50 {
				s := &seat{}
				b := ended(s)
				if b.Err() == nil {
					t.Fatal("it has not ended")
				}
				s.stop(b)
				if s.now.Load() != nil {
					t.Fatal("the seat keeps it")
				}
				s.timeout = time.Hour
				next := s.brief()
				if err := next.Err(); err != nil {
					t.Fatal(err)
				}
				s.stop(next)
			}
		})
	}
}
