// SPDX-License-Identifier: Apache-2.0

// Package inside gets the guest into containers and connects to it.
package inside

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"github.com/berth-dev/berth/plugins/docker/internal/engine"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest"
	"github.com/berth-dev/berth/sdk/guest/embed"
)

const (
	// Dir is where a container sees the guest's directory.
	Dir = "/.berth"
	// Program is the guest there.
	program = "berth-guest"
	// EnvGuest names a guest program for this machine's processor to use instead of the one that the driver carries.
	EnvGuest = "BERTH_GUEST"
	// LabelGuest marks volumes that hold a guest; they serve every sandbox of the engine.
	LabelGuest = "dev.berth.guest"
)

// Entrypoint starts the guest; it reads its configuration from standard input.
func Entrypoint() []string { return append([]string{path.Join(Dir, program)}, guest.Args(0)...) }

// Guests puts guest programs where containers can mount them.
type Guests struct {
	StateDir string // of this machine, for engines that see its files

	mu     sync.Mutex
	placed map[string]mount.Mount // guarded by mu; by processor
}

// Mount gives the read-only mount that holds the guest for a processor. image is one that the engine has: where the
// engine is elsewhere, the guest is copied into a volume through a container that never runs.
func (g *Guests) Mount(ctx context.Context, e *engine.Engine, arch, image string) (mount.Mount, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	m, ok := g.placed[arch]
	if ok && m.Type != mount.TypeBind {
		return m, nil
	}
	b, err := read(arch)
	if err != nil {
		return m, err
	}
	// A context that the security policy of the host gives to volumes alone.
	if e.Local && !e.Has("selinux") {
		m, err = g.bind(b, arch)
	} else {
		m, err = volume(ctx, e, b, arch, image)
	}
	if err != nil {
		return m, err
	}
	if g.placed == nil {
		g.placed = map[string]mount.Mount{}
	}
	g.placed[arch] = m
	return m, nil
}

func read(arch string) ([]byte, error) {
	if p := os.Getenv(EnvGuest); p != "" && arch == runtime.GOARCH {
		b, err := os.ReadFile(p)
		return b, errs.Wrap(errs.StartFailed, "read the guest that "+EnvGuest+" names", err)
	}
	return embed.Guest("linux", arch)
}

// bind keeps the program in a directory. Containers that run keep the file that they began with; one that is started
// again gets the guest of the driver that starts it.
func (g *Guests) bind(b []byte, arch string) (mount.Mount, error) {
	dir := filepath.Join(g.StateDir, "guest", "linux-"+arch)
	m := mount.Mount{Type: mount.TypeBind, Source: dir, Target: Dir, ReadOnly: true}
	file := filepath.Join(dir, program)
	if have, err := os.ReadFile(file); err == nil && bytes.Equal(have, b) {
		return m, nil
	}
	// The engine mounts it for whoever the container's user is.
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return m, errs.Wrap(errs.StartFailed, "unpack the guest", err)
	}
	tmp, err := os.CreateTemp(dir, ".guest-")
	if err != nil {
		return m, errs.Wrap(errs.StartFailed, "unpack the guest", err)
	}
	_, err = tmp.Write(b)
	if err = errors.Join(err, tmp.Chmod(0o555), tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), file)
	}
	if err != nil {
		_ = os.Remove(tmp.Name()) // the first error is the one to tell
	}
	return m, errs.Wrap(errs.StartFailed, "unpack the guest", err)
}

// volume keeps the program in a volume of the engine, named after its content.
func volume(ctx context.Context, e *engine.Engine, b []byte, arch, image string) (mount.Mount, error) {
	sum := sha256.Sum256(b)
	name := "berth-guest-" + arch + "-" + hex.EncodeToString(sum[:6])
	m := mount.Mount{Type: mount.TypeVolume, Source: name, Target: Dir, ReadOnly: true, VolumeOptions: &mount.VolumeOptions{NoCopy: true}}
	const op = "copy the guest to the engine"
	if _, err := e.VolumeCreate(ctx, client.VolumeCreateOptions{Name: name, Labels: map[string]string{LabelGuest: arch}}); err != nil {
		return m, engine.Error(errs.CreateFailed, op, err)
	}
	open := m
	open.ReadOnly = false
	made, err := e.ContainerCreate(ctx, client.ContainerCreateOptions{
		Config:     &container.Config{Image: image, Entrypoint: Entrypoint(), Labels: map[string]string{LabelGuest: arch}},
		HostConfig: &container.HostConfig{NetworkMode: "none", Mounts: []mount.Mount{open}},
	})
	if err != nil {
		return m, engine.Error(errs.CreateFailed, op, err)
	}
	defer func() {
		_, _ = e.ContainerRemove(context.WithoutCancel(ctx), made.ID, client.ContainerRemoveOptions{Force: true}) // it never ran
	}()
	if st, err := e.ContainerStatPath(ctx, made.ID, client.ContainerStatPathOptions{Path: path.Join(Dir, program)}); err == nil && st.Stat.Size == int64(len(b)) {
		return m, nil
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	err = w.WriteHeader(&tar.Header{Name: program, Mode: 0o555, Size: int64(len(b)), Typeflag: tar.TypeReg})
	if err == nil {
		_, err = w.Write(b)
	}
	if err = errors.Join(err, w.Close()); err != nil {
		return m, errs.Wrap(errs.Internal, op, err)
	}
	_, err = e.CopyToContainer(ctx, made.ID, client.CopyToContainerOptions{DestinationPath: Dir, Content: &archive})
	if err == nil {
		forgetOld(ctx, e, name)
	}
	return m, engine.Error(errs.CreateFailed, op, err)
}

// forgetOld removes the guests of drivers that were replaced. The engine keeps those that a container still uses.
func forgetOld(ctx context.Context, e *engine.Engine, but string) {
	list, err := e.VolumeList(ctx, client.VolumeListOptions{Filters: client.Filters{}.Add("label", LabelGuest)})
	if err != nil {
		return // tried again by the next driver
	}
	for _, v := range list.Items {
		if v.Name != but {
			_, _ = e.VolumeRemove(ctx, v.Name, client.VolumeRemoveOptions{}) // refused while in use
		}
	}
}
