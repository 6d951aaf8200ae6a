// Package s3object implements [locker.Locker] with objects in an S3 bucket, through package [register]: on Amazon S3, and on stores that speak its
// protocol and have conditional writes.
//
//	locks, err := s3object.New(s3.NewFromConfig(cfg), "my-bucket", s3object.Options{})
//
// The README says what locks cost here, what to set, and which stores have conditional writes.
//
// # Guarantees
//
// Those of package [register] on a store that keeps what it has confirmed, as Amazon S3 does, and honours conditions for writes that come at the same time,
// too. Stores that do not are known; package register notices only those that ignore conditions altogether.
//
// # Losing a lock
//
// As package [register] says. Whoever may write to the bucket can take a lock away.
//
// # Clocks
//
// How old a record is, is the Date of an answer less the object's Last-Modified. They may come from the clocks of two servers of the store, which
// must agree ([locker.AgreedClocks]). Both are in whole seconds. So a process that has not watched a lock takes it from a dead
// holder up to three seconds late, and a minimum hold is as much longer for it.
//
// # Requirements
//
// The rights s3:GetObject, s3:PutObject and s3:ListBucket: without the last one S3 does not say that an object is missing. A proxy in front of the
// store must not send a PUT twice, and must not answer from a cache. Nothing may delete the objects while programs run.
package s3object

import (
	"cmp"
	"context"
	"encoding/base32"
	"errors"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/driver"
	"github.com/lockstile/locker/register"
)

// Options are the settings of [New]. The zero value is ready to use.
type Options struct {
	// Prefix is what the keys of the objects begin with: one or more words, each with a "/" after it. All programs that share locks
	// need the same one. The default is "lockstile/".
	Prefix string

	// Poll is for how long a waiter waits before it looks again, which costs a GET. The default is that of [register.Options].
	Poll time.Duration
}

const (
	// limit is the largest record in bytes: a thousand slots with long texts have less than half of it.
	limit = 1 << 20
	// part is the longest part of a key between two slashes: where objects are files, a file's name has at most 255 bytes.
	part = 200
	// room is the longest prefix: S3 takes keys of 1,024 bytes, and the longest name has 831.
	// (https://docs.aws.amazon.com/AmazonS3/latest/userguide/object-keys.html)
	room = 1024 - 831
	// long is what the key of a long name begins with, after the prefix.
	long = "!!"
)

var folders = regexp.MustCompile(`^(\w[\w.-]*/)+$`)

// like says what the Store is like.
var like = register.Options{Backend: "s3object", Exclusion: locker.AgreedClocks, Age: true, Limit: limit}

// New returns a Locker on a bucket, and asks nobody. The client is never closed. It needs a region, and for stores other than Amazon S3 an endpoint.
func New(client *s3.Client, bucket string, opts Options) (*register.Locker, error) {
	s := &objects{client, bucket, cmp.Or(opts.Prefix, "lockstile/")}
	if client == nil || bucket == "" || !folders.MatchString(s.prefix) || len(s.prefix) > room {
		return nil, fmt.Errorf(`s3object: bucket %q, prefix %q: it needs a client, a bucket and a prefix like "my/locks/" of %d bytes at most`, bucket, s.prefix, room)
	}
	options := like
	options.Poll = opts.Poll
	return register.New(s, options)
}

// objects is a [register.Store] that keeps each record as an object. The version is the object's ETag: a hash of the record, or, where the store
// encrypts objects, something that changes with the content.
type objects struct {
	client         *s3.Client
	bucket, prefix string
}

// Get implements [register.Store].
//
// The age is the answer's Date less the object's Last-Modified. Both are in whole seconds, so each is less than a second away from what its
// clock showed, however that was rounded: the true age is more than the difference less two seconds. Some stores take the time at
// which a PUT arrived, others that at which it was done. Both come after it was sent, from where its sender counts. A Date that is too
// old, of an answer from a cache, makes the age smaller. Without a Date it is 0.
func (s *objects) Get(ctx context.Context, name string) (register.Entry, error) {
	out, err := s.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &s.bucket, Key: aws.String(s.key(name))}, compatible, uncached)
	if code(err) == "NoSuchKey" {
		return register.Entry{}, nil
	}
	if err != nil {
		return register.Entry{}, explained(err)
	}
	defer out.Body.Close()
	record, err := io.ReadAll(io.LimitReader(out.Body, limit+1))
	switch {
	case err != nil:
		return register.Entry{}, fmt.Errorf("reading the object: %w", err)
	case len(record) > limit:
		return register.Entry{}, driver.Refused(fmt.Errorf("the object %q has more than %d bytes, so it is no record of a lock", s.key(name), limit))
	case aws.ToString(out.ETag) == "" || out.LastModified == nil:
		return register.Entry{}, errors.New("the store's answer has no ETag, or no Last-Modified")
	}
	date, _ := awsmiddleware.GetServerTime(out.ResultMetadata)
	return register.Entry{Record: record, Version: *out.ETag, Age: max(date.Add(-2*time.Second).Sub(*out.LastModified), 0)}, nil
}

