package s3object_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/lockstile/locker"
	"github.com/lockstile/locker/internal/locktest"
	"github.com/lockstile/locker/register"
	"github.com/lockstile/locker/register/s3object"
)

func TestNewRefusesWhatItCannotUse(t *testing.T) {
	t.Parallel()
	c := s3.New(s3.Options{})
	longest := strings.Repeat("x", s3object.Room-1) + "/"
	for _, bad := range []string{"a", "/", "/a/", "a//", "../", "a/../", ".a/", "a b/", "ä/", "a\n/", "a/\n", `a\/`, "x" + longest} {
		if _, err := s3object.New(c, "b", s3object.Options{Prefix: bad}); err == nil {
			t.Errorf("the prefix %q is not refused", bad)
		}
	}
	for _, good := range []string{"", "a/", "a.b/c-d/E_1/", longest} {
		if _, err := s3object.New(c, "b", s3object.Options{Prefix: good}); err != nil {
			t.Errorf("the prefix %q is refused: %v", good, err)
		}
	}
	if _, err := s3object.New(nil, "b", s3object.Options{}); err == nil {
		t.Error("no client is not refused")
	}
	if _, err := s3object.New(c, "", s3object.Options{}); err == nil {
		t.Error("no bucket is not refused")
	}
	if _, err := s3object.New(c, "b", s3object.Options{Poll: -1}); err == nil {
		t.Error("a Poll below zero is not refused")
	}
}

func TestNewDeclaresWhatItsTokensAreGoodFor(t *testing.T) {
	t.Parallel()
	c := s3.New(s3.Options{})
	have, err := s3object.New(c, "b", s3object.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if g := have.Guarantees(); !g.KeepsMinHold || g.Tokens != 0 || g.Exclusion != locker.PromptHolder|locker.SteadyClocks|locker.AgreedClocks {
		t.Errorf("New declares %+v", g)
	}
	if err := locker.Require(have, locker.Correctness); err != nil {
		t.Error(err)
	}
}

// names are of all lengths about where the keys get another form, and of all bytes that text may have.
func names() []string {
	all := []string{"a", "A", "..", ".", "/", "//", "a/", "/a", "a//b", "a.", "!", "!!", "!21", "%21", "a\x00b", "\x7f", "a\nb", `a\b`, "con", "ä", "ß", "😀", "a%2Fb"}
	for _, c := range []string{"x", "X", "ä", "😀"} {
		for n := 1; n*len(c) <= locker.MaxName; n++ {
			all = append(all, strings.Repeat(c, n))
		}
	}
	for c := range 128 {
		all = append(all, "_"+string(rune(c)))
	}
	return all
}

func TestKeysAreSuchAsEveryStoreTakes(t *testing.T) {
	t.Parallel()
	longest := strings.Repeat("p", s3object.Room-1) + "/"
	part := regexp.MustCompile(`^[a-z0-9_!-]{1,255}$`)
	keys := make(map[string]string)
	for _, name := range names() {
		key := s3object.Key(longest, name)
		if len(key) > 1024 {
			t.Errorf("the key of %q has %d bytes", name, len(key))
		}
		for _, p := range strings.Split(strings.TrimPrefix(key, longest), "/") {
			if !part.MatchString(p) {
				t.Errorf("the key %q of %q has the part %q", key, name, p)
			}
		}
		if back, ok := s3object.Name(longest, key); !ok || back != name {
			t.Errorf("the key of %q is that of %q, %v", name, back, ok)
		}
		if other, ok := keys[key]; ok && other != name {
			t.Errorf("%q and %q have one key", name, other)
		}
		keys[key] = name
	}
	for key := range keys { // where objects are files, none may be in the place of a folder
		for at := range key {
			if key[at] == '/' && keys[key[:at]] != "" {
				t.Errorf("the key %q is that of a file and of a folder", key[:at])
			}
		}
	}
	for _, foreign := range []string{"p/", "p/A", "p/a/b", "p/!2F", "p/!", "p/!2", "p/!zz", "p/!!", "p/!!a-", "p/%41", "q/a", "p/!61", "p/" + strings.Repeat("x", 201)} {
		if name, ok := s3object.Name("p/", foreign); ok {
			t.Errorf("the key %q is taken for that of %q", foreign, name)
		}
	}
}

func FuzzKeys(f *testing.F) {
	for _, name := range names() {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if len(name) == 0 || len(name) > locker.MaxName {
			t.Skip()
		}
		key := s3object.Key("p/", name)
		if back, ok := s3object.Name("p/", key); !ok || back != name {
			t.Errorf("the key %q of %q is that of %q, %v", key, name, back, ok)
		}
	})
}

