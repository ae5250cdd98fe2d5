// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"io"
	"iter"
	"maps"
	"net"
	"slices"
	"time"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/emul"
)

// with makes a call to an optional interface of the sandbox.
func with[I any](ctx context.Context, s *Sandbox, f driver.Feature, idempotent bool, call func(I) error) error {
	return s.do(ctx, idempotent, func(box driver.Sandbox) error {
		i, ok := as[I](s, box)
		if !ok {
			return unsupported(f)
		}
		return call(i)
	})
}

// as finds an optional interface: the sandbox's own, or one that is emulated. Only a driver in process can lack what is
// emulated; a driver process emulates by itself.
func as[I any](s *Sandbox, box driver.Sandbox) (I, bool) {
	if i, ok := box.(I); ok {
		return i, true
	}
	i, ok := any(s.emulated(box)).(I)
	return i, ok
}

// emulated gives files and trees made of commands.
func (s *Sandbox) emulated(box driver.Sandbox) *emul.Emulator {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.emul == nil || s.emulOf != box {
		s.emul, s.emulOf = emul.New(box, emul.Options{}), box
	}
	return s.emul
}

// Stat describes files.
func (s *Sandbox) Stat(ctx context.Context, paths []string, opts driver.StatOptions) (out []driver.StatResult, err error) {
	err = with(ctx, s, driver.FilesNative, true, func(fs driver.FileSystem) (err error) {
		out, err = fs.Stat(ctx, paths, opts)
		return err
	})
	return out, err
}

// List lists a directory. It begins again when the driver dies before the first entry, and fails after it.
func (s *Sandbox) List(ctx context.Context, path string, opts driver.ListOptions) iter.Seq2[driver.FileInfo, error] {
	return func(yield func(driver.FileInfo, error) bool) {
		begun, done := false, false
		err := with(ctx, s, driver.FilesNative, true, func(fs driver.FileSystem) error {
			for info, err := range fs.List(ctx, path, opts) {
				if err != nil && !begun {
					return err
				}
				begun = true
				if !yield(info, err) || err != nil {
					done = true
					return nil
				}
			}
			return nil
		})
		if err != nil && !done {
			yield(driver.FileInfo{}, err)
		}
	}
}

// Open reads a regular file as a stream. A read that a crash cut goes on in the same version of the file.
func (s *Sandbox) Open(ctx context.Context, path string, opts driver.ReadOptions) (driver.FileInfo, io.ReadCloser, error) {
	f := &file{s: s, ctx: ctx, path: path, opts: opts, r: retrier{p: s.p, idempotent: true}}
	if err := f.open(); err != nil {
		return driver.FileInfo{}, nil, err
	}
	return f.info, f, nil
}

// file is an open file that is opened again when the driver dies.
type file struct {
	s    *Sandbox
	ctx  context.Context //nolint:containedctx // of the one call that Open began
	path string
	opts driver.ReadOptions
	info driver.FileInfo
	read uint64
	rc   io.ReadCloser
	l    *live
	r    retrier
}

func (f *file) open() error {
	return with(f.ctx, f.s, driver.FilesNative, true, func(fs driver.FileSystem) error {
		f.s.mu.Lock()
		f.l = f.s.live
		f.s.mu.Unlock()
		opts := f.opts
		opts.Offset += f.read
		if opts.Length > 0 {
			opts.Length -= f.read
		}
		info, rc, err := fs.Open(f.ctx, f.path, opts)
		if err != nil {
			return err
		}
		if f.read == 0 {
			f.info = info
		}
		f.rc = rc
		return nil
	})
}

// Read reads on after a crash, when the driver can tell that the file is still the same.
func (f *file) Read(p []byte) (int, error) {
	for {
		n, err := f.rc.Read(p)
		f.read += uint64(n)
		if n > 0 && err != nil && !errors.Is(err, io.EOF) {
			return n, nil // the error comes again
		}
		if err == nil || errors.Is(err, io.EOF) {
			return n, err
		}
		crash := f.s.p.crashed(f.ctx, f.l, err)
		if crash == nil {
			return n, err
		}
		if f.info.Version == "" && f.opts.IfVersion == "" {
			return n, crashError(crash, false)
		}
		if f.opts.IfVersion == "" {
			f.opts.IfVersion = f.info.Version
		}
		if f.opts.Length > 0 && f.read >= f.opts.Length {
			return n, io.EOF
		}
		f.rc.Close()
		if err := f.open(); err != nil {
			f.rc = io.NopCloser(failed{err})
			return n, err
		}
	}
}

