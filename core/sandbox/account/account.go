// SPDX-License-Identifier: Apache-2.0

// Package account tells of everything that is done to a sandbox, in the words of core/ops, whatever kind of sandbox it is:
// every call to a driver goes through it. Looking at names and states is not told; reading what a file holds is.
package account

import (
	"context"
	"encoding/hex"
	"io"
	"maps"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/berth-dev/berth/core/ops"
	"github.com/berth-dev/berth/core/plugin"
	"github.com/berth-dev/berth/sdk/driver"
)

// Sandbox is a sandbox of which is told what is done to it.
type Sandbox struct {
	*plugin.Sandbox
	to     ops.Observer // of what is done in nobody's name; nil = nobody is told
	driver string
}

// New makes one of a driver's sandbox.
func New(sb *plugin.Sandbox, to ops.Observer, driverName string) *Sandbox {
	return &Sandbox{Sandbox: sb, to: to, driver: driverName}
}

func (s *Sandbox) begin(ctx context.Context, kind ops.Kind, name string, detail map[string]any) (context.Context, func(ops.End), error) {
	return ops.Begin(ctx, s.to, ops.Op{Kind: kind, Sandbox: s.ID(), Driver: s.driver, Name: name, Detail: detail})
}

// tell makes a call between its beginning and its end.
func (s *Sandbox) tell(ctx context.Context, kind ops.Kind, name string, detail map[string]any, call func(context.Context) (map[string]any, error)) error {
	ctx, end, err := s.begin(ctx, kind, name, detail)
	if err != nil {
		return err
	}
	more, err := call(ctx)
	end(ops.End{Err: err, Detail: more})
	return err
}

// with leaves empty members out.
func with(pairs ...any) map[string]any {
	out := map[string]any{}
	for i := 0; i+1 < len(pairs); i += 2 {
		name, _ := pairs[i].(string) // the callers are below
		switch v := pairs[i+1].(type) {
		case string:
			if v == "" {
				continue
			}
		case bool:
			if !v {
				continue
			}
		case []string:
			if len(v) == 0 {
				continue
			}
		}
		out[name] = pairs[i+1]
	}
	return out
}

