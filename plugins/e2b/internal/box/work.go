// SPDX-License-Identifier: Apache-2.0

package box

import (
	"cmp"
	"context"
	"io"
	"iter"
	"maps"
	"net"
	"strconv"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/zstd"
)

// Run runs a command.
func (b *Box) Run(ctx context.Context, cmd *driver.Command, streams driver.Streams) (driver.Exit, error) {
	c, err := b.live(ctx)
	if err = b.fill(ctx, err); err != nil {
		return driver.Exit{}, err
	}
	release := b.hold()
	env, secret, each := b.env, b.secretEnv, b.mergeEnv
	release()
	if each {
		own := *cmd
		own.Env, own.SecretEnv = merge(env, cmd.Env), merge(secret, cmd.SecretEnv)
		// A later secret does not hide what the command itself says.
		for k := range cmd.Env {
			if _, said := cmd.SecretEnv[k]; !said {
				delete(own.SecretEnv, k)
			}
		}
		cmd = &own
	}
	return c.Run(ctx, cmd, streams)
}

// merge puts maps into one; the later ones win.
func merge(all ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, m := range all {
		maps.Copy(out, m)
	}
	return out
}

// Attach follows a process.
func (b *Box) Attach(ctx context.Context, id string, offset uint64, streams driver.Streams) (driver.Exit, error) {
	c, err := b.live(ctx)
	if err != nil {
		return driver.Exit{}, err
	}
	return c.Attach(ctx, id, offset, streams)
}

// Signal sends a signal.
func (b *Box) Signal(ctx context.Context, id string, sig driver.Signal) error {
	c, err := b.live(ctx)
	if err != nil {
		return err
	}
	return c.Signal(ctx, id, sig)
}

// Processes lists the processes.
func (b *Box) Processes(ctx context.Context) ([]driver.Process, error) {
	c, err := b.live(ctx)
	if err != nil {
		return nil, err
	}
	return c.Processes(ctx)
}

// EnsureAccounts makes users and groups.
func (b *Box) EnsureAccounts(ctx context.Context, a driver.Accounts) error {
	c, err := b.live(ctx)
	if err != nil {
		return err
	}
	return c.EnsureAccounts(ctx, a)
}

// as gives the user of a file operation that names none: what the guest makes has to belong to the commands' user.
func (b *Box) as(user string) string { return cmp.Or(user, b.record.User) }

// Stat describes files.
func (b *Box) Stat(ctx context.Context, paths []string, opts driver.StatOptions) ([]driver.StatResult, error) {
	c, err := b.live(ctx)
	if err != nil {
		return nil, err
	}
	opts.User = b.as(opts.User)
	return c.Stat(ctx, paths, opts)
}

// List lists a directory.
func (b *Box) List(ctx context.Context, path string, opts driver.ListOptions) iter.Seq2[driver.FileInfo, error] {
	c, err := b.live(ctx)
	if err != nil {
		return func(yield func(driver.FileInfo, error) bool) { yield(driver.FileInfo{}, err) }
	}
	opts.User = b.as(opts.User)
	return c.List(ctx, path, opts)
}

// Open reads a file.
func (b *Box) Open(ctx context.Context, path string, opts driver.ReadOptions) (driver.FileInfo, io.ReadCloser, error) {
	c, err := b.live(ctx)
	if err != nil {
		return driver.FileInfo{}, nil, err
	}
	opts.User = b.as(opts.User)
	return c.Open(ctx, path, opts)
}

// Write writes a file.
func (b *Box) Write(ctx context.Context, path string, opts driver.WriteOptions, r io.Reader) (driver.WriteResult, error) {
	c, err := b.live(ctx)
	if err != nil {
		return driver.WriteResult{}, err
	}
	opts.User = b.as(opts.User)
	res, err := c.Write(ctx, path, opts, r)
	return res, b.fill(ctx, err)
}

// Mkdir makes a directory.
func (b *Box) Mkdir(ctx context.Context, path string, mode uint32, parents bool, user string) error {
	c, err := b.live(ctx)
	if err != nil {
		return err
	}
	return b.fill(ctx, c.Mkdir(ctx, path, mode, parents, b.as(user)))
}

