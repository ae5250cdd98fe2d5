// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/berth-dev/berth/plugins/daytona/client"
	"github.com/berth-dev/berth/plugins/daytona/internal/box"
	"github.com/berth-dev/berth/plugins/daytona/internal/fake"
	"github.com/berth-dev/berth/sdk/conformance/faultproxy"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// request is a wish for a sandbox.
func request(t testing.TB, config map[string]any) *driver.CreateRequest {
	t.Helper()
	if config == nil {
		config = map[string]any{"user": "root"}
	}
	return &driver.CreateRequest{
		SandboxID: ulid.Make().String(), Config: values(t, config), Workspace: driver.Workspace{Root: "/workspace"}, Progress: func(driver.Progress) {},
	}
}

func create(t testing.TB, d *daytona, req *driver.CreateRequest) *box.Box {
	t.Helper()
	s, err := d.Create(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return s.(*box.Box)
}

func resume(t testing.TB, d *daytona, req *driver.CreateRequest, state driver.State) (*box.Box, error) {
	t.Helper()
	s, err := d.Resume(t.Context(), &driver.ResumeRequest{SandboxID: req.SandboxID, State: state, Config: req.Config, Progress: req.Progress})
	if err != nil {
		return nil, err
	}
	return s.(*box.Box), nil
}

func sh(t testing.TB, s driver.Sandbox, script string) string {
	t.Helper()
	var out bytes.Buffer
	exit, err := s.Run(t.Context(), &driver.Command{Argv: []string{"sh", "-c", script}}, driver.Streams{Stdout: &out, Stderr: &out})
	if err != nil || exit.Code != 0 {
		t.Fatalf("%s: %+v, %v: %s", script, exit, err, out.String())
	}
	return out.String()
}

// going starts a command and gives its end when it has begun.
func going(t testing.TB, s driver.Sandbox, script string) <-chan error {
	t.Helper()
	began, end := make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := s.Run(context.WithoutCancel(t.Context()), &driver.Command{Argv: []string{"sh", "-c", script}}, driver.Streams{OnStart: func(driver.Started) { close(began) }})
		end <- err
	}()
	select {
	case <-began:
	case err := <-end:
		t.Fatalf("%s did not begin: %v", script, err)
	}
	return end
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for began := time.Now(); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatal("it did not happen that " + what)
		}
	}
}

// vendorID is the vendor's name of a sandbox.
func vendorID(s *box.Box) string { return s.State().Display["sandbox"] }

func count(t testing.TB, d *daytona) int {
	t.Helper()
	n := 0
	for _, err := range d.List(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

// Whatever becomes of the answer to a create, there is one sandbox afterwards.
func TestLostCreate(t *testing.T) {
	for name, fault := range map[string]faultproxy.Fault{
		"no answer":        {Kind: faultproxy.LostAnswer},
		"504 after it":     {Kind: faultproxy.LateAnswer, Status: 504, Body: "<html>gateway</html>"},
		"504 and nothing":  {Kind: faultproxy.Answer, Status: 504},
		"429":              {Kind: faultproxy.TooMany},
		"429 with a pause": {Kind: faultproxy.TooMany, RetryAfter: time.Second},
		"500":              {Kind: faultproxy.ServerError},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newVendor(t, fake.Options{})
			d := driverAt(t, v, t.TempDir())
			fault.Method, fault.Path, fault.Times = "POST", "/api/sandbox", 1
			v.proxy.Inject(fault)
			s := create(t, d, request(t, nil))
			if n := count(t, d); n != 1 || v.proxy.Hits() != 1 {
				t.Errorf("%d sandboxes after %d faults", n, v.proxy.Hits())
			}
			sh(t, s, "true")
			if err := s.Destroy(t.Context()); err != nil {
				t.Error(err)
			}
			if n := count(t, d); n != 0 {
				t.Errorf("%d sandboxes are left", n)
			}
		})
	}
}

