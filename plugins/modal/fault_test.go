// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/berth-dev/berth/plugins/modal/internal/fake"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// The answer to a create is lost, for as often as it is asked: the sandbox is found by its name, and there is one.
func TestLostCreate(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.vendor.Inject(fake.Fault{Method: "SandboxCreateV2", After: true, Code: codes.Unavailable, Times: 4})
	s := f.create(t, request(t, nil))
	if got := sh(t, s, "echo found"); got != "found" {
		t.Errorf("%q", got)
	}
	if n := len(f.vendor.Running()); n != 1 || f.vendor.Clear() != 4 {
		t.Errorf("%d sandboxes run", n)
	}
}

// A create that is given up leaves nothing, also when Modal made the sandbox all the same.
func TestCreateGivenUp(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	f.vendor.Inject(fake.Fault{Method: "SandboxCreateV2", After: true, Code: codes.Unavailable, Times: 1, Do: func() { cancel(errors.New("given up")) }})
	_, err := f.Create(ctx, request(t, nil))
	if !errors.Is(err, errs.Canceled) || !strings.Contains(err.Error(), "given up") {
		t.Errorf("%v", err)
	}
	if left := f.vendor.Running(); len(left) != 0 {
		t.Errorf("%v run", left)
	}
	// create_timeout is the driver's own limit, and says so.
	f.vendor.Inject(fake.Fault{Method: "SandboxCreateV2", Delay: time.Hour, Times: 1})
	if _, err := f.Create(t.Context(), request(t, map[string]any{"create_timeout": 1})); err == nil || !strings.Contains(err.Error(), "create_timeout") {
		t.Errorf("%v", err)
	}
}

// What Modal refuses for now is told apart from what it refuses for good, and a pause that it asks for is kept.
func TestRefusals(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.vendor.Inject(fake.Fault{Method: "SandboxCreateV2", Code: codes.ResourceExhausted, RetryAfter: 200 * time.Millisecond, Times: 2})
	began := time.Now()
	f.create(t, request(t, nil))
	if d := time.Since(began); d < 400*time.Millisecond {
		t.Errorf("it took %s, and was asked to wait twice", d)
	}
	if n := len(f.vendor.Calls("SandboxCreateV2")); n != 3 {
		t.Errorf("%d calls", n)
	}
	for _, x := range []struct {
		fault fake.Fault
		code  errs.Code
		retry errs.Retry
	}{
		{fake.Fault{Code: codes.ResourceExhausted}, errs.QuotaExceeded, errs.RetrySafe},
		{fake.Fault{Code: codes.ResourceExhausted, RetryAfter: time.Hour}, errs.RateLimited, errs.RetrySafe},
		{fake.Fault{Code: codes.PermissionDenied}, errs.PermissionDenied, errs.RetryNever},
		{fake.Fault{Code: codes.InvalidArgument}, errs.ConfigInvalid, errs.RetryNever},
	} {
		x.fault.Method, x.fault.Times = "SandboxCreateV2", 1
		f.vendor.Inject(x.fault)
		_, err := f.Create(t.Context(), request(t, nil))
		var e *errs.Error
		if !errors.As(err, &e) || e.Code != x.code || e.RetryClass() != x.retry || e.RetryAfter != x.fault.RetryAfter {
			t.Errorf("%s: %v, retry %v after %v", x.fault.Code, err, e.RetryClass(), e.RetryAfter)
		}
	}
	// An image that cannot be built.
	_, err := f.Create(t.Context(), request(t, map[string]any{"image": "no-such-image:1"}))
	var e *errs.Error
	if !errors.As(err, &e) || e.Code != errs.ConfigInvalid || !strings.Contains(err.Error(), "manifest unknown") || len(e.Path) != 1 {
		t.Errorf("%v", err)
	}
	if n := len(f.vendor.Running()); n != 1 {
		t.Errorf("%d sandboxes run", n)
	}
}