func names(values ...map[string]string) []string {
	var all []string
	for _, m := range values {
		all = append(all, slices.Collect(maps.Keys(m))...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// counter counts what is read from it.
type counter struct {
	io.Reader
	n atomic.Int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// Run runs a command. Names of variables are told, not what they hold.
func (s *Sandbox) Run(ctx context.Context, cmd *driver.Command, streams driver.Streams) (driver.Exit, error) {
	return s.process(ctx, with("argv", cmd.Argv, "dir", cmd.Dir, "user", cmd.User, "env", names(cmd.Env, cmd.SecretEnv), "tty", cmd.TTY, "id", cmd.ID), streams,
		func(ctx context.Context, streams driver.Streams) (driver.Exit, error) {
			return s.Sandbox.Run(ctx, cmd, streams)
		})
}

// Attach follows a command that runs.
func (s *Sandbox) Attach(ctx context.Context, id string, offset uint64, streams driver.Streams) (driver.Exit, error) {
	return s.process(ctx, with("attached", true, "id", id), streams,
		func(ctx context.Context, streams driver.Streams) (driver.Exit, error) {
			return s.Sandbox.Attach(ctx, id, offset, streams)
		})
}

func (s *Sandbox) process(ctx context.Context, detail map[string]any, streams driver.Streams,
	run func(context.Context, driver.Streams) (driver.Exit, error),
) (driver.Exit, error) {
	ctx, end, err := s.begin(ctx, ops.Exec, "", detail)
	if err != nil {
		return driver.Exit{}, err
	}
	var typed *counter
	if streams.Stdin != nil {
		typed = &counter{Reader: streams.Stdin}
		streams.Stdin = typed
	}
	exit, err := run(ctx, streams)
	out := ops.End{Err: err, Detail: with("signal", exit.Signal, "timed_out", exit.TimedOut, "out_of_memory", exit.OOM)}
	if err == nil {
		out.Code = &exit.Code
		out.Detail["output_bytes"] = exit.OutputBytes
	}
	if typed != nil {
		out.Detail["stdin_bytes"] = typed.n.Load()
	}
	end(out)
	return exit, err
}

// Signal sends a signal to a process.
func (s *Sandbox) Signal(ctx context.Context, id string, sig driver.Signal) error {
	return s.tell(ctx, ops.Signal, sig.Name, with("id", id, "signal", sig.Name), func(ctx context.Context) (map[string]any, error) {
		return nil, s.Sandbox.Signal(ctx, id, sig)
	})
}

// Open reads a file.
func (s *Sandbox) Open(ctx context.Context, path string, opts driver.ReadOptions) (info driver.FileInfo, rc io.ReadCloser, err error) {
	err = s.tell(ctx, ops.FileRead, "", with("path", path, "user", opts.User), func(context.Context) (map[string]any, error) {
		// The read outlives the call, so it goes on under the caller's context.
		info, rc, err = s.Sandbox.Open(ctx, path, opts)
		return nil, err
	})
	return info, rc, err
}

// Write writes a file.
func (s *Sandbox) Write(ctx context.Context, path string, opts driver.WriteOptions, r io.Reader) (out driver.WriteResult, err error) {
	err = s.tell(ctx, ops.FileWrite, "", with("path", path, "user", opts.User, "append", opts.Append, "exclusive", opts.Exclusive),
		func(ctx context.Context) (map[string]any, error) {
			out, err = s.Sandbox.Write(ctx, path, opts, r)
			return map[string]any{"bytes": out.Info.Size, "sha256": hex.EncodeToString(out.SHA256[:])}, err
		})
	return out, err
}

// Mkdir makes a directory.
func (s *Sandbox) Mkdir(ctx context.Context, path string, mode uint32, parents bool, user string) error {
	return s.tell(ctx, ops.FileMkdir, "", with("path", path, "user", user), func(ctx context.Context) (map[string]any, error) {
		return nil, s.Sandbox.Mkdir(ctx, path, mode, parents, user)
	})
}

// Remove removes a file or a tree.
func (s *Sandbox) Remove(ctx context.Context, path string, recursive bool, user string) error {
	return s.tell(ctx, ops.FileRemove, "", with("path", path, "recursive", recursive, "user", user), func(ctx context.Context) (map[string]any, error) {
		return nil, s.Sandbox.Remove(ctx, path, recursive, user)
	})
}

// Move renames.
func (s *Sandbox) Move(ctx context.Context, from, to string, replace bool, user string) error {
	return s.tell(ctx, ops.FileMove, "", with("from", from, "to", to, "replace", replace, "user", user), func(ctx context.Context) (map[string]any, error) {
		return nil, s.Sandbox.Move(ctx, from, to, replace, user)
	})
}

// SetMeta changes mode, owner or times.
func (s *Sandbox) SetMeta(ctx context.Context, path string, change driver.MetaChange) error {
	return s.tell(ctx, ops.FileMeta, "", with("path", path), func(ctx context.Context) (map[string]any, error) {
		return nil, s.Sandbox.SetMeta(ctx, path, change)
	})
}

// Export takes a tree out.
func (s *Sandbox) Export(ctx context.Context, opts driver.ExportOptions, w io.Writer) error {
	return s.tell(ctx, ops.TreeExport, "", with("path", opts.Path), func(ctx context.Context) (map[string]any, error) {
		return nil, s.Sandbox.Export(ctx, opts, w)
	})
}

// Import unpacks a tree.
func (s *Sandbox) Import(ctx context.Context, opts driver.ImportOptions, r io.Reader) (out driver.ImportResult, err error) {
	err = s.tell(ctx, ops.TreeImport, "", with("path", opts.Path, "replace", opts.Replace, "owner", opts.Owner), func(ctx context.Context) (map[string]any, error) {
		out, err = s.Sandbox.Import(ctx, opts, r)
		return nil, err
	})
	return out, err
}

// Snapshot takes a snapshot with the kind's own means.
func (s *Sandbox) Snapshot(ctx context.Context, name string, memory bool, labels map[string]string) (out driver.NativeSnapshot, err error) {
	err = s.tell(ctx, ops.Snapshot, "native", with("native", true, "name", name, "memory", memory), func(ctx context.Context) (map[string]any, error) {
		out, err = s.Sandbox.Snapshot(ctx, name, memory, labels)
		return with("id", out.ID), err
	})
	return out, err
}

// Expose gives a server inside an address outside.
func (s *Sandbox) Expose(ctx context.Context, port uint16, protocol string, public bool) (out driver.Endpoint, err error) {
	err = s.tell(ctx, ops.PortExpose, "", with("port", port, "protocol", protocol, "public", public), func(ctx context.Context) (map[string]any, error) {
		out, err = s.Sandbox.Expose(ctx, port, protocol, public)
		return with("host", out.Host, "host_port", out.Port), err // headers and query may be secret
	})
	return out, err
}

// Unexpose takes the address back.
func (s *Sandbox) Unexpose(ctx context.Context, port uint16) error {
	return s.tell(ctx, ops.PortUnexpose, "", with("port", port), func(ctx context.Context) (map[string]any, error) {
		return nil, s.Sandbox.Unexpose(ctx, port)
	})
}

// Dial connects to a port inside.
func (s *Sandbox) Dial(ctx context.Context, port uint16) (out net.Conn, err error) {
	err = s.tell(ctx, ops.PortConnect, "", with("port", port), func(context.Context) (map[string]any, error) {
		out, err = s.Sandbox.Dial(ctx, port) // the connection outlives the call
		return nil, err
	})
	return out, err
}

// Mount attaches storage.
func (s *Sandbox) Mount(ctx context.Context, spec driver.MountSpec) (out driver.MountInfo, err error) {
	err = s.tell(ctx, ops.Mount, spec.Kind, with("id", spec.ID, "kind", spec.Kind, "path", spec.Path, "read_only", spec.ReadOnly, "strategy", spec.Strategy, "credentials", names(spec.Credentials)), func(ctx context.Context) (map[string]any, error) {
		out, err = s.Sandbox.Mount(ctx, spec)
		return nil, err
	})
	return out, err
}

// Unmount detaches storage.
func (s *Sandbox) Unmount(ctx context.Context, id string) error {
	return s.tell(ctx, ops.Unmount, "", with("id", id), func(ctx context.Context) (map[string]any, error) {
		return nil, s.Sandbox.Unmount(ctx, id)
	})
}

// RefreshCredentials gives a mount new credentials.
func (s *Sandbox) RefreshCredentials(ctx context.Context, id string, credentials map[string]string) (expires time.Time, err error) {
	err = s.tell(ctx, ops.Credentials, "", with("id", id, "credentials", names(credentials)), func(ctx context.Context) (map[string]any, error) {
		expires, err = s.Sandbox.RefreshCredentials(ctx, id, credentials)
		return nil, err
	})
	return expires, err
}

// EnsureAccounts makes users and groups.
func (s *Sandbox) EnsureAccounts(ctx context.Context, accounts driver.Accounts) error {
	return s.tell(ctx, ops.Accounts, "", with("users", accounts.Users), func(ctx context.Context) (map[string]any, error) {
		return nil, s.Sandbox.EnsureAccounts(ctx, accounts)
	})
}

// ExtendDeadline moves the vendor's deadline.
func (s *Sandbox) ExtendDeadline(ctx context.Context, deadline time.Time) (out time.Time, err error) {
	err = s.tell(ctx, ops.Deadline, "", with("deadline", deadline), func(ctx context.Context) (map[string]any, error) {
		out, err = s.Sandbox.ExtendDeadline(ctx, deadline)
		return nil, err
	})
	return out, err
}

// Stop ends every process.
func (s *Sandbox) Stop(ctx context.Context, persist bool) error {
	return s.tell(ctx, ops.SandboxStop, "", nil, func(ctx context.Context) (map[string]any, error) { return nil, s.Sandbox.Stop(ctx, persist) })
}

// Pause freezes the sandbox.
func (s *Sandbox) Pause(ctx context.Context) error {
	return s.tell(ctx, ops.SandboxPause, "", nil, func(ctx context.Context) (map[string]any, error) { return nil, s.Sandbox.Pause(ctx) })
}

// Destroy removes everything. It happens also when it cannot be told: what a run leaves behind would be worse.
func (s *Sandbox) Destroy(ctx context.Context) error {
	work, end, err := s.begin(ctx, ops.SandboxDestroy, "", nil)
	if err != nil {
		work, end = ctx, func(ops.End) {}
	}
	err = s.Sandbox.Destroy(work)
	end(ops.End{Err: err})
	return err
}