// TestAgeIsALowerBoundOnAnotherClock has the times of answers replaced. The true age is what they differ by, give or take a second each.
func TestAgeIsALowerBoundOnAnotherClock(t *testing.T) {
	srv := server(t)
	var date, modified atomic.Value
	var control atomic.Value
	g := newGateway(t, srv, httptest.NewServer, func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		if r.Method == http.MethodGet {
			control.Store(r.Header.Get("Cache-Control"))
		}
		changed(w, r, pass, func(h http.Header) {
			for key, value := range map[string]*atomic.Value{"Date": &date, "Last-Modified": &modified} {
				switch text, ok := value.Load().(string); {
				case !ok:
				case text == "":
					h[key] = nil // also not set by the HTTP server
				default:
					h.Set(key, text)
				}
			}
		})
	})
	s := g.store()
	if _, err := s.Swap(t.Context(), "n", "", []byte("1")); err != nil {
		t.Fatal(err)
	}
	noon := time.Date(2031, 5, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct{ after, want time.Duration }{
		{-time.Hour, 0}, {-time.Second, 0}, {0, 0}, {time.Second, 0}, {2 * time.Second, 0}, {3 * time.Second, time.Second}, {time.Hour, time.Hour - 2*time.Second},
	} {
		modified.Store(noon.Format(http.TimeFormat))
		date.Store(noon.Add(c.after).Format(http.TimeFormat))
		if e, err := s.Get(t.Context(), "n"); err != nil || e.Age != c.want {
			t.Errorf("%v after Last-Modified the age is %v, error %v, want %v", c.after, e.Age, err, c.want)
		}
	}
	for _, no := range []string{"", "yesterday"} {
		date.Store(no)
		if e, err := s.Get(t.Context(), "n"); err != nil || e.Age != 0 {
			t.Errorf("with the Date %q the age is %v, error %v", no, e.Age, err)
		}
	}
	date.Store(noon.Format(http.TimeFormat))
	modified.Store("Fri, 31 Dec 9999 23:59:59 GMT")
	if e, err := s.Get(t.Context(), "n"); err != nil || e.Age != 0 {
		t.Errorf("with Last-Modified in the far future the age is %v, error %v", e.Age, err)
	}
	modified.Store("")
	if e, err := s.Get(t.Context(), "n"); err == nil {
		t.Errorf("without Last-Modified Get returned %+v", e)
	}
	if control.Load() != "no-cache" {
		t.Errorf("reads have the Cache-Control %q", control.Load())
	}
}

// TestWritesAreSentOnce has the store give all the answers to which clients send again. Changed, refused and unknown is what is known then.
func TestWritesAreSentOnce(t *testing.T) {
	srv := server(t)
	const changed, refused, unknown = "changed", "refused", "unknown"
	for _, c := range []struct {
		status int
		code   string
		want   string
		sent   int64
	}{
		{412, "PreconditionFailed", changed, 1},
		{412, "", changed, 1},
		{404, "NoSuchKey", changed, 1},
		{409, "ConditionalRequestConflict", changed, 5},
		{409, "OperationAborted", changed, 5},
		{409, "BucketNotEmpty", unknown, 1},
		{404, "NoSuchBucket", refused, 1},
		{403, "AccessDenied", refused, 1},
		{501, "NotImplemented", refused, 1},
		{501, "", refused, 1},
		{403, "RequestTimeTooSkewed", unknown, 1},
		{503, "SlowDown", unknown, 1},
		{503, "", unknown, 1},
		{500, "InternalError", unknown, 1},
		{400, "RequestTimeout", unknown, 1},
		{404, "", unknown, 1},
		{200, "", unknown, 1}, // without an ETag
	} {
		g := newGateway(t, srv, httptest.NewServer, func(w http.ResponseWriter, r *http.Request, _ http.Handler) { refuse(w, r, c.status, c.code) })
		for _, version := range []string{"", `"abc"`} {
			g.puts.Store(0)
			next, err := g.store().Swap(t.Context(), "n", version, []byte("1"))
			have := unknown
			switch {
			case errors.Is(err, register.ErrChanged):
				have = changed
			case errors.Is(err, locker.ErrRefused):
				have = refused
			}
			if err == nil || next != "" || have != c.want || g.puts.Load() != c.sent {
				t.Errorf("after the answer %d %s a write at version %q, sent %d times, returned %q and the error %v, want %s", c.status, c.code, version, g.puts.Load(), next, err, c.want)
			}
		}
	}
}

