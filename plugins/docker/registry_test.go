// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// registry serves one image at a time under any name, to those who know the password.
type registry struct {
	address string
	mu      sync.Mutex
	blobs   map[string][]byte // guarded by mu
	latest  []byte            // guarded by mu; a manifest
	asked   map[string]int    // guarded by mu; by method and path
}

func newRegistry(t testing.TB) *registry {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &registry{address: l.Addr().String(), blobs: map[string][]byte{}, asked: map[string]int{}}
	s := &http.Server{Handler: r} // the engine is no slow client
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	return r
}

const manifestType = "application/vnd.docker.distribution.manifest.v2+json"

// put makes an image the one that there is, and gives its digest.
func (r *registry) put(t testing.TB, arch string, entries []entry) string {
	t.Helper()
	meta, layer := imageOf(t, arch, entries, map[string]any{"Env": []string{"PATH=/bin"}})
	manifest, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": manifestType,
		"config": map[string]any{"mediaType": "application/vnd.docker.container.image.v1+json", "size": len(meta), "digest": digest(meta)},
		"layers": []any{map[string]any{"mediaType": "application/vnd.docker.image.rootfs.diff.tar", "size": len(layer), "digest": digest(layer)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.blobs[digest(meta)], r.blobs[digest(layer)], r.blobs[digest(manifest)], r.latest = meta, layer, manifest, manifest
	return digest(manifest)
}

// ServeHTTP is as much of the distribution protocol as pulling takes.
func (r *registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, password, _ := req.BasicAuth(); password != "s3cr3t" {
		w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	ref := req.URL.Path[strings.LastIndexByte(req.URL.Path, '/')+1:]
	body, ok := r.blobs[ref]
	switch {
	case req.URL.Path == "/v2/":
		return
	case strings.Contains(req.URL.Path, "/manifests/"):
		if !ok && r.latest != nil {
			body, ok = r.latest, true
		}
		r.asked["manifest"]++
		w.Header().Set("Content-Type", manifestType)
		w.Header().Set("Docker-Content-Digest", digest(body))
	default:
		w.Header().Set("Content-Type", "application/octet-stream")
	}
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(body))
}

// Images are fetched with what the docker command knows about who may, with progress, and stay the same for a sandbox.
func TestPull(t *testing.T) {
	f0 := newFixture(t)
	r := newRegistry(t)
	dir := t.TempDir()
	// The password comes from a credential helper.
	helper := "#!/bin/sh\nread host\n[ \"$1\" = get ] || exit 1\nprintf '{\"ServerURL\":\"%s\",\"Username\":\"ada\",\"Secret\":\"%s\"}' \"$host\" \"$PASSWORD\"\n"
	if err := errors.Join(
		os.WriteFile(filepath.Join(dir, "docker-credential-berthtest"), []byte(helper), 0o700), // a program
		os.WriteFile(filepath.Join(dir, "config.json"), []byte(`{"credHelpers":{"`+r.address+`":"berthtest"}}`), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("PASSWORD", "s3cr3t")
	noise := make([]byte, 4<<20)
	rand.Read(noise)
	files := append(busybox(t), entry{name: "noise", mode: 0o644, body: noise})
	name := r.address + "/team/tool:1"
	first := r.put(t, runtime.GOARCH, append(files, entry{name: "version", mode: 0o644, body: []byte("one")}))
	f := fixtureIn(t, driver.Host{}, map[string]any{"host": f0.e.Where, "config_dir": dir})
	open := func(pull string) (driver.Sandbox, []driver.Progress, error) {
		var news []driver.Progress
		var mu sync.Mutex
		req := request(t, map[string]any{"image": name, "pull": pull})
		req.Progress = func(p driver.Progress) {
			mu.Lock()
			defer mu.Unlock()
			news = append(news, p)
		}
		s, err := f.Create(t.Context(), req)
		if err == nil {
			f.destroyAfter(t, s)
		}
		return s, news, err
	}
	s, news, err := open("missing")
	if err != nil {
		t.Fatal(err)
	}
	forgetImage(t, f, name)
	if got := sh(t, s, "cat /version"); got != "one" {
		t.Errorf("%q", got)
	}
	sized := false
	for _, p := range news {
		sized = sized || p.Phase == "pulling" && p.Total > 0
	}
	if !sized {
		t.Errorf("nothing was said of the pull's size: %+v", news)
	}
	if got := s.State().Display["digest"]; got != r.address+"/team/tool@"+first {
		t.Errorf("digest %q, want %s", got, first)
	}

	// The tag moves on: a new sandbox follows it when it is asked to, and one that is there does not.
	second := r.put(t, runtime.GOARCH, append(files, entry{name: "version", mode: 0o644, body: []byte("two")}))
	if s, _, err = open("missing"); err != nil {
		t.Fatal(err)
	}
	if got := sh(t, s, "cat /version"); got != "one" {
		t.Errorf("missing: %q", got)
	}
	old := s
	if s, _, err = open("always"); err != nil {
		t.Fatal(err)
	}
	forgetImage(t, f, name)
	if got := sh(t, s, "cat /version"); got != "two" || !strings.HasSuffix(s.State().Display["digest"], second) {
		t.Errorf("always: %q, %v", got, s.State().Display)
	}
	if err := old.(driver.Stopper).Stop(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	again, err := f.Resume(t.Context(), &driver.ResumeRequest{SandboxID: inspect(t, old).SandboxID, State: old.State()})
	if err != nil {
		t.Fatal(err)
	}
	if got := sh(t, again, "cat /version"); got != "one" {
		t.Errorf("it drifted: %q", got)
	}
	if again.State().Display["digest"] != r.address+"/team/tool@"+first {
		t.Errorf("%v", again.State().Display)
	}

	// Without the password.
	t.Setenv("PASSWORD", "wrong")
	if _, _, err := open("always"); !errors.Is(err, errs.AuthFailed) {
		t.Errorf("%v", err)
	}
}

// forgetImage removes a pulled image at the end of the test.
func forgetImage(t testing.TB, f *fixture, name string) {
	t.Helper()
	img, err := f.e.ImageInspect(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	imagesMu.Lock()
	defer imagesMu.Unlock()
	images[img.ID] = true
}