// Close ends the read.
func (f *file) Close() error { return f.rc.Close() }

// failed is a reader that only fails.
type failed struct{ err error }

func (r failed) Read([]byte) (int, error) { return 0, r.err }

// rewinder makes a call that reads from r repeatable if r can seek.
func rewinder(r io.Reader) (again bool, rewind func() error) {
	seeker, ok := r.(io.Seeker)
	if !ok {
		return false, func() error { return nil }
	}
	start, err := seeker.Seek(0, io.SeekCurrent)
	if err != nil {
		return false, func() error { return nil }
	}
	return true, func() error {
		_, err := seeker.Seek(start, io.SeekStart)
		return err
	}
}

// Write writes a file. When the driver dies, it is repeated if r is an io.Seeker and nothing is appended.
func (s *Sandbox) Write(ctx context.Context, path string, opts driver.WriteOptions, r io.Reader) (out driver.WriteResult, err error) {
	again, rewind := rewinder(r)
	err = with(ctx, s, driver.FilesNative, again && !opts.Append && !opts.Exclusive, func(fs driver.FileSystem) (err error) {
		if err := rewind(); err != nil {
			return err
		}
		out, err = fs.Write(ctx, path, opts, r)
		return err
	})
	return out, err
}

// Mkdir makes a directory.
func (s *Sandbox) Mkdir(ctx context.Context, path string, mode uint32, parents bool, user string) error {
	return with(ctx, s, driver.FilesNative, parents, func(fs driver.FileSystem) error {
		return fs.Mkdir(ctx, path, mode, parents, user)
	})
}

// Remove removes a file or a tree.
func (s *Sandbox) Remove(ctx context.Context, path string, recursive bool, user string) error {
	return with(ctx, s, driver.FilesNative, recursive, func(fs driver.FileSystem) error {
		return fs.Remove(ctx, path, recursive, user)
	})
}

// Move renames.
func (s *Sandbox) Move(ctx context.Context, from, to string, replace bool, user string) error {
	return with(ctx, s, driver.FilesNative, false, func(fs driver.FileSystem) error {
		return fs.Move(ctx, from, to, replace, user)
	})
}

// SetMeta changes mode, owner or times.
func (s *Sandbox) SetMeta(ctx context.Context, path string, change driver.MetaChange) error {
	return with(ctx, s, driver.FilesNative, true, func(fs driver.FileSystem) error {
		return fs.SetMeta(ctx, path, change)
	})
}

// Export writes a tree as tar. It is repeated when the driver dies before the first byte, and fails after it.
func (s *Sandbox) Export(ctx context.Context, opts driver.ExportOptions, w io.Writer) error {
	c := &counter{w: w}
	r := &retrier{p: s.p, idempotent: true}
	return s.try(ctx, r, func(box driver.Sandbox) error {
		t, ok := as[driver.TreeIO](s, box)
		if !ok {
			return unsupported(driver.TreeNative)
		}
		err := t.Export(ctx, opts, c)
		r.idempotent = c.n == 0
		return err
	})
}

type counter struct {
	w io.Writer
	n uint64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += uint64(n)
	return n, err
}

// Import unpacks a tar stream. When the driver dies, it is repeated if r is an io.Seeker.
func (s *Sandbox) Import(ctx context.Context, opts driver.ImportOptions, r io.Reader) (out driver.ImportResult, err error) {
	again, rewind := rewinder(r)
	err = with(ctx, s, driver.TreeNative, again, func(t driver.TreeIO) (err error) {
		if err := rewind(); err != nil {
			return err
		}
		out, err = t.Import(ctx, opts, r)
		return err
	})
	return out, err
}

// Signal sends a signal to a process.
func (s *Sandbox) Signal(ctx context.Context, id string, sig driver.Signal) error {
	return with(ctx, s, driver.ProcSignal, true, func(t driver.ProcessTable) error { return t.Signal(ctx, id, sig) })
}

