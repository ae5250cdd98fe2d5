// SPDX-License-Identifier: Apache-2.0

//go:build linux

package fake

import (
	"context"
	"crypto/rand"
	"maps"
	"os"
	"path"
	"strings"
	"sync"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-dev/berth/plugins/modal/internal/fake/cell"
	"github.com/berth-dev/berth/plugins/modal/internal/fake/execs"
	"github.com/berth-dev/berth/plugins/modal/internal/fake/tunnel"
)

// sandbox is one sandbox.
type sandbox struct {
	s       *Server
	id      string
	task    string
	app     string
	v1      bool
	def     *pb.Sandbox
	env     map[string]string
	created time.Time
	root    string
	cell    *cell.Cell
	tunnels *tunnel.Tunnels
	timers  []*time.Timer
	begun   chan struct{} // closed when it runs, or could not be started
	done    chan struct{} // closed when it has ended

	mu     sync.Mutex
	tags   map[string]string // guarded by mu
	result *pb.GenericResult // guarded by mu; nil while it runs
	execs  map[string]*execs.Exec
	idle   *time.Timer // guarded by mu; runs while no exec does
	exit   string      // guarded by mu; the image of its files at the end; empty = none
	access *pb.NetworkAccess
	snaps  map[string]string // guarded by mu; image ids by snapshot id
}

// fsTools is where clients expect the vendor's file tool.
const fsTools = "/__modal/.bin/modal-sandbox-fs-tools"

const v1Alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// sandboxID makes an id of the shape that tells clients which backend it belongs to.
func sandboxID(v1 bool) string {
	if !v1 {
		return newID("sb")
	}
	b := make([]byte, 22)
	rand.Read(b)
	for i := range b {
		b[i] = v1Alphabet[int(b[i])%len(v1Alphabet)]
	}
	return "sb-" + string(b)
}

// make starts a sandbox.
func (s *Server) make(ctx context.Context, app string, def *pb.Sandbox, tags []*pb.SandboxTag, sources []*pb.SecretSource, v1 bool) (*sandbox, error) {
	if def.GetTimeoutSecs() == 0 || def.GetTimeoutSecs() > 24*3600 {
		return nil, invalid("timeout must be between 1 second and 24 hours")
	}
	if def.GetResources().GetGpuConfig().GetGpuType() != "" && !v1 {
		return nil, invalid("GPUs are not supported")
	}
	if n := def.GetName(); n != "" && !objectName.MatchString(n) {
		return nil, invalid("invalid Sandbox name: %q", n)
	}
	if err := checkCIDRs(def.GetNetworkAccess()); err != nil {
		return nil, err
	}
	b := &sandbox{
		s: s, id: sandboxID(v1), task: newID("ta"), app: app, v1: v1, def: def, created: time.Now(), begun: make(chan struct{}), done: make(chan struct{}),
		tags: map[string]string{}, execs: map[string]*execs.Exec{}, snaps: map[string]string{},
		env: map[string]string{}, access: def.GetNetworkAccess(),
	}
	for _, t := range tags {
		b.tags[t.GetTagName()] = t.GetTagValue()
	}
	b.root = s.path("sandboxes", b.id)
	s.mu.Lock()
	known := false
	for _, id := range s.apps {
		known = known || id == app
	}
	img, err := s.imageLocked(def.GetImageId())
	for _, o := range s.sandboxes {
		if def.GetName() != "" && o.app == app && o.def.GetName() == def.GetName() && !o.ended() {
			err = status.Errorf(codes.AlreadyExists, "a Sandbox with the name %q is running in this App", def.GetName())
		}
	}
	if err == nil && !known {
		err = status.Errorf(codes.NotFound, "App %q not found", app)
	}
	if err == nil {
		maps.Copy(b.env, img.env)
		err = s.environmentLocked(b.env, def.GetSecretIds(), sources)
	}
	var binds map[string]cell.Bind
	if err == nil {
		binds, err = s.bindsLocked(def)
	}
	if err == nil {
		s.sandboxes[b.id], s.tasks[b.task] = b, b
	}
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	err = b.start(ctx, img, binds)
	close(b.begun)
	if err != nil {
		b.finish(pb.GenericResult_GENERIC_STATUS_INIT_FAILURE, err.Error())
		b.cleanUp()
		return nil, status.Error(codes.Internal, err.Error())
	}
	return b, nil
}