// A page of HTML, of a proxy that does not find the store, says nothing about a record.
func TestAnswersOfOthersAreNotTheStores(t *testing.T) {
	srv := server(t)
	g := newGateway(t, srv, httptest.NewServer, func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, "<html><body>not found<br></body></html>") // the client sees what is missing
	})
	if e, err := g.store().Get(t.Context(), "n"); err == nil {
		t.Errorf("Get returned %+v", e)
	}
	if _, err := g.store().Swap(t.Context(), "n", "1", []byte("1")); err == nil || errors.Is(err, register.ErrChanged) || errors.Is(err, locker.ErrRefused) {
		t.Errorf("Swap returned the error %v", err)
	}
}

func TestAConflictIsNoReasonToGiveUp(t *testing.T) {
	srv := server(t)
	var conflicts atomic.Int64
	g := newGateway(t, srv, httptest.NewServer, func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		if r.Method == http.MethodPut && conflicts.Add(-1) >= 0 {
			refuse(w, r, http.StatusConflict, "ConditionalRequestConflict")
			return
		}
		pass.ServeHTTP(w, r)
	})
	locks, err := register.New(g.store(), s3object.Like)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int64{2, 7} { // the first at the probe; 7 are more than a write is sent, so package register reads, and writes again
		conflicts.Store(n)
		locktest.Try(t, locks, fmt.Sprint(n))
		if left := conflicts.Load(); left >= 0 {
			t.Errorf("%d of %d conflicts were not met", left, n)
		}
	}
}

// TestALostAnswerIsNoRefusal has the store carry out a write, or not, and break the connection. It was in use before, which is when net/http sends some
// requests again.
func TestALostAnswerIsNoRefusal(t *testing.T) {
	srv := server(t)
	for _, carriedOut := range []bool{true, false} {
		var lose atomic.Bool
		g := newGateway(t, srv, httptest.NewServer, func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
			switch {
			case r.Method != http.MethodPut || !lose.Load():
				pass.ServeHTTP(w, r)
			case carriedOut:
				hangUp(t, w, r, pass)
			default:
				hangUp(t, w, r, nil)
			}
		})
		s, name := g.store(), fmt.Sprint("n", carriedOut)
		version, err := s.Swap(t.Context(), name, "", []byte("1"))
		if err != nil {
			t.Fatal(err)
		}
		lose.Store(true)
		g.puts.Store(0)
		_, err = s.Swap(t.Context(), name, version, []byte("2"))
		if err == nil || errors.Is(err, register.ErrChanged) || errors.Is(err, locker.ErrRefused) {
			t.Errorf("a write without an answer returned the error %v", err)
		}
		if sent := g.puts.Load(); sent != 1 {
			t.Errorf("a write without an answer was sent %d times", sent)
		}
		want := map[bool]string{true: "2", false: "1"}[carriedOut]
		if e, err := s.Get(t.Context(), name); err != nil || string(e.Record) != want {
			t.Errorf("the store has %q, error %v, want %q", e.Record, err, want)
		}
	}
}

// Of all errors of a read one says that there is no record.
func TestAReadThatFailsIsNoMissingRecord(t *testing.T) {
	srv := server(t)
	for _, c := range []struct {
		status  int
		code    string
		refused bool
	}{
		{404, "NoSuchBucket", true},
		{403, "AccessDenied", true},
		{403, "AllAccessDisabled", true},
		{404, "", false},
		{404, "NoSuchUpload", false},
		{412, "PreconditionFailed", false},
		{403, "RequestExpired", false},
	} {
		g := newGateway(t, srv, httptest.NewServer, func(w http.ResponseWriter, r *http.Request, _ http.Handler) { refuse(w, r, c.status, c.code) })
		if e, err := g.store().Get(t.Context(), "n"); err == nil || errors.Is(err, locker.ErrRefused) != c.refused {
			t.Errorf("after the answer %d %s Get returned %+v and the error %v, refused should be %v", c.status, c.code, e, err, c.refused)
		}
		if entries, err := g.store().List(t.Context(), ""); err == nil || errors.Is(err, locker.ErrRefused) != c.refused {
			t.Errorf("after the answer %d %s List returned %v and the error %v, refused should be %v", c.status, c.code, entries, err, c.refused)
		}
	}
}

