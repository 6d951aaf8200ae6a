package s3object_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/lockstile/locker/conformance"
	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/register"
	"github.com/lockstile/locker/register/registertest"
	"github.com/lockstile/locker/register/s3object"
)

const bucket = "locks"

// server starts a server that has the bucket.
func server(t testing.TB) *testserver.S3Server {
	t.Helper()
	srv := testserver.S3(t)
	if _, err := client(srv, srv.URL()).CreateBucket(context.Background(), &s3.CreateBucketInput{Bucket: aws.String(bucket)}); err != nil {
		t.Fatal(err)
	}
	return srv
}

// client returns one of a server that is reached at a URL. It has connections of its own.
func client(srv *testserver.S3Server, url string) *s3.Client {
	return clientOf(url, srv.Access, srv.Secret)
}

func clientOf(url, access, secret string) *s3.Client {
	return s3.New(s3.Options{
		BaseEndpoint: &url, Region: "us-east-1", UsePathStyle: true,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: access, SecretAccessKey: secret}, nil
		}),
	})
}

// process returns a Locker as another process has it, of a server that is reached at a URL.
func process(t testing.TB, srv *testserver.S3Server, url string) *register.Locker {
	t.Helper()
	l, err := s3object.New(client(srv, url), bucket, s3object.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func TestConformance(t *testing.T) {
	srv := server(t)
	registertest.Run(t, registertest.Harness{
		New:     func(testing.TB) register.Store { return s3object.NewStore(client(srv, srv.URL()), bucket, "a/b/") },
		Options: s3object.Like,
	})
}

// TestBrokenConnections breaks the TCP connections of the SDK's client, where TestConformance loses what a Store is asked and answers. The
// clauses are those that are about lost, late and repeated requests.
func TestBrokenConnections(t *testing.T) {
	srv := server(t)
	about := []string{
		"lost-reply", "own-grant", "lost-reply-while-waiting", "lost-grant", "late-delivery", "late-after-clean-up", "late-after-taken", "late-after-unlock",
		"silent-store", "cut-while-waiting", "lost-unlock-reply", "min-hold-lost-reply",
	}
	ran := 0
	for _, c := range conformance.Clauses() {
		if !slices.Contains(about, c.Name) {
			continue
		}
		ran++
		t.Run(c.Name, func(t *testing.T) {
			c.Run(t, conformance.Harness{TTL: 2 * time.Second, New: func(t testing.TB) conformance.Process {
				p := conformance.NewProxy(t, srv.Addr())
				return conformance.Process{Locker: process(t, srv, "http://"+p.Addr()), Network: p}
			}})
		})
	}
	if ran != len(about) {
		t.Errorf("there are %d of the clauses %q", ran, about)
	}
}