// Processes lists what was started.
func (s *Sandbox) Processes(ctx context.Context) (out []driver.Process, err error) {
	err = with(ctx, s, driver.ProcList, true, func(t driver.ProcessTable) (err error) {
		out, err = t.Processes(ctx)
		return err
	})
	return out, err
}

// Snapshot takes a snapshot with the kind's own means.
func (s *Sandbox) Snapshot(ctx context.Context, name string, memory bool, labels map[string]string) (out driver.NativeSnapshot, err error) {
	err = with(ctx, s, driver.SnapNative, false, func(n driver.NativeSnapshotter) (err error) {
		out, err = n.Snapshot(ctx, name, memory, labels)
		return err
	})
	return out, err
}

// Expose gives a server inside an address outside.
func (s *Sandbox) Expose(ctx context.Context, port uint16, protocol string, public bool) (out driver.Endpoint, err error) {
	err = with(ctx, s, driver.PortTCP, true, func(e driver.PortExposer) (err error) {
		out, err = e.Expose(ctx, port, protocol, public)
		return err
	})
	return out, err
}

// Unexpose takes the address back.
func (s *Sandbox) Unexpose(ctx context.Context, port uint16) error {
	return with(ctx, s, driver.PortTCP, true, func(e driver.PortExposer) error { return e.Unexpose(ctx, port) })
}

// Dial connects to a port inside. The connection does not survive the driver's process.
func (s *Sandbox) Dial(ctx context.Context, port uint16) (out net.Conn, err error) {
	err = with(ctx, s, driver.PortForward, true, func(f driver.PortForwarder) (err error) {
		out, err = f.Dial(ctx, port)
		return err
	})
	return out, err
}

// Mount attaches storage, also to the sandbox as it will be resumed.
func (s *Sandbox) Mount(ctx context.Context, spec driver.MountSpec) (out driver.MountInfo, err error) {
	s.p.m.cfg.Redact.Add(slices.Collect(maps.Values(spec.Credentials))...)
	err = with(ctx, s, driver.Feature("mount."+spec.Kind+"."+spec.Strategy), true, func(m driver.Mounter) (err error) {
		out, err = m.Mount(ctx, spec)
		return err
	})
	if err == nil {
		s.remount(spec.ID, func(mounts []driver.MountSpec) []driver.MountSpec { return append(mounts, spec) })
	}
	return out, err
}

// Unmount detaches storage.
func (s *Sandbox) Unmount(ctx context.Context, id string) error {
	err := with(ctx, s, driver.Feature("mount"), true, func(m driver.Mounter) error { return m.Unmount(ctx, id) })
	if err == nil {
		s.remount(id, func(mounts []driver.MountSpec) []driver.MountSpec { return mounts })
	}
	return err
}

// remount changes what a resume will mount: without the mount id, then as change says.
func (s *Sandbox) remount(id string, change func([]driver.MountSpec) []driver.MountSpec) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rest := slices.DeleteFunc(slices.Clone(s.again.Mounts), func(m driver.MountSpec) bool { return m.ID == id })
	s.again.Mounts = change(rest)
}

// RefreshCredentials gives a mount new credentials.
func (s *Sandbox) RefreshCredentials(ctx context.Context, id string, credentials map[string]string) (expires time.Time, err error) {
	s.p.m.cfg.Redact.Add(slices.Collect(maps.Values(credentials))...)
	err = with(ctx, s, driver.Feature("mount"), true, func(m driver.Mounter) (err error) {
		expires, err = m.RefreshCredentials(ctx, id, credentials)
		return err
	})
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		for i := range s.again.Mounts {
			if s.again.Mounts[i].ID == id {
				s.again.Mounts[i].Credentials = credentials
			}
		}
	}
	return expires, err
}

// ProbeMount fails when a mount does not work.
func (s *Sandbox) ProbeMount(ctx context.Context, id string) error {
	return with(ctx, s, driver.Feature("mount"), true, func(m driver.Mounter) error { return m.ProbeMount(ctx, id) })
}

// EnsureAccounts makes users and groups.
func (s *Sandbox) EnsureAccounts(ctx context.Context, accounts driver.Accounts) error {
	return with(ctx, s, driver.AcctNative, true, func(k driver.AccountKeeper) error { return k.EnsureAccounts(ctx, accounts) })
}
