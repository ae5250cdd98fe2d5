// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/moby/moby/client"
	"github.com/oklog/ulid/v2"

	"github.com/berth-dev/berth/plugins/docker/internal/engine"
	"github.com/berth-dev/berth/plugins/docker/internal/inside"
	"github.com/berth-dev/berth/plugins/docker/internal/plan"
	"github.com/berth-dev/berth/plugins/docker/internal/settings"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/emul"
	"github.com/berth-dev/berth/sdk/schema"
	"github.com/berth-dev/berth/sdk/serve"
)

// TestMain builds the guest once, and removes the images that the tests made.
func TestMain(m *testing.M) {
	if os.Getenv(envSSH) != "" && filepath.Base(os.Args[0]) == "ssh" {
		standIn()
	}
	if os.Getenv(asDriver) != "" {
		serve.Main(New)
	}
	if os.Getenv(envChild) != "" {
		child()
	}
	// Containers are waited for more than they are worked for.
	if err := flag.Set("test.parallel", strconv.Itoa(atOnce)); err != nil {
		panic(err)
	}
	code := func() int {
		dir, err := os.MkdirTemp("", "berth-docker-test-")
		if err != nil {
			panic(err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
		if os.Getenv(inside.EnvGuest) == "" {
			guest := filepath.Join(dir, "berth-guest")
			build := exec.Command("go", "build", "-tags", "berth_guest", "-trimpath", "-ldflags", "-s -w", "-o", guest, "github.com/berth-dev/berth/sdk/guest/cmd/berth-guest")
			build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
			if out, err := build.CombinedOutput(); err != nil {
				panic(string(out))
			}
			if err := os.Setenv(inside.EnvGuest, guest); err != nil {
				panic(err)
			}
		}
		builtGuest = os.Getenv(inside.EnvGuest)
		defer removeImages()
		return m.Run()
	}()
	os.Exit(code)
}

// atOnce is how many tests go on at the same time.
const atOnce = 4

// builtGuest is the guest program.
var builtGuest string

// testEngine is the engine of these tests; nil with a reason where there is none.
var testEngine = sync.OnceValues(func() (*engine.Engine, error) {
	return engine.Open(context.Background(), engine.Options{Host: os.Getenv("DOCKER_HOST")})
})

// needEngine skips a test where no engine can be used, but in CI.
func needEngine(t testing.TB) *engine.Engine {
	t.Helper()
	e, err := testEngine()
	if err == nil {
		return e
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("there is no container engine, which CI needs: %v", err)
	}
	t.Skipf("there is no container engine: %v", err)
	return nil
}

// fixture is a driver with directories of its own.
type fixture struct {
	*docker
	e *engine.Engine
}

func newFixture(t testing.TB) *fixture { return fixtureIn(t, driver.Host{}, nil) }

func fixtureIn(t testing.TB, host driver.Host, process map[string]any) *fixture {
	t.Helper()
	e := needEngine(t)
	if host.StateDir == "" {
		// The engine mounts the guest from it.
		host.StateDir = t.TempDir()
	}
	if process == nil {
		process = map[string]any{"host": e.Where}
	}
	d := New(hclog.New(&hclog.LoggerOptions{Output: testWriter{t}, Level: hclog.Warn})).(*docker)
	if diags := d.Configure(t.Context(), host, values(t, process)); len(diags) > 0 {
		t.Fatal(diags)
	}
	t.Cleanup(func() {
		// As at the end of a process: nothing goes on in the background.
		for _, s := range maps.Clone(d.boxes) {
			s.Common().Park()
		}
		if d.engine != nil {
			_ = d.engine.Close()
		}
	})
	return &fixture{docker: d, e: e}
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

func values(t testing.TB, v map[string]any) schema.Value {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return schema.Value{JSON: b}
}

// request is a create request with the given config on top of the tests' own.
func request(t testing.TB, config map[string]any) *driver.CreateRequest {
	t.Helper()
	all := map[string]any{"image": busyboxImage(t), "network": "none", "pull": "never"}
	maps.Copy(all, config)
	return &driver.CreateRequest{
		SandboxID: ulid.Make().String(), Workspace: driver.Workspace{Root: "/workspace"}, Progress: func(driver.Progress) {},
		Config: values(t, all),
	}
}

// create makes a sandbox that the test destroys.
func (f *fixture) create(t testing.TB, req *driver.CreateRequest) driver.Sandbox {
	t.Helper()
	s, err := f.Create(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	f.destroyAfter(t, s)
	return s
}

func (f *fixture) destroyAfter(t testing.TB, s driver.Sandbox) {
	t.Cleanup(func() {
		if err := s.Destroy(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("destroy: %v", err)
		}
	})
}

// both runs a test with the guest, and with the engine's own exec.
func both(t *testing.T, test func(t *testing.T, f *fixture, config map[string]any)) {
	t.Parallel()
	for _, guest := range []string{settings.GuestRequired, settings.GuestNever} {
		t.Run("guest="+guest, func(t *testing.T) {
			t.Parallel()
			test(t, newFixture(t), map[string]any{"guest": guest})
		})
	}
}

// with adds to a configuration.
func with(config map[string]any, more map[string]any) map[string]any {
	out := map[string]any{}
	for _, m := range []map[string]any{config, more} {
		maps.Copy(out, m)
	}
	return out
}

// sh runs a script and gives what it printed.
func sh(t testing.TB, s driver.Sandbox, script string) string {
	t.Helper()
	out, exit := try(t, s, &driver.Command{Argv: []string{"/bin/sh", "-c", script}})
	if exit.Code != 0 {
		t.Fatalf("%s: exit %d: %s", script, exit.Code, out)
	}
	return strings.TrimSpace(out)
}

func try(t testing.TB, s driver.Sandbox, cmd *driver.Command) (string, driver.Exit) {
	t.Helper()
	var out bytes.Buffer
	exit, err := s.Run(t.Context(), cmd, driver.Streams{Stdout: &out, Stderr: &out})
	if err != nil {
		t.Fatalf("%v: %v (%s)", cmd.Argv, err, out.String())
	}
	return out.String(), exit
}

// filesOf gives a sandbox's files: its own, or those that the SDK makes of commands.
func filesOf(s driver.Sandbox) interface {
	driver.FileSystem
	driver.TreeIO
} {
	if f, ok := s.(interface {
		driver.FileSystem
		driver.TreeIO
	}); ok {
		return f
	}
	return emul.New(s, emul.Options{})
}

func inspect(t testing.TB, s driver.Sandbox) driver.Info {
	t.Helper()
	info, err := s.(driver.Inspector).Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// eventually waits for something that needs a moment; the test's own deadline bounds it.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !cond(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it did not come to pass that %s", what)
		}
	}
}

// containers are those of a sandbox, running or not.
func (f *fixture) containers(t testing.TB, id string) int {
	t.Helper()
	list, err := f.e.ContainerList(t.Context(), client.ContainerListOptions{All: true, Filters: client.Filters{}.Add("label", plan.LabelSandbox+"="+id)})
	if err != nil {
		t.Fatal(err)
	}
	return len(list.Items)
}

// volumes are the names of all volumes.
func (f *fixture) volumes(t testing.TB) []string {
	t.Helper()
	list, err := f.e.VolumeList(t.Context(), client.VolumeListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, v := range list.Items {
		names = append(names, v.Name)
	}
	slices.Sort(names)
	return names
}

// The images of the tests are loaded from archives that are made here: nothing is pulled.
var (
	imagesMu sync.Mutex
	images   = map[string]bool{} // by name
)

// entry is a file of an image.
type entry struct {
	name string
	mode int64
	body []byte
	link string
}

// archive makes a tar archive.
func archive(t testing.TB, entries []entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range entries {
		h := &tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.body)), Typeflag: tar.TypeReg}
		switch {
		case f.link != "":
			h.Typeflag, h.Linkname = tar.TypeSymlink, f.link
		case strings.HasSuffix(f.name, "/"):
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(f.body); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// imageOf makes an image of files: its configuration and its one layer.
func imageOf(t testing.TB, arch string, entries []entry, config map[string]any) (meta, layer []byte) {
	t.Helper()
	layer = archive(t, entries)
	meta, err := json.Marshal(map[string]any{
		"architecture": arch, "os": "linux", "config": config,
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{digest(layer)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return meta, layer
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func imageRef(name string) string { return fmt.Sprintf("berth-test-%d:%s", os.Getpid(), name) }

// loaded gives an image made of files that the engine has.
func loaded(t testing.TB, name, arch string, entries []entry, config map[string]any) string {
	t.Helper()
	e := needEngine(t)
	imagesMu.Lock()
	defer imagesMu.Unlock()
	ref := imageRef(name)
	if images[ref] {
		return ref
	}
	meta, layer := imageOf(t, arch, entries, config)
	manifest, err := json.Marshal([]map[string]any{{"Config": "config.json", "RepoTags": []string{ref}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		t.Fatal(err)
	}
	res, err := e.ImageLoad(t.Context(), bytes.NewReader(archive(t, []entry{
		{name: "config.json", mode: 0o644, body: meta}, {name: "layer.tar", mode: 0o644, body: layer}, {name: "manifest.json", mode: 0o644, body: manifest},
	})))
	if err != nil {
		t.Fatal(err)
	}
	said, err := io.ReadAll(res)
	if err = errors.Join(err, res.Close()); err != nil || bytes.Contains(said, []byte("errorDetail")) {
		t.Fatalf("load an image: %v, %s", err, said)
	}
	images[ref] = true
	return ref
}

func removeImages() {
	for ref := range images {
		e, err := testEngine()
		if err != nil {
			return
		}
		if _, err := e.ImageRemove(context.Background(), ref, client.ImageRemoveOptions{Force: true, PruneChildren: true}); err != nil {
			fmt.Fprintln(os.Stderr, "an image of the tests was not removed:", err)
		}
	}
}

// busybox is the files of an image with a shell and small tools.
func busybox(t testing.TB) []entry {
	t.Helper()
	path, err := exec.LookPath("busybox")
	if err != nil {
		t.Skip("busybox is not installed (busybox-static)")
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	list, err := exec.Command(path, "--list").Output()
	if err != nil {
		t.Fatal(err)
	}
	all := []entry{
		{name: "bin/", mode: 0o755},
		{name: "etc/", mode: 0o755},
		{name: "root/", mode: 0o700},
		{name: "tmp/", mode: 0o1777},
		{name: "bin/busybox", mode: 0o755, body: b},
		{name: "etc/passwd", mode: 0o644, body: []byte("root:x:0:0:root:/root:/bin/sh\napp:x:1234:1234::/home/app:/bin/sh\n")},
		{name: "etc/group", mode: 0o644, body: []byte("root:x:0:\napp:x:1234:\n")},
		{name: "home/app/", mode: 0o755},
	}
	for applet := range strings.FieldsSeq(string(list)) {
		if applet != "busybox" {
			all = append(all, entry{name: "bin/" + applet, link: "busybox"})
		}
	}
	return all
}

func busyboxImage(t testing.TB) string {
	return loaded(t, "busybox", runtime.GOARCH, busybox(t), map[string]any{"Env": []string{"PATH=/bin", "GREETING=hello"}})
}

// bareImage holds one static program and nothing else. By itself it would run something that is not there.
func bareImage(t testing.TB) string {
	t.Helper()
	b, err := os.ReadFile(builtGuest)
	if err != nil {
		t.Fatal(err)
	}
	return loaded(t, "bare", runtime.GOARCH, []entry{{name: "program", mode: 0o755, body: b}}, map[string]any{"Entrypoint": []string{"/no/such/thing"}})
}

var otherArch = map[string]string{"amd64": "arm64", "arm64": "amd64"}[runtime.GOARCH]
