// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"context"
	"maps"
	"net"
	"strings"
	"time"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// Snapshot saves the files.
func (h *handle) Snapshot(ctx context.Context, _ string, memory bool, labels map[string]string) (out driver.NativeSnapshot, err error) {
	end, err := h.d.faults.begin(ctx, "snapshot")
	if err != nil {
		return out, err
	}
	if memory {
		return out, errs.New(errs.Unsupported, "memory is not saved").With("feature", string(driver.SnapMemory))
	}
	return h.d.backend.save(h.s, labels), end(nil)
}

// Expose gives an address of this machine, which leads to the process that listens inside.
func (h *handle) Expose(ctx context.Context, port uint16, protocol string, public bool) (out driver.Endpoint, err error) {
	err = h.call(ctx, "expose", func(s *Sandbox) error {
		if public && !h.d.can(driver.PortPublic) {
			return errs.New(errs.Unsupported, "there is no public address").With("feature", string(driver.PortPublic))
		}
		if s.ports == nil {
			s.listen(nil)
		}
		if s.ports[port] == nil {
			l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
			if err != nil {
				return errs.Wrap(errs.PortUnavailable, "listen", err)
			}
			s.ports[port] = l
			go s.accept(l, port)
		}
		out = driver.Endpoint{Host: "127.0.0.1", Port: uint16(s.ports[port].Addr().(*net.TCPAddr).Port)} //nolint:errcheck // it is one
		return nil
	})
	return out, err
}

func (s *Sandbox) listen(ports []uint16) {
	s.ports, s.servers = map[uint16]net.Listener{}, map[uint16]*process{}
	for _, p := range ports {
		s.ports[p] = nil // until somebody asks
	}
}

// Unexpose takes the address back.
func (h *handle) Unexpose(ctx context.Context, port uint16) error {
	return h.call(ctx, "unexpose", func(s *Sandbox) error {
		if l := s.ports[port]; l != nil {
			l.Close() // nothing is written to it
		}
		delete(s.ports, port)
		return nil
	})
}

// Dial connects to a process that listens, and gets its words back.
func (h *handle) Dial(ctx context.Context, port uint16) (out net.Conn, err error) {
	err = h.call(ctx, "dial", func(s *Sandbox) error {
		p := s.servers[port]
		if p == nil {
			return errs.New(errs.PortUnavailable, "nothing listens on port %d", port)
		}
		ours, theirs := net.Pipe()
		go p.serve(theirs)
		out = ours
		return nil
	})
	return out, err
}

// Mount attaches storage: an empty directory.
func (h *handle) Mount(ctx context.Context, spec driver.MountSpec) (out driver.MountInfo, err error) {
	err = h.call(ctx, "mount", func(s *Sandbox) error {
		if spec.Kind != "host" {
			return errs.New(errs.Unsupported, "storage of kind %q", spec.Kind).With("feature", "mount."+spec.Kind)
		}
		return nil
	})
	if err == nil {
		out = h.s.addMount(spec)
	}
	return out, err
}

func (s *Sandbox) addMount(spec driver.MountSpec) driver.MountInfo {
	info := driver.MountInfo{ID: spec.ID, Path: spec.Path, ReadOnly: spec.ReadOnly, Strategy: "native"}
	s.fs.mu.Lock()
	if at, err := s.fs.findLocked(spec.Path, true); err == nil && at.node == nil && strings.HasPrefix(spec.Path, "/") {
		at.dir.Children[at.name] = directory()
	}
	s.fs.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mounts == nil {
		s.mounts = map[string]mount{}
	}
	s.mounts[spec.ID] = mount{info, maps.Clone(spec.Credentials)}
	return info
}

func (s *Sandbox) mountLocked(id string) (mount, error) {
	m, ok := s.mounts[id]
	if !ok {
		return m, errs.New(errs.MountFailed, "there is no mount %q", id)
	}
	return m, nil
}

// Unmount detaches storage.
func (h *handle) Unmount(ctx context.Context, id string) error {
	return h.call(ctx, "unmount", func(s *Sandbox) error {
		_, err := s.mountLocked(id)
		delete(s.mounts, id)
		return err
	})
}

// RefreshCredentials remembers them.
func (h *handle) RefreshCredentials(ctx context.Context, id string, credentials map[string]string) (expires time.Time, err error) {
	err = h.call(ctx, "refresh_credentials", func(s *Sandbox) error {
		m, err := s.mountLocked(id)
		if err != nil {
			return err
		}
		m.credentials = maps.Clone(credentials)
		s.mounts[id] = m
		return nil
	})
	return time.Time{}, err
}

// ProbeMount fails when the mount is unknown.
func (h *handle) ProbeMount(ctx context.Context, id string) error {
	return h.call(ctx, "probe_mount", func(s *Sandbox) error {
		_, err := s.mountLocked(id)
		return err
	})
}

// EnsureAccounts remembers them.
func (h *handle) EnsureAccounts(ctx context.Context, accounts driver.Accounts) error {
	return h.call(ctx, "ensure_accounts", func(s *Sandbox) error {
		s.accounts = accounts
		return nil
	})
}