// environmentLocked puts secrets into env, the later ones over the earlier.
func (s *Server) environmentLocked(env map[string]string, ids []string, sources []*pb.SecretSource) error {
	add := func(id string) error {
		x := s.secrets[id]
		if x == nil {
			return status.Errorf(codes.NotFound, "secret %q not found", id)
		}
		maps.Copy(env, x.values)
		return nil
	}
	if len(sources) == 0 {
		for _, id := range ids {
			if err := add(id); err != nil {
				return err
			}
		}
	}
	for _, src := range sources {
		if id := src.GetSecretId(); id != "" {
			if err := add(id); err != nil {
				return err
			}
			continue
		}
		maps.Copy(env, src.GetEnv().GetContents())
	}
	return nil
}

// bindsLocked are the volumes and buckets of a sandbox, and the vendor's own files.
func (s *Server) bindsLocked(def *pb.Sandbox) (map[string]cell.Bind, error) {
	binds := map[string]cell.Bind{}
	if s.opts.FSTools != "" {
		binds[fsTools] = cell.Bind{Source: s.opts.FSTools, ReadOnly: true}
	}
	for _, v := range def.GetVolumeMounts() {
		dir := s.path("volumes", v.GetVolumeId(), path.Clean("/"+v.GetSubPath()))
		if !strings.HasPrefix(v.GetMountPath(), "/") {
			return nil, invalid("volume mount path must be absolute: %q", v.GetMountPath())
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
		binds[v.GetMountPath()] = cell.Bind{Source: dir, ReadOnly: v.GetReadOnly()}
	}
	for _, m := range def.GetCloudBucketMounts() {
		if !s.buckets[m.GetBucketName()] {
			return nil, status.Errorf(codes.FailedPrecondition, "bucket %q cannot be mounted: no such bucket", m.GetBucketName())
		}
		if err := s.credentialsLocked(m); err != nil {
			return nil, err
		}
		dir := s.path("buckets", m.GetBucketName(), path.Clean("/"+m.GetKeyPrefix()))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
		binds[m.GetMountPath()] = cell.Bind{Source: dir, ReadOnly: m.GetReadOnly()}
	}
	return binds, nil
}

// credentialsLocked checks that a bucket's secret has the keys of its kind.
func (s *Server) credentialsLocked(m *pb.CloudBucketMount) error {
	if m.GetCredentialsSecretId() == "" {
		return nil
	}
	x := s.secrets[m.GetCredentialsSecretId()]
	if x == nil {
		return status.Error(codes.NotFound, "the credentials' secret was not found")
	}
	keys := []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}
	if m.GetBucketType() == pb.CloudBucketMount_GCP {
		keys = []string{"GOOGLE_ACCESS_KEY_ID", "GOOGLE_ACCESS_KEY_SECRET"}
	}
	for _, k := range keys {
		if x.values[k] == "" {
			return status.Errorf(codes.FailedPrecondition, "bucket %q cannot be mounted: the secret has no %s", m.GetBucketName(), k)
		}
	}
	return nil
}

// start makes the files and the first process. The image's own command is /bin/sh, which ends at once.
func (b *sandbox) start(ctx context.Context, img *image, binds map[string]cell.Bind) error {
	if img.failed != "" || img.subtree {
		return status.Error(codes.FailedPrecondition, "the image cannot be started")
	}
	if err := cell.Copy(img.dir, b.root); err != nil {
		return err
	}
	argv := b.def.GetEntrypointArgs()
	if len(argv) == 0 {
		argv = []string{"/bin/sh"}
	}
	b.env["MODAL_SANDBOX_ID"], b.env["MODAL_TASK_ID"] = b.id, b.task
	alone := b.access.GetNetworkAccessType() == pb.NetworkAccess_BLOCKED
	c, err := cell.Start(ctx, cell.Options{Root: b.root, Argv: argv, Env: b.env, Dir: b.def.GetWorkdir(), Binds: binds, Alone: alone})
	if err != nil {
		return err
	}
	b.mu.Lock()
	b.cell = c
	if b.result != nil { // somebody has ended it meanwhile
		c.Kill()
	}
	b.mu.Unlock()
	var ports []tunnel.Port
	for _, p := range b.def.GetOpenPorts().GetPorts() {
		ports = append(ports, tunnel.Port{Inside: p.GetPort(), Plain: p.GetUnencrypted()})
	}
	if b.tunnels, err = tunnel.Open(ports, c.Dial); err != nil {
		return err
	}
	b.timers = append(b.timers, time.AfterFunc(time.Duration(b.def.GetTimeoutSecs())*time.Second, func() {
		b.finish(pb.GenericResult_GENERIC_STATUS_TIMEOUT, "")
	}))
	b.mu.Lock()
	b.restLocked()
	b.mu.Unlock()
	go func() {
		<-c.Done()
		if code := c.ExitCode(); code == 0 {
			b.end(pb.GenericResult_builder{Status: pb.GenericResult_GENERIC_STATUS_SUCCESS}.Build())
		} else {
			b.end(pb.GenericResult_builder{Status: pb.GenericResult_GENERIC_STATUS_FAILURE, Exitcode: int32(code)}.Build())
		}
		b.cleanUp()
	}()
	return nil
}

