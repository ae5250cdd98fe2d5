// SPDX-License-Identifier: Apache-2.0

// Package storagetest gives tests storage on this machine: servers that speak the protocols of the services, and can be
// made to fail.
package storagetest

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rclone/gofakes3"
	"github.com/rclone/gofakes3/s3mem"
)

// Server is a storage server of which a test has a hand on the switch.
type Server struct {
	Addr     string // host:port, the same for as long as the test runs
	Requests atomic.Int64

	handler http.Handler
	frozen  atomic.Pointer[chan struct{}]
	mu      sync.Mutex
	srv     *http.Server // guarded by mu; nil = it is down
}

func serve(t testing.TB, h http.Handler) *Server {
	t.Helper()
	s := &Server{handler: h}
	s.Up(t)
	t.Cleanup(func() { s.Thaw(); s.Down() })
	return s
}

// ServeHTTP counts a request, and holds it for as long as the server is frozen.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.Requests.Add(1)
	if f := s.frozen.Load(); f != nil {
		select {
		case <-*f:
		case <-r.Context().Done():
			return
		}
	}
	s.handler.ServeHTTP(w, r)
}

// Up starts the server, at the address that it had before.
func (s *Server) Up(t testing.TB) {
	t.Helper()
	addr := s.Addr
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp4", addr)
	if err != nil {
		t.Fatal(err)
	}
	s.Addr = l.Addr().String()
	srv := &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	s.mu.Lock()
	s.srv = srv
	s.mu.Unlock()
	go func() { _ = srv.Serve(l) }() // it ends with Down
}

// Down ends the server and every connection, as a kill does.
func (s *Server) Down() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.srv != nil {
		_ = s.srv.Close() // it is gone either way
		s.srv = nil
	}
}

// Freeze makes the server take requests and answer none.
func (s *Server) Freeze() {
	c := make(chan struct{})
	s.frozen.Store(&c)
}

// Thaw answers what was held.
func (s *Server) Thaw() {
	if f := s.frozen.Swap(nil); f != nil {
		close(*f)
	}
}

// S3 is a server that speaks S3, with one pair of keys.
type S3 struct {
	*Server
	KeyID, Key string
	Endpoint   string
	backend    gofakes3.Backend
}

// NewS3 starts a server with a bucket. Its keys are found nowhere else.
func NewS3(t testing.TB, bucket string) *S3 {
	t.Helper()
	s := &S3{backend: s3mem.New(), KeyID: "CANARY" + rand.Text()[:14], Key: "canary-" + rand.Text()}
	fake := gofakes3.New(s.backend, gofakes3.WithV4Auth(map[string]string{s.KeyID: s.Key}), gofakes3.WithLogger(gofakes3.DiscardLog()))
	s.Server = serve(t, fake.Server())
	s.Endpoint = "http://" + s.Addr
	if err := s.backend.CreateBucket(t.Context(), bucket); err != nil {
		t.Fatal(err)
	}
	return s
}

// Put stores an object, past the protocol.
func (s *S3) Put(t testing.TB, bucket, name, content string) {
	t.Helper()
	_, err := s.backend.PutObject(t.Context(), bucket, name, map[string]string{"Content-Type": "text/plain"}, strings.NewReader(content), int64(len(content)))
	if err != nil {
		t.Fatal(err)
	}
}

// Get reads an object, past the protocol.
func (s *S3) Get(bucket, name string) (string, error) {
	o, err := s.backend.GetObject(context.Background(), bucket, name, nil)
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(o.Contents)
	if cerr := o.Contents.Close(); err == nil {
		err = cerr
	}
	return string(b), err
}

// Has says whether the object is there with this content.
func (s *S3) Has(bucket, name, content string) bool {
	got, err := s.Get(bucket, name)
	return err == nil && got == content
}

// Lines is a text of n numbered lines.
func Lines(n int) string {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, "line %d\n", i)
	}
	return b.String()
}
