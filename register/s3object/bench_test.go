package s3object_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/lockstile/locker/register/s3object"
)

// A lock that nobody else wants is one write, and its release another.
func BenchmarkUncontended(b *testing.B) {
	srv := server(b)
	c := client(srv, srv.URL())
	b.Run("lock and unlock", func(b *testing.B) {
		locks, err := s3object.New(c, bucket, s3object.Options{})
		if err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			lock, err := locks.TryLock(b.Context(), "bench")
			if err != nil {
				b.Fatal(err)
			}
			if err := lock.Unlock(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("two conditional PUTs", func(b *testing.B) {
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
		if _, err := c.DeleteObject(b.Context(), &s3.DeleteObjectInput{Bucket: aws.String(bucket), Key: aws.String("bare")}); err != nil {
			b.Fatal(err)
		}
		held, n := strings.Repeat("x", 300), 0 // a record with a holder is about as long, and one without has half
		etag := put(nil, held)
		for b.Loop() {
			n++
			etag = put(put(etag, held+strconv.Itoa(n)), held[:150]+strconv.Itoa(n))
		}
	})
}