// restLocked lets the idle timeout begin when no exec runs.
func (b *sandbox) restLocked() {
	if b.idle != nil {
		b.idle.Stop()
		b.idle = nil
	}
	d := b.def.GetIdleTimeoutSecs()
	if d == 0 || b.result != nil {
		return
	}
	for _, e := range b.execs {
		if !e.Over() {
			return
		}
	}
	b.idle = time.AfterFunc(time.Duration(d)*time.Second, func() { b.finish(pb.GenericResult_GENERIC_STATUS_IDLE_TIMEOUT, "") })
}

// runs says whether it has begun and not ended.
func (b *sandbox) runs() bool {
	select {
	case <-b.begun:
		return !b.ended()
	default:
		return false
	}
}

func (b *sandbox) ended() bool {
	select {
	case <-b.done:
		return true
	default:
		return false
	}
}

// finish ends a sandbox for a reason.
func (b *sandbox) finish(why pb.GenericResult_GenericStatus, text string) {
	b.end(pb.GenericResult_builder{Status: why, Exception: text, Exitcode: 137}.Build())
}

func (b *sandbox) end(result *pb.GenericResult) {
	b.mu.Lock()
	if b.result != nil {
		b.mu.Unlock()
		return
	}
	b.result = result
	c := b.cell
	if b.idle != nil {
		b.idle.Stop()
	}
	b.mu.Unlock()
	for _, t := range b.timers {
		t.Stop()
	}
	close(b.done)
	if c != nil {
		c.Kill()
	}
}

// cleanUp waits until nothing of an ended sandbox runs, and removes its files.
func (b *sandbox) cleanUp() {
	b.mu.Lock()
	c := b.cell
	b.mu.Unlock()
	if c != nil {
		<-c.Done()
	}
	if b.tunnels != nil {
		b.tunnels.Close()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.exit == "" && b.def.GetExperimentalOptionsV2()["enable_exit_snapshot"] == "true" {
		if id, err := b.s.capture(b.root, 0, false, b.env); err == nil {
			b.exit = id
		}
	}
	for _, e := range b.execs {
		e.Remove()
	}
	_ = os.RemoveAll(b.root) // Close removes what is left
}

// capture makes an image of a tree.
func (s *Server) capture(dir string, ttl int64, subtree bool, env map[string]string) (string, error) {
	img := &image{id: newID("im"), subtree: subtree, env: map[string]string{}}
	img.dir = s.path("images", img.id)
	for _, k := range []string{"PATH"} {
		if v, ok := env[k]; ok {
			img.env[k] = v
		}
	}
	if err := cell.Copy(dir, img.dir); err != nil {
		return "", status.Error(codes.Internal, err.Error())
	}
	if ttl > 0 {
		img.expires = time.Now().Add(time.Duration(ttl) * time.Second)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.images[img.id] = img
	return img.id, nil
}

// find finds a sandbox by its id. An id of the other backend is unknown.
func (s *Server) find(id string, v1 bool) (*sandbox, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.sandboxes[id]
	if b == nil || b.v1 != v1 {
		return nil, status.Errorf(codes.NotFound, "Sandbox %q not found", id)
	}
	return b, nil
}

// Running are the ids of the sandboxes that run.
func (s *Server) Running() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []string
	for id, b := range s.sandboxes {
		if !b.ended() {
			ids = append(ids, id)
		}
	}
	return ids
}

// End ends a sandbox as the vendor does by itself: a timeout, an eviction, a failure of its own.
func (s *Server) End(id string, why pb.GenericResult_GenericStatus) {
	s.mu.Lock()
	b := s.sandboxes[id]
	s.mu.Unlock()
	if b != nil {
		b.finish(why, "")
		b.cleanUp()
	}
}

// Definition is what a sandbox was asked to be, and its tags.
func (s *Server) Definition(id string) (*pb.Sandbox, map[string]string) {
	s.mu.Lock()
	b := s.sandboxes[id]
	s.mu.Unlock()
	if b == nil {
		return nil, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.def, maps.Clone(b.tags)
}

// ByName finds the id of the sandbox that runs under a name; empty = there is none.
func (s *Server) ByName(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, b := range s.sandboxes {
		if b.def.GetName() == name && !b.ended() {
			return id
		}
	}
	return ""
}
