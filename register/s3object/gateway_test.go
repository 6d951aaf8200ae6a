package s3object_test

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/lockstile/locker/internal/testserver"
	"github.com/lockstile/locker/register/s3object"
)

// gateway is an HTTP server in front of a real S3 server. What it passes on it signs anew, so that a test may change it.
type gateway struct {
	*httptest.Server
	srv  *testserver.S3Server
	puts atomic.Int64 // that have arrived
}

// newGateway starts one. Do answers requests, some of them by pass.
func newGateway(t *testing.T, srv *testserver.S3Server, start func(http.Handler) *httptest.Server, do func(w http.ResponseWriter, r *http.Request, pass http.Handler)) *gateway {
	t.Helper()
	target, err := url.Parse(srv.URL())
	if err != nil {
		t.Fatal(err)
	}
	g := &gateway{srv: srv}
	pass := &httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) {
		p.SetURL(target)
		p.Out.Host = target.Host
		g.sign(t, p.Out)
	}}
	g.Server = start(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			g.puts.Add(1)
		}
		do(w, r, pass)
	}))
	t.Cleanup(g.Close)
	return g
}

// sign replaces the signature of a request.
func (g *gateway) sign(t *testing.T, r *http.Request) {
	r.Header.Del("Authorization")
	err := v4.NewSigner().SignHTTP(context.WithoutCancel(r.Context()), aws.Credentials{AccessKeyID: g.srv.Access, SecretAccessKey: g.srv.Secret}, r,
		r.Header.Get("X-Amz-Content-Sha256"), "s3", "us-east-1", time.Now(), func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
	if err != nil {
		t.Error(err)
	}
}

// store returns a Store that reaches the server through the gateway.
func (g *gateway) store() s3object.Store {
	c := client(g.srv, g.URL)
	return s3object.NewStore(s3.New(c.Options(), func(o *s3.Options) { o.HTTPClient = g.Client() }), bucket, "a/")
}

// changed answers with what the server says, after change.
func changed(w http.ResponseWriter, r *http.Request, pass http.Handler, change func(http.Header)) {
	answer := httptest.NewRecorder()
	pass.ServeHTTP(answer, r)
	maps.Copy(w.Header(), answer.Header())
	change(w.Header())
	w.WriteHeader(answer.Code)
	_, _ = answer.Body.WriteTo(w) // who asked sees what is missing
}

// refuse answers with an error of S3's.
func refuse(w http.ResponseWriter, r *http.Request, status int, code string) {
	_, _ = io.Copy(io.Discard, r.Body) // so that the connection stays
	w.WriteHeader(status)
	if code != "" {
		_, _ = io.WriteString(w, "<Error><Code>"+code+"</Code><Message>of this test</Message></Error>") // as above
	}
}

// hangUp ends a connection without an answer. If pass is not nil, the server carries out the request before.
func hangUp(t *testing.T, w http.ResponseWriter, r *http.Request, pass http.Handler) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Error(err)
	}
	if pass != nil {
		r.Body = io.NopCloser(bytes.NewReader(body))
		answer := httptest.NewRecorder()
		if pass.ServeHTTP(answer, r); answer.Code != http.StatusOK {
			t.Errorf("the server answered %d: %s", answer.Code, answer.Body)
		}
	}
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		t.Error(err)
		return
	}
	_ = conn.Close() // what it says does not matter
}