func TestReadsAreSentAgain(t *testing.T) {
	srv := server(t)
	var failures atomic.Int64
	g := newGateway(t, srv, httptest.NewServer, func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		if failures.Add(-1) >= 0 {
			refuse(w, r, http.StatusServiceUnavailable, "SlowDown")
			return
		}
		pass.ServeHTTP(w, r)
	})
	failures.Store(1)
	if e, err := g.store().Get(t.Context(), "n"); err != nil || e.Version != "" {
		t.Errorf("Get returned %+v, %v", e, err)
	}
}

// TestAnAnswerThatIsCutIsNoRecord has the connection end within the record, with the length in the header and without.
func TestAnAnswerThatIsCutIsNoRecord(t *testing.T) {
	srv := server(t)
	for _, length := range []string{"100", ""} {
		g := newGateway(t, srv, httptest.NewServer, func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			w.Header().Set("ETag", `"1"`)
			w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
			if length != "" {
				w.Header().Set("Content-Length", length)
			}
			_, _ = io.WriteString(w, `{"lockstile":1}`)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		})
		if e, err := g.store().Get(t.Context(), "n"); err == nil {
			t.Errorf("with the length %q Get returned %+v", length, e)
		}
	}
}

func TestAnAnswerWithoutETagIsNoRecord(t *testing.T) {
	srv := server(t)
	g := newGateway(t, srv, httptest.NewServer, func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		changed(w, r, pass, func(h http.Header) { h.Del("ETag") })
	})
	if version, err := g.store().Swap(t.Context(), "n", "", []byte("1")); err == nil || errors.Is(err, register.ErrChanged) {
		t.Errorf("Swap returned %q, %v", version, err)
	}
	if e, err := g.store().Get(t.Context(), "n"); err == nil {
		t.Errorf("Get returned %+v", e)
	}
}

// TestAnObjectThatIsTooLargeIsRefused has the store send much more than a record. It must not be read.
func TestAnObjectThatIsTooLargeIsRefused(t *testing.T) {
	srv := server(t)
	const much = 256 << 20
	var sent atomic.Int64
	g := newGateway(t, srv, httptest.NewServer, func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		w.Header().Set("ETag", `"1"`)
		w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
		for some := make([]byte, 64<<10); sent.Load() < much; sent.Add(int64(len(some))) {
			if _, err := w.Write(some); err != nil {
				return
			}
		}
	})
	if e, err := g.store().Get(t.Context(), "n"); !errors.Is(err, locker.ErrRefused) {
		t.Errorf("Get returned %d bytes and the error %v", len(e.Record), err)
	}
	if sent.Load() >= much {
		t.Errorf("Get has read %d bytes", sent.Load())
	}
}

func TestAServerThatIgnoresConditionsIsRefused(t *testing.T) {
	srv := server(t)
	for _, ignored := range [][]string{{"If-Match", "If-None-Match"}, {"If-Match"}, {"If-None-Match"}} {
		g := newGateway(t, srv, httptest.NewServer, func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
			for _, header := range ignored {
				r.Header.Del(header)
			}
			pass.ServeHTTP(w, r)
		})
		locks, err := register.New(g.store(), s3object.Like)
		if err != nil {
			t.Fatal(err)
		}
		if lock, err := locks.TryLock(t.Context(), "n"); !errors.Is(err, locker.ErrRefused) || !strings.Contains(err.Error(), "ignores conditions") {
			t.Errorf("without %q TryLock returned %v, %v", ignored, lock, err)
		}
	}
}