func TestCreateFails(t *testing.T) {
	v := newVendor(t, fake.Options{})
	d := driverAt(t, v, t.TempDir())
	for name, c := range map[string]struct {
		config    map[string]any
		code      errs.Code
		attribute string
	}{
		"no such snapshot":    {map[string]any{"snapshot": "none"}, errs.ConfigInvalid, "snapshot"},
		"image cannot be had": {map[string]any{"image": "unbuildable", "cpu": 2}, errs.CreateFailed, "image"},
		"cpu of a snapshot":   {map[string]any{"cpu": 2}, errs.ConfigInvalid, "cpu"},
		"volume at /etc":      {map[string]any{"volumes": map[string]string{"/etc/x": "v"}}, errs.ConfigInvalid, "volumes"},
		"half a GiB":          {map[string]any{"image": "debian", "memory": 512 << 20}, errs.ConfigInvalid, "memory"},
		"workspace of root's": {map[string]any{}, errs.StartFailed, ""},
	} {
		_, err := d.Create(t.Context(), request(t, c.config))
		e, ok := errors.AsType[*errs.Error](err)
		if !ok || e.Code != c.code || c.attribute != "" && (len(e.Path) != 1 || e.Path[0].Attribute != c.attribute) {
			t.Errorf("%s: %v (%+v)", name, err, e)
		}
	}
	if n := count(t, d); n != 0 {
		t.Errorf("%d sandboxes are left", n)
	}
}

// A connection that breaks costs nothing: no byte is lost, nothing is done twice.
func TestCutConnections(t *testing.T) {
	v := newVendor(t, fake.Options{})
	d := driverAt(t, v, t.TempDir())
	s := create(t, d, request(t, nil))
	sockets := func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/connect") }
	var out bytes.Buffer
	began, end := make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := s.Run(t.Context(), &driver.Command{Argv: []string{"sh", "-c", "echo once >>/tmp/times; i=0; while [ $i -lt 40000 ]; do i=$((i+1)); echo line $i; done"}},
			driver.Streams{Stdout: &out, OnStart: func(driver.Started) { close(began) }})
		end <- err
	}()
	<-began
	cuts := 0
	for done := false; !done; {
		select {
		case err := <-end:
			if err != nil {
				t.Fatal(err)
			}
			done = true
		case <-time.After(30 * time.Millisecond):
			if cuts < 5 {
				cuts += v.proxy.Sever(sockets)
			}
		}
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if cuts == 0 || len(lines) != 40000 || lines[39999] != "line 40000" {
		t.Errorf("after %d cuts there are %d lines, the last %q", cuts, len(lines), lines[len(lines)-1])
	}
	if got := sh(t, s, "cat /tmp/times"); got != "once\n" {
		t.Errorf("the command ran: %q", got)
	}
}