// Connections break in the middle and answers are lost; what is done is done once, and every byte arrives once.
func TestBrokenConnections(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s := f.create(t, request(t, nil))
	for _, x := range []fake.Fault{
		{Method: "TaskExecStdioRead", Messages: 3, Code: codes.Unavailable, Times: 20},
		{Method: "TaskExecStdioRead", Messages: 2, Code: codes.NotFound, Times: 3},
		{Method: "TaskExecStdinWrite", After: true, Code: codes.Unavailable, Times: 5},
		{Method: "TaskExecStdinWrite", Code: codes.Unavailable, Times: 30},
		{Method: "TaskExecStart", After: true, Code: codes.Unavailable, Times: 3},
	} {
		f.vendor.Inject(x)
	}
	in := bytes.Repeat([]byte("0123456789abcdef"), 1<<17)
	got := sha256.New()
	n := &counted{w: got}
	exit, err := s.Run(t.Context(), &driver.Command{Argv: []string{"sh", "-c", "echo run >> runs; cat"}}, driver.Streams{Stdin: bytes.NewReader(in), Stdout: n})
	want := sha256.Sum256(in)
	if err != nil || exit.Code != 0 || n.n != len(in) || !bytes.Equal(got.Sum(nil), want[:]) {
		t.Errorf("%+v, %v, %d bytes of %d", exit, err, n.n, len(in))
	}
	if hits := f.vendor.Clear(); hits == 0 {
		t.Error("no fault struck")
	}
	if got := sh(t, s, "wc -l < runs"); got != "1" {
		t.Errorf("the command ran %s times", got)
	}
}

type counted struct {
	w io.Writer
	n int
}

func (c *counted) Write(p []byte) (int, error) {
	c.n += len(p)
	return c.w.Write(p)
}

// A token that was replaced in the middle is told as such, and the next one finds the sandbox.
func TestTokenIsReplaced(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	req := request(t, nil)
	s, err := f.Create(t.Context(), req) // the next driver ends it
	if err != nil {
		t.Fatal(err)
	}
	sh(t, s, "echo work > f")
	state := s.State()
	f.vendor.RotateSecret("as-another")
	_, err = s.Run(t.Context(), &driver.Command{Argv: []string{"cat", "f"}}, driver.Streams{})
	var e *errs.Error
	if !errors.As(err, &e) || e.Code != errs.AuthFailed {
		t.Errorf("with the token of before: %v (%s)", err, errs.CodeOf(err))
	}
	if _, err := f.Create(t.Context(), request(t, nil)); !errors.Is(err, errs.AuthFailed) {
		t.Errorf("create: %v", err)
	}
	next := driverFor(t, f.vendor, map[string]any{"token_secret": "as-another"})
	again, err := next.Resume(t.Context(), &driver.ResumeRequest{SandboxID: req.SandboxID, State: state, Config: req.Config})
	if err != nil {
		t.Fatal(err)
	}
	next.destroyAfter(t, again)
	if got := sh(t, again, "cat f"); got != "work" {
		t.Errorf("%q", got)
	}
}

// The guest is killed: the sandbox goes on from its workspace with another one.
func TestGuestIsKilled(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	req := request(t, nil)
	s := f.create(t, req)
	sh(t, s, "echo work > f")
	_, err := s.Run(t.Context(), &driver.Command{Argv: []string{"sh", "-c", "kill -9 $(pidof $(ls /.berth | grep ^guest))"}}, driver.Streams{})
	if err == nil || errs.CodeOf(err) == errs.Internal {
		t.Errorf("%v", err)
	}
	again, err := f.Resume(t.Context(), &driver.ResumeRequest{SandboxID: req.SandboxID, State: s.State(), Config: req.Config})
	if err != nil {
		t.Fatal(err)
	}
	if got := sh(t, again, "cat f"); got != "work" || again.(driver.Reattached).Reattached() {
		t.Errorf("%q", got)
	}
}