func TestWhatAnAdministratorHasToChangeIsRefused(t *testing.T) {
	srv := server(t)
	for what, c := range map[string]struct {
		client *s3.Client
		bucket string
		code   string
	}{
		"a wrong secret":           {clientOf(srv.URL(), srv.Access, "wrong, "+srv.Secret), bucket, "SignatureDoesNotMatch"},
		"an account that is none":  {clientOf(srv.URL(), "nobody", srv.Secret), bucket, "XAdminUserNotFound"}, // InvalidAccessKeyId elsewhere
		"a bucket that is missing": {client(srv, srv.URL()), "missing", "NoSuchBucket"},
	} {
		locks, err := s3object.New(c.client, c.bucket, s3object.Options{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = locks.TryLock(t.Context(), "n")
		if !errors.Is(err, locker.ErrRefused) || !strings.Contains(err.Error(), c.code) {
			t.Errorf("with %s TryLock returned the error %v, want %s", what, err, c.code)
		}
		if err != nil && strings.Contains(err.Error(), srv.Secret) {
			t.Errorf("with %s the error shows the secret: %v", what, err)
		}
	}
}

func TestListReadsAllPages(t *testing.T) {
	srv := server(t)
	var pages atomic.Int64
	g := newGateway(t, srv, httptest.NewServer, func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		if q := r.URL.Query(); q.Get("list-type") == "2" {
			pages.Add(1)
			if len(q.Get("prefix")) > 1024 { // no key begins with it
				refuse(w, r, http.StatusBadRequest, "KeyTooLongError")
				return
			}
			q.Set("max-keys", "2")
			r.URL.RawQuery = q.Encode()
		}
		pass.ServeHTTP(w, r)
	})
	s, c := g.store(), client(srv, srv.URL())
	x := strings.Repeat("x", 300)
	want := []string{"x", "x/a", "x/b", "xX", x, x + "/", x + "ä"}
	for _, name := range append(want, "X", "y", "a/x", strings.Repeat("y", 300)) {
		if _, err := s.Swap(t.Context(), name, "", []byte("of "+name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, foreign := range []string{"a/x!", "a/xA", "a/x.txt", "x", "b/x", "a/!!x"} { // what else may be in the bucket
		if _, err := c.PutObject(t.Context(), &s3.PutObjectInput{Bucket: aws.String(bucket), Key: &foreign, Body: strings.NewReader("foreign")}); err != nil {
			t.Fatal(err)
		}
	}
	for prefix, want := range map[string][]string{"x": want, x: want[4:], "x/": want[1:3], x + "ä": want[6:], "z": nil, strings.Repeat("X", locker.MaxName): nil} {
		entries, err := s.List(t.Context(), prefix)
		if err != nil || len(entries) != len(want) {
			t.Errorf("List of %q returned %d entries, error %v, want %d", prefix, len(entries), err, len(want))
		}
		for _, name := range want {
			e, err := s.Get(t.Context(), name)
			if have := entries[name]; err != nil || string(have.Record) != "of "+name || have.Version != e.Version {
				t.Errorf("List of %q has %+v of %q, and Get %+v, %v", prefix, have, name, e, err)
			}
		}
	}
	if entries, err := s.List(t.Context(), ""); err != nil || len(entries) != len(want)+4 {
		t.Errorf("List of everything returned %d entries, error %v", len(entries), err)
	}
	if pages.Load() < 20 {
		t.Errorf("List asked for %d pages", pages.Load())
	}
}

// Over TLS the SDK sends checksums in trailers, and asks for them, unless it is told not to. Not every store reads them.
func TestRequestsOverTLSArePlain(t *testing.T) {
	srv := server(t)
	var seen [2]http.Header
	g := newGateway(t, srv, httptest.NewTLSServer, func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		switch r.Method {
		case http.MethodPut:
			seen[0] = r.Header.Clone()
		case http.MethodGet:
			seen[1] = r.Header.Clone()
		}
		pass.ServeHTTP(w, r)
	})
	c := s3.New(client(srv, g.URL).Options(), func(o *s3.Options) {
		o.HTTPClient = g.Client()
		o.RequestChecksumCalculation, o.ResponseChecksumValidation = aws.RequestChecksumCalculationWhenSupported, aws.ResponseChecksumValidationWhenSupported
	})
	s := s3object.NewStore(c, bucket, "a/")
	version, err := s.Swap(t.Context(), "n", "", []byte("1"))
	if err != nil {
		t.Fatal(err)
	}
	if e, err := s.Get(t.Context(), "n"); err != nil || string(e.Record) != "1" || e.Version != version {
		t.Errorf("the store has %+v, error %v", e, err)
	}
	for _, header := range seen {
		for key := range header {
			if strings.Contains(key, "Trailer") || strings.Contains(key, "Checksum") || key == "Content-Encoding" {
				t.Errorf("a request had the header %s: %s", key, header.Get(key))
			}
		}
	}
	if seen[0].Get("If-None-Match") != "*" || seen[0].Get("Content-Length") != "1" {
		t.Errorf("the write had the headers %v", seen[0])
	}
}

// In a bucket that keeps versions, each renewal leaves one.
func TestVersionedBucket(t *testing.T) {
	srv := server(t)
	c := client(srv, srv.URL())
	_, err := c.PutBucketVersioning(t.Context(), &s3.PutBucketVersioningInput{
		Bucket: aws.String(bucket), VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusEnabled},
	})
	if err != nil {
		t.Fatal(err)
	}
	locks, err := s3object.New(c, bucket, s3object.Options{Prefix: "p/"})
	if err != nil {
		t.Fatal(err)
	}
	var last uint64
	for range 3 {
		got := locktest.Try(t, locks, "n")
		if uint64(got.Token()) <= last {
			t.Errorf("token %d was granted after token %d", got.Token(), last)
		}
		last = uint64(got.Token())
		locktest.Unlock(t, got)
	}
	versions, err := c.ListObjectVersions(t.Context(), &s3.ListObjectVersionsInput{Bucket: aws.String(bucket), Prefix: aws.String("p/n")})
	if err != nil || len(versions.Versions) != 6 {
		t.Errorf("after 6 writes there are %d versions, error %v", len(versions.Versions), err)
	}
}

func TestLockOutlivesARestartOfTheServer(t *testing.T) {
	srv := server(t)
	one, other := process(t, srv, srv.URL()), process(t, srv, srv.URL())
	held := locktest.Lock(t, one, "n", locker.WithTTL(time.Minute))
	srv.Kill()
	srv.Start()
	if _, err := other.TryLock(t.Context(), "n"); !errors.Is(err, locker.ErrTaken) {
		t.Errorf("after a restart TryLock of another process returned the error %v", err)
	}
	locktest.Unlock(t, held)
	next := locktest.Try(t, other, "n")
	if next.Token() <= held.Token() {
		t.Errorf("token %d was granted after token %d", next.Token(), held.Token())
	}
	if infos, err := other.List(t.Context(), ""); err != nil || len(infos) != 1 || infos[0].Name != "n" {
		t.Errorf("List returned %+v, %v", infos, err)
	}
	locktest.Unlock(t, next)
}

// What the README says that locks cost.
func TestRequestsOfALock(t *testing.T) {
	srv := server(t)
	var gets atomic.Int64
	g := newGateway(t, srv, httptest.NewServer, func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		if r.Method == http.MethodGet {
			gets.Add(1)
		}
		pass.ServeHTTP(w, r)
	})
	locks := make([]*register.Locker, 2)
	for i := range locks {
		var err error
		if locks[i], err = register.New(g.store(), s3object.Like); err != nil {
			t.Fatal(err)
		}
	}
	lockAndUnlock := func(l *register.Locker, name string) { locktest.Unlock(t, locktest.Try(t, l, name)) }
	const rounds = 10
	nothing := func() {}
	for _, c := range []struct {
		what       string
		before     func()
		do         func(i int)
		puts, gets int64 // of all rounds
	}{
		{"the first of a process", nothing, func(i int) {
			if i < len(locks) {
				lockAndUnlock(locks[i], "n")
			}
		}, 2*2 + 4 + 3, 2 * (1 + 1)}, // the first of all makes the record that shows what the store is like
		{"names that it has not used", nothing, func(i int) { lockAndUnlock(locks[1], fmt.Sprint("n", i)) }, 2 * rounds, rounds},
		{"the same process", nothing, func(int) { lockAndUnlock(locks[1], "n") }, 2 * rounds, 0},
		{"two processes in turn", func() {
			lockAndUnlock(locks[0], "n")
			lockAndUnlock(locks[1], "n")
		}, func(i int) { lockAndUnlock(locks[i%2], "n") }, 2 * rounds, rounds},
		{"a lock that is taken", func() {
			locktest.Try(t, locks[1], "n", locker.WithTTL(time.Hour))
		}, func(int) {
			if _, err := locks[0].TryLock(t.Context(), "n"); !errors.Is(err, locker.ErrTaken) {
				t.Fatal(err)
			}
		}, 0, rounds},
	} {
		c.before()
		g.puts.Store(0)
		gets.Store(0)
		for i := range rounds {
			c.do(i)
		}
		if g.puts.Load() != c.puts || gets.Load() != c.gets {
			t.Errorf("%s: %d rounds cost %d PUTs and %d GETs, want %d and %d", c.what, rounds, g.puts.Load(), gets.Load(), c.puts, c.gets)
		}
	}
}
