package s3object_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/fencing"
	"github.com/lockstile/locker/internal/quoted"
	"github.com/lockstile/locker/register/s3object"
)

func makeInvoices(_ context.Context, token fencing.Token) error {
	fmt.Println("invoices made under a token:", token > 0)
	return nil
}

func Example() {
	var cfg aws.Config // that config.LoadDefaultConfig of the SDK returns, with credentials and a region
	if err := run(context.Background(), cfg); err != nil {
		fmt.Println(err)
	}
}

func run(ctx context.Context, cfg aws.Config) error {
	locks, err := s3object.New(s3.NewFromConfig(cfg), "my-bucket", s3object.Options{})
	if err != nil {
		return err
	}
	defer locks.Close()
	return locker.Do(ctx, locks, "invoices", func(ctx context.Context, lock *locker.Lock) error {
		return makeInvoices(ctx, lock.Token())
	}, locker.WithTTL(2*time.Minute))
}

// A store other than Amazon S3.
func other(cfg aws.Config, endpoint string) *s3.Client {
	return s3.NewFromConfig(cfg, func(o *s3.Options) {
		o.BaseEndpoint = &endpoint
		o.UsePathStyle = true
	})
}

func TestReadmeIsCodeThatRuns(t *testing.T) {
	quoted.Check(t, "README.md", "example_test.go")
	srv := server(t)
	url := srv.URL()
	cfg := aws.Config{Region: "us-east-1", BaseEndpoint: &url, Credentials: client(srv, url).Options().Credentials}
	if _, err := other(cfg, url).CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String("my-bucket")}); err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), cfg); err != nil {
		t.Error(err)
	}
}