// Remove removes a file or directory.
func (b *Box) Remove(ctx context.Context, path string, recursive bool, user string) error {
	c, err := b.live(ctx)
	if err != nil {
		return err
	}
	return b.fill(ctx, c.Remove(ctx, path, recursive, b.as(user)))
}

// Move renames.
func (b *Box) Move(ctx context.Context, from, to string, replace bool, user string) error {
	c, err := b.live(ctx)
	if err != nil {
		return err
	}
	return b.fill(ctx, c.Move(ctx, from, to, replace, b.as(user)))
}

// SetMeta changes mode, owner or time.
func (b *Box) SetMeta(ctx context.Context, path string, change driver.MetaChange) error {
	c, err := b.live(ctx)
	if err != nil {
		return err
	}
	return b.fill(ctx, c.SetMeta(ctx, path, change))
}

// Import unpacks an archive. Everything belongs to the commands' user unless the caller says whom.
func (b *Box) Import(ctx context.Context, opts driver.ImportOptions, r io.Reader) (driver.ImportResult, error) {
	c, err := b.live(ctx)
	if err != nil {
		return driver.ImportResult{}, err
	}
	if opts.HostReferences {
		return driver.ImportResult{}, errs.New(errs.Unsupported, "the sandbox does not see this machine's files").With("feature", string(driver.TreeHostRefs))
	}
	if opts.Owner == "" {
		opts.Owner = withGroup(b.record.User)
	}
	opts.Template = ""
	res, err := c.Import(ctx, opts, r)
	return res, b.fill(ctx, err)
}

// Export writes a tree.
func (b *Box) Export(ctx context.Context, opts driver.ExportOptions, w io.Writer) error {
	c, err := b.live(ctx)
	if err != nil {
		return err
	}
	if opts.Compression != "zstd" {
		return c.Export(ctx, opts, w)
	}
	opts.Compression = ""
	z, err := zstd.Codec{}.NewWriter(w)
	if err != nil {
		return err
	}
	err = c.Export(ctx, opts, z)
	if e := z.Close(); err == nil && e != nil {
		err = errs.Wrap(errs.Internal, "files.export", e)
	}
	return err
}

// Dial connects to a port inside, through the guest.
func (b *Box) Dial(ctx context.Context, port uint16) (net.Conn, error) {
	c, err := b.live(ctx)
	if err != nil {
		return nil, err
	}
	return c.Dial(ctx, port)
}

// Expose gives a port an address: for HTTP the service's own, with the token that it takes in a header, for anything else
// one on this machine.
func (b *Box) Expose(ctx context.Context, port uint16, protocol string, public bool) (driver.Endpoint, error) {
	if _, err := b.live(ctx); err != nil {
		return driver.Endpoint{}, err
	}
	if public && !b.record.Public {
		return driver.Endpoint{}, errs.New(errs.PortUnavailable, "the ports of this sandbox are reached with a token only").With("port", strconv.Itoa(int(port))).
			WithHint("set public_traffic = true in the sandbox block's config")
	}
	if protocol != "http" && !public {
		at, err := b.tunnels.Open(port, b.Dial)
		if err != nil {
			return driver.Endpoint{}, err
		}
		return driver.Endpoint{Host: at.IP.String(), Port: uint16(at.Port)}, nil
	}
	a, err := b.remote.Address(port, b.record.Public)
	if err != nil {
		return driver.Endpoint{}, err
	}
	e := driver.Endpoint{Host: a.URL.Hostname(), TLS: a.URL.Scheme == "https", Path: a.URL.Path, Headers: a.Headers, Port: 80}
	if e.TLS {
		e.Port = 443
	}
	if n, err := strconv.ParseUint(a.URL.Port(), 10, 16); err == nil {
		e.Port = uint16(n)
	}
	return e, nil
}

// Unexpose closes the address on this machine. The service's own is there as long as the sandbox.
func (b *Box) Unexpose(_ context.Context, port uint16) error {
	b.tunnels.Drop(port)
	return nil
}
