// SPDX-License-Identifier: Apache-2.0

package box

import (
	"context"
	"io"
	"iter"
	"maps"

	"github.com/berth-dev/berth/plugins/daytona/internal/settings"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	guestclient "github.com/berth-dev/berth/sdk/guest/client"
	"github.com/berth-dev/berth/sdk/guest/zstd"
)

// work gives the guest for a call. The caller calls done when it has ended.
func (b *Box) work(ctx context.Context) (c *guestclient.Client, done func(), err error) {
	if c, err = b.live(ctx); err != nil {
		return nil, nil, err
	}
	return c, b.use(), nil
}

// Run runs a command.
func (b *Box) Run(ctx context.Context, cmd *driver.Command, streams driver.Streams) (driver.Exit, error) {
	c, done, err := b.work(ctx)
	if err != nil {
		return driver.Exit{}, err
	}
	defer done()
	if err := b.fill(ctx, nil); err != nil {
		return driver.Exit{}, err
	}
	release := b.hold()
	env, secret, each, who := b.env, b.secretEnv, b.mergeEnv, b.facts
	release()
	if cmd.User != "" && who.UID != "0" && cmd.User != who.User && cmd.User != who.UID {
		return driver.Exit{}, b.onlyRoot("run a command as " + cmd.User)
	}
	if each {
		own := *cmd
		own.Env, own.SecretEnv = merged(env, cmd.Env), merged(secret, cmd.SecretEnv)
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

// merged puts maps into one; the later ones win.
func merged(all ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, m := range all {
		maps.Copy(out, m)
	}
	return out
}

// Attach follows a process.
func (b *Box) Attach(ctx context.Context, id string, offset uint64, streams driver.Streams) (driver.Exit, error) {
	c, done, err := b.work(ctx)
	if err != nil {
		return driver.Exit{}, err
	}
	defer done()
	return c.Attach(ctx, id, offset, streams)
}

// Signal sends a signal.
func (b *Box) Signal(ctx context.Context, id string, sig driver.Signal) error {
	c, done, err := b.work(ctx)
	if err != nil {
		return err
	}
	defer done()
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
	_, done, err := b.work(ctx)
	if err != nil {
		return err
	}
	defer done()
	defer b.hold()()
	return b.ensureAccounts(ctx, a)
}

// ensureAccounts does it. Preconditions: the gate is held, and there is a guest.
func (b *Box) ensureAccounts(ctx context.Context, a driver.Accounts) error {
	if b.facts.UID != "0" {
		return b.onlyRoot("make users")
	}
	return b.guest.EnsureAccounts(ctx, a)
}

// as gives the user of a file operation that names none: what the guest makes has to belong to the commands' user.
func (b *Box) as(user string) string {
	if user == "" {
		return b.runAs()
	}
	return user
}

// Stat describes files.
func (b *Box) Stat(ctx context.Context, paths []string, opts driver.StatOptions) ([]driver.StatResult, error) {
	c, done, err := b.work(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	opts.User = b.as(opts.User)
	return c.Stat(ctx, paths, opts)
}

// List lists a directory.
func (b *Box) List(ctx context.Context, path string, opts driver.ListOptions) iter.Seq2[driver.FileInfo, error] {
	return func(yield func(driver.FileInfo, error) bool) {
		c, done, err := b.work(ctx)
		if err != nil {
			yield(driver.FileInfo{}, err)
			return
		}
		defer done()
		opts.User = b.as(opts.User)
		c.List(ctx, path, opts)(yield)
	}
}

// Open reads a file.
func (b *Box) Open(ctx context.Context, path string, opts driver.ReadOptions) (driver.FileInfo, io.ReadCloser, error) {
	c, done, err := b.work(ctx)
	if err != nil {
		return driver.FileInfo{}, nil, err
	}
	defer done()
	opts.User = b.as(opts.User)
	return c.Open(ctx, path, opts)
}

// Write writes a file.
func (b *Box) Write(ctx context.Context, path string, opts driver.WriteOptions, r io.Reader) (driver.WriteResult, error) {
	c, done, err := b.work(ctx)
	if err != nil {
		return driver.WriteResult{}, err
	}
	defer done()
	opts.User = b.as(opts.User)
	res, err := c.Write(ctx, path, opts, r)
	return res, b.fill(ctx, err)
}

// change makes a change of files.
func (b *Box) change(ctx context.Context, do func(*guestclient.Client) error) error {
	c, done, err := b.work(ctx)
	if err != nil {
		return err
	}
	defer done()
	return b.fill(ctx, do(c))
}

// Mkdir makes a directory.
func (b *Box) Mkdir(ctx context.Context, path string, mode uint32, parents bool, user string) error {
	return b.change(ctx, func(c *guestclient.Client) error { return c.Mkdir(ctx, path, mode, parents, b.as(user)) })
}

// Remove removes a file or directory.
func (b *Box) Remove(ctx context.Context, path string, recursive bool, user string) error {
	return b.change(ctx, func(c *guestclient.Client) error { return c.Remove(ctx, path, recursive, b.as(user)) })
}

// Move renames.
func (b *Box) Move(ctx context.Context, from, to string, replace bool, user string) error {
	return b.change(ctx, func(c *guestclient.Client) error { return c.Move(ctx, from, to, replace, b.as(user)) })
}

// SetMeta changes mode, owner or time.
func (b *Box) SetMeta(ctx context.Context, path string, change driver.MetaChange) error {
	return b.change(ctx, func(c *guestclient.Client) error { return c.SetMeta(ctx, path, change) })
}

// Import unpacks an archive. Everything belongs to the commands' user unless the caller says whom.
func (b *Box) Import(ctx context.Context, opts driver.ImportOptions, r io.Reader) (driver.ImportResult, error) {
	c, done, err := b.work(ctx)
	if err != nil {
		return driver.ImportResult{}, err
	}
	defer done()
	if opts.HostReferences {
		return driver.ImportResult{}, errs.New(errs.Unsupported, "the sandbox does not see this machine's files").With("feature", string(driver.TreeHostRefs))
	}
	if user := b.runAs(); opts.Owner == "" && user != "" {
		opts.Owner = settings.WithGroup(user)
	}
	opts.Template = ""
	res, err := c.Import(ctx, opts, r)
	return res, b.fill(ctx, err)
}

// Export writes a tree. It is compressed on this side.
func (b *Box) Export(ctx context.Context, opts driver.ExportOptions, w io.Writer) error {
	c, done, err := b.work(ctx)
	if err != nil {
		return err
	}
	defer done()
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