// Swap implements [register.Store]. The write is sent once: if it were sent again after it was done, it would be refused because of itself.
// The SDK sends again unless it is told not to. net/http does not, for the SDK gives it no GetBody.
//
// A 409 says that nothing was written, because another request for the object was under way, and that it may be sent again
// (https://docs.aws.amazon.com/AmazonS3/latest/API/API_PutObject.html).
func (s *objects) Swap(ctx context.Context, name, version string, record []byte) (string, error) {
	in := &s3.PutObjectInput{Bucket: &s.bucket, Key: aws.String(s.key(name)), ContentType: aws.String("application/json")}
	if in.IfMatch = &version; version == "" {
		in.IfMatch, in.IfNoneMatch = nil, aws.String("*")
	}
	for range 5 {
		in.Body = strings.NewReader(string(record))
		out, err := s.client.PutObject(ctx, in, compatible, once)
		if err == nil && aws.ToString(out.ETag) != "" {
			return *out.ETag, nil
		}
		switch code(err) {
		case "ConditionalRequestConflict", "OperationAborted":
			continue
		case "PreconditionFailed", "NoSuchKey":
			return "", fmt.Errorf("%w: %w", register.ErrChanged, err)
		}
		return "", explained(cmp.Or(err, errors.New("the store's answer has no ETag")))
	}
	return "", fmt.Errorf("%w, or is about to: the store says that other requests are under way", register.ErrChanged)
}

// List implements [register.Lister].
func (s *objects) List(ctx context.Context, prefix string) (map[string]register.Entry, error) {
	entries, text := make(map[string]register.Entry), escaped(prefix)
	heads := []string{text[:min(len(text), part)], long}
	if text == "" {
		heads = heads[:1] // it is that of all
	}
	for _, below := range heads {
		pages := s3.NewListObjectsV2Paginator(s.client, &s3.ListObjectsV2Input{Bucket: &s.bucket, Prefix: aws.String(s.prefix + below)})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx, compatible)
			if err != nil {
				return nil, explained(err)
			}
			for _, object := range page.Contents {
				if name, ours := s.name(aws.ToString(object.Key)); ours && strings.HasPrefix(name, prefix) {
					if entries[name], err = s.Get(ctx, name); err != nil {
						return nil, err
					}
				}
			}
		}
	}
	return entries, nil
}

var others, parts = regexp.MustCompile(`[^a-z0-9_-]+`), regexp.MustCompile(fmt.Sprintf(".{%d}", part))

var base32hex = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

// key returns the key of a name's object. Some stores keep objects as files: then "..", upper and lower case, and a folder where there is a file
// need care. So a key has small letters, digits, "-", "_", and "!" with two digits for every other byte. A name that would be too long for
// a file's is written in base32 instead, in parts: all but the last end in "!", and the last in "-".
func (s *objects) key(name string) string {
	text := escaped(name)
	if len(text) > part {
		text = long + parts.ReplaceAllString(base32hex.EncodeToString([]byte(name)), "$0!/") + "-"
	}
	return s.prefix + text
}

func escaped(name string) string {
	return others.ReplaceAllStringFunc(name, func(c string) string { return "!" + strings.ReplaceAll(fmt.Sprintf("% x", c), " ", "!") })
}

// name is the reverse of key. It is false for objects that are not ours.
func (s *objects) name(key string) (name string, ours bool) {
	text := strings.TrimPrefix(key, s.prefix)
	name, _ = url.PathUnescape(strings.ReplaceAll(text, "!", "%"))
	if rest, ok := strings.CutPrefix(text, long); ok {
		decoded, _ := base32hex.DecodeString(strings.NewReplacer("!/", "", "-", "").Replace(rest))
		name = string(decoded)
	}
	return name, name != "" && s.key(name) == key
}

// compatible leaves out the checksums that the SDK sends in a trailer and asks for in answers, which other stores may not know
// (https://github.com/aws/aws-sdk-go-v2/issues/3556, https://github.com/fleetdm/fleet/issues/47850).
func compatible(o *s3.Options) {
	o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
	o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
}

func once(o *s3.Options) { o.Retryer = aws.NopRetryer{} }

var uncached = s3.WithAPIOptions(smithyhttp.AddHeaderValue("Cache-Control", "no-cache"))

// code is what the store calls an error, or "".
func code(err error) string {
	answer := smithy.APIError(new(smithy.GenericAPIError)) // without a code
	_ = errors.As(err, &answer)
	return answer.ErrorCode()
}

// explained marks what lasts until somebody changes a setting. SlowDown does not, nor does RequestTimeTooSkewed, after which the SDK corrects its clock.
func explained(err error) error {
	switch code(err) {
	case "NotImplemented":
		return driver.Refused(fmt.Errorf("the store has no conditional writes, so it cannot have locks: %w", err))
	case "AccessDenied":
		return driver.Refused(fmt.Errorf("the rights s3:GetObject, s3:PutObject and s3:ListBucket are needed: %w", err))
	case "NoSuchBucket", "InvalidBucketName", "InvalidAccessKeyId", "XAdminUserNotFound", "SignatureDoesNotMatch", "AllAccessDisabled", "PermanentRedirect", "AuthorizationHeaderMalformed":
		return driver.Refused(err)
	}
	return err
}
