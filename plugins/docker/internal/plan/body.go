// SPDX-License-Identifier: Apache-2.0

// Package plan turns what is wanted of a sandbox into a container, and remembers it on the container.
package plan

import (
	"errors"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/docker/go-units"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"

	"github.com/berth-dev/berth/plugins/docker/internal/engine"
	"github.com/berth-dev/berth/plugins/docker/internal/execbox"
	"github.com/berth-dev/berth/plugins/docker/internal/inside"
	"github.com/berth-dev/berth/plugins/docker/internal/settings"
	"github.com/berth-dev/berth/sdk/attach"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// Want is everything that a container is made from.
type Want struct {
	Req    *driver.CreateRequest
	Config *settings.Config
	Engine *engine.Engine
	Image  *engine.Image
	Guest  *mount.Mount // nil = commands run by the engine
	Why    string       // there is no guest
	User   string       // default of commands
	Labels map[string]string
	Owner  string // the installation
}

// AsRoot says whether the guest begins as root and commands as whom they should: it needs two capabilities for that.
func (w *Want) AsRoot() bool {
	has := func(name string) bool {
		return slices.ContainsFunc(w.Config.Capabilities, func(c string) bool {
			return strings.TrimPrefix(strings.ToUpper(c), "CAP_") == name || strings.EqualFold(c, "ALL")
		})
	}
	return has("SETUID") && has("SETGID")
}

func (w *Want) record() *Record {
	c := w.Config
	r := &Record{
		Root: path.Clean(w.Req.Workspace.Root), User: w.User, Exec: w.Guest == nil, Alone: true, Lifetime: w.Req.MaxLifetime,
		Image: w.Image.ID, Digest: w.Image.Digest,
		Facts: Facts{
			Network: c.Network, Runtime: c.Runtime, Rootless: w.Engine.Has("rootless"), Capabilities: c.Capabilities,
			Privileges: !c.NoNewPrivileges, Seccomp: c.Seccomp, ReadOnly: c.ReadOnlyRoot, Processes: c.Processes, Memory: c.Memory,
			CPUs: c.CPUs, Why: w.Why,
		},
	}
	for _, g := range w.Req.Grants {
		r.Grants = append(r.Grants, driver.PathGrant{Path: path.Clean(g.Path), HostPath: hostPath(g), ReadOnly: g.ReadOnly})
	}
	for _, m := range w.Req.Mounts {
		if m.Strategy == attach.Strategy {
			continue // it is attached when the container runs
		}
		r.Grants = append(r.Grants, driver.PathGrant{Path: under(r.Root, m.Path), HostPath: m.HostPath, ReadOnly: m.ReadOnly})
	}
	if c.Network != "none" {
		r.Ports = w.Req.Ports
	}
	return r
}

func hostPath(g driver.PathGrant) string {
	if g.HostPath == "" {
		return g.Path
	}
	return g.HostPath
}

func under(root, p string) string {
	if path.IsAbs(p) {
		return path.Clean(p)
	}
	return path.Join(root, p)
}

// Body is the request for the engine.
func (w *Want) Body(name string) (client.ContainerCreateOptions, *Record, error) {
	c, r := w.Config, w.record()
	label, err := r.label()
	if err != nil {
		return client.ContainerCreateOptions{}, nil, err
	}
	labels := maps.Clone(c.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	for _, from := range []map[string]string{w.Labels, w.Req.Labels} {
		for k, v := range from {
			labels[LabelPrefix+k] = v
		}
	}
	labels[LabelSandbox], labels[LabelRecord], labels[LabelOwner] = w.Req.SandboxID, label, w.Owner

	cfg := &container.Config{
		Image: w.Image.ID, Labels: labels, WorkingDir: r.Root, User: "0", OpenStdin: true, AttachStdin: true, AttachStdout: true,
		AttachStderr: true, Entrypoint: inside.Entrypoint(), StopSignal: "SIGTERM",
		Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
	}
	host, err := w.hostConfig(r)
	if err != nil {
		return client.ContainerCreateOptions{}, nil, err
	}
	if r.Exec {
		// The engine's own init reaps what commands leave behind. Podman's has to be installed beside it.
		init := !w.Engine.Podman
		host.Init = &init
		cfg.StopSignal = "SIGKILL" // there is nobody to tell
		cfg.Entrypoint, cfg.OpenStdin, cfg.AttachStdin = execbox.Keeper(), false, false
	}
	if !w.AsRoot() {
		cfg.User, r.User = w.User, ""
		if labels[LabelRecord], err = r.label(); err != nil {
			return client.ContainerCreateOptions{}, nil, err
		}
	}
	if len(r.Ports) > 0 {
		if err := publish(cfg, host, r.Ports, c.PublishAddress); err != nil {
			return client.ContainerCreateOptions{}, nil, err
		}
	}
	return client.ContainerCreateOptions{Config: cfg, HostConfig: host, Name: name, Platform: engine.Platform(c.Platform)}, r, nil
}

func publish(cfg *container.Config, host *container.HostConfig, ports []uint16, address string) error {
	at, err := netip.ParseAddr(address)
	if err != nil {
		return errs.New(errs.ConfigInvalid, "%q is no IP address", address)
	}
	cfg.ExposedPorts, host.PortBindings = network.PortSet{}, network.PortMap{}
	for _, n := range ports {
		p, ok := network.PortFrom(n, network.TCP)
		if !ok {
			return errs.New(errs.InvalidArgument, "%d is no port", n)
		}
		cfg.ExposedPorts[p] = struct{}{}
		host.PortBindings[p] = []network.PortBinding{{HostIP: at}}
	}
	return nil
}

func (w *Want) hostConfig(r *Record) (*container.HostConfig, error) {
	c := w.Config
	pids := int64(c.Processes)
	h := &container.HostConfig{
		LogConfig: container.LogConfig{Type: "none"}, NetworkMode: container.NetworkMode(c.Network), ExtraHosts: c.ExtraHosts,
		CapDrop: []string{"ALL"}, CapAdd: c.Capabilities, IpcMode: "private", ReadonlyRootfs: c.ReadOnlyRoot, Runtime: c.Runtime,
		ShmSize: int64(c.SharedMemory),
		Resources: container.Resources{
			// Swap is counted with memory: none on top.
			Memory: int64(c.Memory), MemorySwap: int64(c.Memory), NanoCPUs: int64(c.CPUs * 1e9), PidsLimit: &pids,
			Ulimits: []*container.Ulimit{{Name: "nofile", Soft: int64(c.OpenFiles), Hard: int64(c.OpenFiles)}, {Name: "core", Soft: 0, Hard: 0}},
		},
	}
	if w.Engine.Podman {
		// Podman would raise it to what it may not have itself in many places.
		h.Ulimits = append(h.Ulimits, &container.Ulimit{Name: "nproc", Soft: pids, Hard: pids})
	}
	if c.FileSize > 0 {
		h.Ulimits = append(h.Ulimits, &container.Ulimit{Name: "fsize", Soft: int64(c.FileSize), Hard: int64(c.FileSize)})
	}
	if c.Disk > 0 {
		h.StorageOpt = map[string]string{"size": strconv.FormatUint(c.Disk, 10)}
	}
	for _, d := range c.DNS {
		a, err := netip.ParseAddr(d)
		if err != nil {
			return nil, errs.New(errs.ConfigInvalid, "%q is no IP address", d)
		}
		h.DNS = append(h.DNS, a)
	}
	if err := w.security(h); err != nil {
		return nil, err
	}
	if err := w.mounts(h, r); err != nil {
		return nil, err
	}
	w.devices(h)
	return h, nil
}

func (w *Want) security(h *container.HostConfig) error {
	c := w.Config
	if c.NoNewPrivileges {
		h.SecurityOpt = append(h.SecurityOpt, "no-new-privileges:true")
	}
	if c.AppArmor != "" {
		h.SecurityOpt = append(h.SecurityOpt, "apparmor="+c.AppArmor)
	}
	switch c.Seccomp {
	case "":
	case "unconfined":
		h.SecurityOpt = append(h.SecurityOpt, "seccomp=unconfined")
	default:
		// The engine wants the text, and not a path of this machine.
		b, err := os.ReadFile(c.Seccomp)
		if err != nil {
			return errs.Wrap(errs.ConfigInvalid, "read the seccomp profile", err)
		}
		h.SecurityOpt = append(h.SecurityOpt, "seccomp="+string(b))
	}
	return nil
}

func (w *Want) mounts(h *container.HostConfig, r *Record) error {
	c := w.Config
	if w.Guest != nil {
		h.Mounts = append(h.Mounts, *w.Guest)
	}
	tmpfs := maps.Clone(c.Tmpfs)
	if c.ReadOnlyRoot {
		h.Mounts = append(h.Mounts, mount.Mount{Type: mount.TypeVolume, Target: r.Root, VolumeOptions: &mount.VolumeOptions{
			Labels: map[string]string{LabelSandbox: w.Req.SandboxID},
		}})
		if _, ok := tmpfs["/tmp"]; !ok {
			if tmpfs == nil {
				tmpfs = map[string]string{}
			}
			tmpfs["/tmp"] = "256MiB"
		}
	}
	for _, target := range slices.Sorted(maps.Keys(tmpfs)) {
		size, err := units.RAMInBytes(tmpfs[target])
		if err != nil {
			return errs.New(errs.ConfigInvalid, "%q is no size", tmpfs[target])
		}
		h.Mounts = append(h.Mounts, mount.Mount{
			Type: mount.TypeTmpfs, Target: target, TmpfsOptions: &mount.TmpfsOptions{SizeBytes: size, Mode: os.ModeSticky | 0o777},
		})
	}
	for _, target := range slices.Sorted(maps.Keys(c.Volumes)) {
		name, option, _ := strings.Cut(c.Volumes[target], ":")
		h.Mounts = append(h.Mounts, mount.Mount{Type: mount.TypeVolume, Source: name, Target: target, ReadOnly: option == "ro"})
	}
	if len(r.Grants) > 0 && !w.Engine.Local {
		return errs.New(errs.Unsupported, "the engine at %s does not see this machine's files, which path grants name", w.Engine.Where).
			With("feature", string(driver.PathGrants)).WithHint("copy the files into the workspace with a manifest, or use volumes")
	}
	for _, g := range r.Grants {
		// Not every engine says that it is missing; some make it.
		if _, err := os.Stat(g.HostPath); g.HostPath != "" && errors.Is(err, fs.ErrNotExist) {
			return errs.New(errs.InvalidArgument, "the granted path %s does not exist on this machine", g.HostPath).With("path", g.HostPath).
				WithHint("make it, or leave the grant out")
		}
		if g.HostPath == "" {
			return errs.New(errs.Unsupported, "mount %s: this driver only attaches what the machine has mounted already", g.Path)
		}
		h.Mounts = append(h.Mounts, mount.Mount{Type: mount.TypeBind, Source: g.HostPath, Target: g.Path, ReadOnly: g.ReadOnly})
	}
	return nil
}

func (w *Want) devices(h *container.HostConfig) {
	for _, d := range w.Config.Devices {
		parts := append(strings.SplitN(d, ":", 3), "", "")
		m := container.DeviceMapping{PathOnHost: parts[0], PathInContainer: parts[1], CgroupPermissions: parts[2]}
		if m.PathInContainer == "" {
			m.PathInContainer = m.PathOnHost
		}
		if m.CgroupPermissions == "" {
			m.CgroupPermissions = "rwm"
		}
		h.Devices = append(h.Devices, m)
	}
	gpus := w.Config.GPUs
	if gpus == "" {
		return
	}
	r := container.DeviceRequest{Capabilities: [][]string{{"gpu"}}}
	if ids, ok := strings.CutPrefix(gpus, "device="); ok {
		r.DeviceIDs = strings.Split(ids, ",")
	} else if gpus == "all" {
		r.Count = -1
	} else {
		r.Count, _ = strconv.Atoi(gpus) // the schema's pattern holds
	}
	h.DeviceRequests = []container.DeviceRequest{r}
}
