package s3object_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/lockstile/locker/register/s3object"
)

// BenchmarkUncontended has a lock and its release, which are one write each, take turns with two bare conditional PUTs, so that both meet the
// machine as it is. It reports medians.
func BenchmarkUncontended(b *testing.B) {
	srv := server(b)
	c := client(srv, srv.URL())
	locks, err := s3object.New(c, bucket, s3object.Options{})
	if err != nil {
		b.Fatal(err)
	}
	put := func(etag *string, text string) *string {
		in := &s3.PutObjectInput{Bucket: aws.String(bucket), Key: aws.String("bare"), IfMatch: etag, Body: strings.NewReader(text)}
		if etag == nil {
			in.IfNoneMatch = aws.String("*")
		}
		out, err := c.PutObject(b.Context(), in)
		if err != nil {
			b.Fatal(err)
		}
		return out.ETag
	}
	held, n := strings.Repeat("x", 300), 0 // a record with a holder is about as long, and one without has half
	etag := put(nil, held)
	var took [2][]time.Duration
	for b.Loop() {
		n++
		began := time.Now()
		lock, err := locks.TryLock(b.Context(), "bench")
		if err != nil {
			b.Fatal(err)
		}
		if err := lock.Unlock(b.Context()); err != nil {
			b.Fatal(err)
		}
		between := time.Now()
		etag = put(put(etag, held+strconv.Itoa(n)), held[:150]+strconv.Itoa(n))
		took[0], took[1] = append(took[0], between.Sub(began)), append(took[1], time.Since(between))
	}
	for i, unit := range []string{"lock-µs", "two-PUTs-µs"} {
		slices.Sort(took[i])
		b.ReportMetric(float64(took[i][len(took[i])/2].Microseconds()), unit)
	}
}