// The end of a conversation is cut off: the vendor's word that the guest has ended does not come. Nobody waits for it.
func TestEndIsCut(t *testing.T) {
	v := newVendor(t, fake.Options{})
	d := driverAt(t, v, t.TempDir())
	v.proxy.Inject(faultproxy.Fault{Kind: faultproxy.CutEnd, Match: func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/connect") }})
	req := request(t, nil)
	s := create(t, d, req)
	if got := sh(t, s, "echo kept >kept; cat kept"); got != "kept\n" {
		t.Errorf("%q", got)
	}
	if err := s.Stop(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	again, err := resume(t, d, req, s.State())
	if err != nil || v.proxy.Hits() == 0 {
		t.Fatalf("resume: %v, after %d faults", err, v.proxy.Hits())
	}
	if got := sh(t, again, "cat kept"); got != "kept\n" {
		t.Errorf("a file of before: %q", got)
	}
}

// More at once than the vendor's queue takes: it cuts the reader off, and nothing is lost.
func TestManyOutputs(t *testing.T) {
	v := newVendor(t, fake.Options{})
	d := driverAt(t, v, t.TempDir())
	s := create(t, d, request(t, nil))
	const size = 3 << 20
	sums := make(chan int, 6)
	for range cap(sums) {
		go func() {
			n := 0
			_, err := s.Run(t.Context(), &driver.Command{Argv: []string{"head", "-c", "3145728", "/dev/zero"}}, driver.Streams{Stdout: writer(func(b []byte) (int, error) {
				n += len(b)
				return len(b), nil
			})})
			if err != nil {
				t.Error(err)
			}
			sums <- n
		}()
	}
	for range cap(sums) {
		if n := <-sums; n != size {
			t.Errorf("%d bytes of %d came", n, size)
		}
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }

// A sandbox that the vendor stops in the middle is no timeout, and the command is not run again.
func TestAutoStop(t *testing.T) {
	v := newVendor(t, fake.Options{})
	d := driverAt(t, v, t.TempDir())
	req := request(t, map[string]any{"user": "root", "auto_stop": 600})
	s := create(t, d, req)
	sh(t, s, "echo kept >/workspace/kept")
	end := going(t, s, "sleep 3600")
	v.Advance(11 * time.Minute)
	err := <-end
	e, ok := errors.AsType[*errs.Error](err)
	if !ok || e.Code != errs.ExecTransport || !e.MaybeApplied || !strings.Contains(err.Error(), "auto_stop") {
		t.Errorf("a command that auto-stop ended: %v", err)
	}
	if _, err := s.Stat(t.Context(), []string{"."}, driver.StatOptions{}); !errors.Is(err, errs.SandboxUnknown) || !strings.Contains(err.Error(), "auto_stop") {
		t.Errorf("a call after auto-stop: %v", err)
	}
	again, err := resume(t, d, req, s.State())
	if err != nil || again.Reattached() || !again.WorkspacePreserved() {
		t.Fatalf("resume: %v", err)
	}
	if got := sh(t, again, "cat kept"); got != "kept\n" {
		t.Errorf("a file of before: %q", got)
	}
}

// Only work keeps a sandbox: calls by themselves do not, and neither does an open connection.
func TestKeeping(t *testing.T) {
	v := newVendor(t, fake.Options{})
	d := driverAt(t, v, t.TempDir())
	d.boxed.Beat = 20 * time.Millisecond
	s := create(t, d, request(t, nil))
	touches := func() int { return v.Calls("POST /sandbox/{id}/last-activity") }
	id := "background"
	go func() {
		_, err := s.Run(t.Context(), &driver.Command{ID: id, Argv: []string{"sleep", "3600"}, Detached: true}, driver.Streams{})
		if err == nil {
			t.Log("the command has ended")
		}
	}()
	eventually(t, "a command that runs keeps the sandbox", func() bool { return touches() >= 3 })
	if err := s.Signal(t.Context(), id, driver.Signal{Name: "KILL"}); err != nil {
		t.Fatal(err)
	}
	last := -1
	eventually(t, "an idle sandbox is not kept", func() bool {
		time.Sleep(5 * d.boxed.Beat) // that nothing happens can only be waited for
		now := touches()
		same := now == last
		last = now
		return same
	})
	before, err := d.client.Sandbox(t.Context(), vendorID(s))
	if err != nil {
		t.Fatal(err)
	}
	v.Advance(time.Minute)
	tb, err := d.client.Toolbox(before)
	if err == nil {
		_, err = tb.Version(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	if after, err := d.client.Sandbox(t.Context(), vendorID(s)); err != nil || !after.LastActivityAt.Equal(before.LastActivityAt) {
		t.Errorf("a call by itself was activity: %v, before %v (%v)", after.LastActivityAt, before.LastActivityAt, err)
	}
}

func TestDeletedAtVendor(t *testing.T) {
	v := newVendor(t, fake.Options{})
	d := driverAt(t, v, t.TempDir())
	req := request(t, nil)
	s := create(t, d, req)
	end := going(t, s, "sleep 3600")
	if err := d.client.Delete(t.Context(), vendorID(s)); err != nil {
		t.Fatal(err)
	}
	if err := <-end; !errors.Is(err, errs.SandboxGone) {
		t.Errorf("a command whose sandbox was deleted: %v", err)
	}
	if _, err := resume(t, d, req, s.State()); !errors.Is(err, errs.SandboxGone) {
		t.Errorf("resume: %v", err)
	}
}

// The vendor's daemon dies, and the vendor does not know.
func TestDeadDaemon(t *testing.T) {
	v := newVendor(t, fake.Options{})
	d := driverAt(t, v, t.TempDir())
	req := request(t, nil)
	s := create(t, d, req)
	sh(t, s, "echo kept >kept")
	end := going(t, s, "sleep 3600")
	if err := v.KillDaemon(t.Context(), vendorID(s)); err != nil {
		t.Fatal(err)
	}
	if err := <-end; !errors.Is(err, errs.ExecTransport) || !strings.Contains(err.Error(), "daemon does not answer") {
		t.Errorf("a command whose daemon died: %v", err)
	}
	again, err := resume(t, d, req, s.State())
	if err != nil || again.Reattached() {
		t.Fatalf("resume: %v", err)
	}
	if got := sh(t, again, "cat kept"); got != "kept\n" {
		t.Errorf("a file of before: %q", got)
	}
}

func TestKeyRotated(t *testing.T) {
	v := newVendor(t, fake.Options{})
	d := driverAt(t, v, t.TempDir())
	s := create(t, d, request(t, nil))
	sh(t, s, "true")
	old := v.Key()
	v.RotateKey()
	end := going(t, s, "sleep 3600") // what is connected stays connected
	v.proxy.Sever(nil)
	err := <-end
	if !errors.Is(err, errs.AuthFailed) || strings.Contains(err.Error(), old) {
		t.Errorf("a command after the key was rotated: %v", err)
	}
	if _, err := d.Create(t.Context(), request(t, nil)); !errors.Is(err, errs.AuthFailed) {
		t.Errorf("create: %v", err)
	}
}

// Another installation does not know the guest's key: processes are lost, files are not.
func TestOtherInstallation(t *testing.T) {
	v := newVendor(t, fake.Options{})
	d := driverAt(t, v, t.TempDir())
	req := request(t, nil)
	s := create(t, d, req)
	sh(t, s, "echo kept >kept")
	state := s.State()
	s.Park()
	again, err := resume(t, driverAt(t, v, t.TempDir()), req, state)
	if err != nil || again.Reattached() {
		t.Fatalf("resume: %v, reattached %v", err, again != nil && again.Reattached())
	}
	if got := sh(t, again, "cat kept"); got != "kept\n" {
		t.Errorf("a file of before: %q", got)
	}
}

func TestArchive(t *testing.T) {
	v := newVendor(t, fake.Options{})
	d := driverAt(t, v, t.TempDir())
	req := request(t, map[string]any{"user": "root", "archive_on_stop": true})
	s := create(t, d, req)
	sh(t, s, "echo kept >kept")
	if err := s.Stop(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if got, err := d.client.Await(t.Context(), vendorID(s), nil); err != nil || got.State != client.StateArchived {
		t.Errorf("%+v, %v", got, err)
	}
	again, err := resume(t, d, req, s.State())
	if err != nil {
		t.Fatal(err)
	}
	if got := sh(t, again, "cat kept"); got != "kept\n" {
		t.Errorf("a file of before: %q", got)
	}
}

func TestDeadline(t *testing.T) {
	v := newVendor(t, fake.Options{})
	d := driverAt(t, v, t.TempDir())
	s := create(t, d, request(t, nil))
	end := going(t, s, "sleep 3600")
	if _, err := s.ExtendDeadline(t.Context(), time.Now().Add(100*time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	<-end
	eventually(t, "the vendor has stopped it", func() bool {
		got, err := d.client.Sandbox(t.Context(), vendorID(s))
		return err == nil && got.State == client.StateStopped
	})
}

// The vendor's ordinary user cannot be others, and is told what would help.
func TestOrdinaryUser(t *testing.T) {
	v := newVendor(t, fake.Options{})
	d := driverAt(t, v, t.TempDir())
	req := request(t, map[string]any{})
	req.Workspace.Root = "/home/daytona/workspace"
	s := create(t, d, req)
	if got := sh(t, s, "id -un; pwd; echo $IMAGE_SAYS $DAYTONA_SANDBOX_USER"); got != "daytona\n/home/daytona/workspace\nhello\n" {
		t.Errorf("%q", got)
	}
	_, err := s.Run(t.Context(), &driver.Command{Argv: []string{"true"}, User: "root"}, driver.Streams{})
	if !errors.Is(err, errs.Unsupported) {
		t.Errorf("a command as root: %v", err)
	}
	info, err := s.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range info.Features {
		if f == driver.ProcUser || f == driver.AcctNative {
			t.Errorf("it says that it has %s", f)
		}
	}
	req = request(t, map[string]any{})
	req.Workspace.Root, req.Accounts.Users = "/home/daytona/workspace", []string{"other"}
	if _, err := d.Create(t.Context(), req); !errors.Is(err, errs.Unsupported) {
		t.Errorf("create with accounts: %v", err)
	}
}

func TestPorts(t *testing.T) {
	v := newVendor(t, fake.Options{})
	d := driverAt(t, v, t.TempDir())
	s := create(t, d, request(t, map[string]any{"user": "root", "preview_ttl": 3600}))
	end := going(t, s, `exec perl -MIO::Socket::INET -e '$s=IO::Socket::INET->new(LocalAddr=>"127.0.0.1",LocalPort=>3000,Listen=>9,ReuseAddr=>1) or die; while($c=$s->accept){ while(<$c>){last if /^\r?$/} print $c "HTTP/1.0 200 OK\r\n\r\ninside"; close $c }'`)
	eventually(t, "the server listens", func() bool {
		select {
		case err := <-end:
			t.Fatal(err)
		default:
		}
		c, err := s.Dial(t.Context(), 3000)
		if err == nil {
			_ = c.Close() // it answered
		}
		return err == nil
	})
	get := func(e driver.Endpoint) string {
		t.Helper()
		// The fake's domain is not in any directory.
		u := "http://" + strings.TrimPrefix(v.URL, "http://")
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, u, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ := strings.Cut(v.PreviewDomain, ":")
		req.Host = e.Host + ":" + port
		for k, v := range e.Headers {
			req.Header.Set(k, v)
		}
		resp, err := (&http.Transport{}).RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != http.StatusOK {
			return resp.Status
		}
		return string(b)
	}
	private, err := s.Expose(t.Context(), 3000, "http", false)
	if err != nil || get(private) != "inside" {
		t.Errorf("%+v, %v", private, err)
	}
	private.Headers = nil
	if got := get(private); !strings.HasPrefix(got, "307") {
		t.Errorf("without its token a private port says %q", got)
	}
	public, err := s.Expose(t.Context(), 3000, "http", true)
	if err != nil || len(public.Headers) > 0 || get(public) != "inside" || time.Until(public.Expires) < 50*time.Minute {
		t.Errorf("%+v, %v", public, err)
	}
	if again, err := s.Expose(t.Context(), 3000, "http", true); err != nil || again.Host != public.Host {
		t.Errorf("the address has changed: %+v, %v", again, err)
	}
	if err := s.Unexpose(t.Context(), 3000); err != nil {
		t.Error(err)
	}
	if got := get(public); got == "inside" {
		t.Error("an address that was closed still works")
	}
	if _, err := s.Expose(t.Context(), 3000, "tcp", true); !errors.Is(err, errs.PortUnavailable) {
		t.Errorf("a public TCP port: %v", err)
	}
}

func TestNativeSnapshot(t *testing.T) {
	v := newVendor(t, fake.Options{})
	d := driverAt(t, v, t.TempDir())
	s := create(t, d, request(t, nil))
	sh(t, s, "echo kept >kept")
	snap, err := s.Snapshot(t.Context(), "name", false, map[string]string{"a": "1"})
	if err != nil || snap.SandboxID != s.ID() {
		t.Fatalf("%+v, %v", snap, err)
	}
	sh(t, s, "true") // it goes on
	listed := func(labels map[string]string) (n int) {
		for got, err := range d.Snapshots(t.Context(), labels) {
			if err != nil || got.ID != snap.ID {
				t.Errorf("%+v, %v", got, err)
			}
			n++
		}
		return n
	}
	if a, b := listed(map[string]string{"a": "1"}), listed(map[string]string{"a": "2"}); a != 1 || b != 0 {
		t.Errorf("found %d and %d", a, b)
	}
	req := request(t, nil)
	req.NativeSnapshot = snap.ID
	other := create(t, d, req)
	if got := sh(t, other, "cat kept"); got != "kept\n" || !other.WorkspacePreserved() {
		t.Errorf("in a sandbox from the snapshot: %q, preserved %v", got, other.WorkspacePreserved())
	}
	for range 2 {
		if err := d.DeleteSnapshot(t.Context(), snap.ID); err != nil {
			t.Error(err)
		}
	}
	if err := d.DeleteSnapshot(t.Context(), fake.DefaultSnapshot); !errors.Is(err, errs.InvalidArgument) {
		t.Errorf("delete what is not berth's: %v", err)
	}
	if n := listed(nil); n != 0 {
		t.Errorf("%d are left", n)
	}
}

func TestVolumes(t *testing.T) {
	v := newVendor(t, fake.Options{})
	d := driverAt(t, v, t.TempDir())
	config := map[string]any{"user": "root", "volumes": map[string]string{"/mnt/data": "data:sub"}}
	a := create(t, d, request(t, config))
	sh(t, a, "echo shared >/mnt/data/f")
	if err := a.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := sh(t, create(t, d, request(t, config)), "cat /mnt/data/f"); got != "shared\n" {
		t.Errorf("what another sandbox wrote: %q", got)
	}
}

// No secret is where somebody could read it.
func TestSecrets(t *testing.T) {
	v := newVendor(t, fake.Options{})
	d := driverAt(t, v, t.TempDir())
	req := request(t, nil)
	const canary = "canary-5f1e7c"
	req.Env, req.SecretEnv = map[string]string{"PLAIN": "plain"}, map[string]string{"HIDDEN": canary}
	s := create(t, d, req)
	if got := sh(t, s, "echo $PLAIN $HIDDEN"); got != "plain "+canary+"\n" {
		t.Errorf("in a command: %q", got)
	}
	got, err := d.client.Sandbox(t.Context(), vendorID(s))
	if err != nil || got.Env["PLAIN"] != "plain" || got.Env["HIDDEN"] != "" {
		t.Errorf("the vendor knows the environment %v (%v)", got.Env, err)
	}
	// Neither the API key nor the guest's key, in any form that a file or a process would have them.
	seen := sh(t, s, "cat /proc/*/cmdline /proc/*/environ 2>/dev/null; find /tmp /root /home /workspace -type f -size -1000k -exec cat {} +")
	for what, secret := range map[string]string{"the API key": v.Key()[:12], "the guest's key": string(d.key(s.ID()))[:8]} {
		if strings.Contains(seen, secret) {
			t.Errorf("%s is in the sandbox", what)
		}
		if st := s.State(); strings.Contains(string(st.Data), secret) {
			t.Errorf("%s is in the state", what)
		}
	}
}

// Lives that are over leave no goroutine.
func TestNothingIsLeft(t *testing.T) {
	v := newVendor(t, fake.Options{})
	d := driverAt(t, v, t.TempDir())
	life := func() {
		s := create(t, d, request(t, nil))
		sh(t, s, "true")
		if _, err := s.Expose(t.Context(), 3000, "tcp", false); err != nil {
			t.Error(err)
		}
		if err := s.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
	}
	life()
	before := runtime.NumGoroutine()
	for range 4 {
		life()
	}
	eventually(t, "the goroutines end", func() bool {
		d.client.Close()
		return runtime.NumGoroutine() <= before+3
	})
}
