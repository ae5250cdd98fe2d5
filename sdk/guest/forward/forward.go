// SPDX-License-Identifier: Apache-2.0

// Package forward has a sandbox's guest do what is asked of the sandbox. A driver that runs the guest embeds [Calls] in
// its sandbox and writes only what makes, finds and ends sandboxes; a method of its own takes the place of one here.
package forward

import (
	"context"
	"io"
	"iter"
	"maps"
	"net"
	"strings"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/client"
	"github.com/berth-dev/berth/sdk/guest/zstd"
)

// Config says how calls come to the guest, and what they need on the way.
type Config struct {
	// Guest gives the guest, which it starts or finds again where it has to. It is called for each call. Required.
	Guest func(context.Context) (*client.Client, error)
	// Using is called once the guest is there, and what it returns when the call has ended; nil = nobody counts.
	Using func() (done func())
	// Filled is called when a call has changed, or a command may change, what the workspace holds. It should be cheap
	// when it was called before. nil = nobody keeps it.
	Filled func(context.Context) error
	// Environment gives the variables that each command's own come on top of. each is false while the guest has begun
	// with them. nil = it always has.
	Environment func() (env, secret map[string]string, each bool)
	// User is whose a file becomes that a call makes without naming anybody; nil and "" = whoever the guest runs as. It is
	// called while the guest is there.
	User func() string
}

// Calls implements the parts of a sandbox that its guest performs.
type Calls struct{ cfg Config }

var (
	_ driver.ProcessTable  = (*Calls)(nil)
	_ driver.FileSystem    = (*Calls)(nil)
	_ driver.TreeIO        = (*Calls)(nil)
	_ driver.PortForwarder = (*Calls)(nil)
	_ driver.AccountKeeper = (*Calls)(nil)
)

// New makes them.
func New(cfg Config) *Calls {
	if cfg.Using == nil {
		cfg.Using = func() func() { return func() {} }
	}
	if cfg.Filled == nil {
		cfg.Filled = func(context.Context) error { return nil }
	}
	if cfg.Environment == nil {
		cfg.Environment = func() (env, secret map[string]string, each bool) { return nil, nil, false }
	}
	if cfg.User == nil {
		cfg.User = func() string { return "" }
	}
	return &Calls{cfg}
}

// WithGroup makes a user stand for its group too, where an owner is wanted.
func WithGroup(user string) string {
	if user == "" || strings.Contains(user, ":") {
		return user
	}
	return user + ":"
}

// use gives the guest for one call. The caller calls done when the call has ended.
func (f *Calls) use(ctx context.Context) (c *client.Client, done func(), err error) {
	if c, err = f.cfg.Guest(ctx); err != nil {
		return nil, nil, err
	}
	return c, f.cfg.Using(), nil
}

// change has the guest change something in the workspace.
func (f *Calls) change(ctx context.Context, do func(*client.Client) error) error {
	c, done, err := f.use(ctx)
	if err != nil {
		return err
	}
	defer done()
	if err := do(c); err != nil {
		return err
	}
	return f.cfg.Filled(ctx)
}

// as gives the user of a file operation that names none.
func (f *Calls) as(user string) string {
	if user != "" {
		return user
	}
	return f.cfg.User()
}

// Run runs a command.
func (f *Calls) Run(ctx context.Context, cmd *driver.Command, streams driver.Streams) (driver.Exit, error) {
	c, done, err := f.use(ctx)
	if err != nil {
		return driver.Exit{}, err
	}
	defer done()
	if err := f.cfg.Filled(ctx); err != nil {
		return driver.Exit{}, err
	}
	if env, secret, each := f.cfg.Environment(); each {
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

// merge puts two maps into one; the second wins.
func merge(a, b map[string]string) map[string]string {
	out := make(map[string]string, len(a)+len(b))
	maps.Copy(out, a)
	maps.Copy(out, b)
	return out
}

// Attach follows a process.
func (f *Calls) Attach(ctx context.Context, id string, offset uint64, streams driver.Streams) (driver.Exit, error) {
	c, done, err := f.use(ctx)
	if err != nil {
		return driver.Exit{}, err
	}
	defer done()
	return c.Attach(ctx, id, offset, streams)
}

// Signal sends a signal.
func (f *Calls) Signal(ctx context.Context, id string, sig driver.Signal) error {
	c, done, err := f.use(ctx)
	if err != nil {
		return err
	}
	defer done()
	return c.Signal(ctx, id, sig)
}

// Processes lists the processes. Looking counts as no use.
func (f *Calls) Processes(ctx context.Context) ([]driver.Process, error) {
	c, err := f.cfg.Guest(ctx)
	if err != nil {
		return nil, err
	}
	return c.Processes(ctx)
}

// EnsureAccounts makes users and groups.
func (f *Calls) EnsureAccounts(ctx context.Context, a driver.Accounts) error {
	c, done, err := f.use(ctx)
	if err != nil {
		return err
	}
	defer done()
	return c.EnsureAccounts(ctx, a)
}

// Dial connects to a port inside. Making the connection is a use, what lives on is not.
func (f *Calls) Dial(ctx context.Context, port uint16) (net.Conn, error) {
	c, done, err := f.use(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	return c.Dial(ctx, port)
}

// Stat describes files.
func (f *Calls) Stat(ctx context.Context, paths []string, opts driver.StatOptions) ([]driver.StatResult, error) {
	c, done, err := f.use(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	opts.User = f.as(opts.User)
	return c.Stat(ctx, paths, opts)
}

// List lists a directory.
func (f *Calls) List(ctx context.Context, path string, opts driver.ListOptions) iter.Seq2[driver.FileInfo, error] {
	return func(yield func(driver.FileInfo, error) bool) {
		c, done, err := f.use(ctx)
		if err != nil {
			yield(driver.FileInfo{}, err)
			return
		}
		defer done()
		opts.User = f.as(opts.User)
		c.List(ctx, path, opts)(yield)
	}
}

// Open reads a file.
func (f *Calls) Open(ctx context.Context, path string, opts driver.ReadOptions) (driver.FileInfo, io.ReadCloser, error) {
	c, done, err := f.use(ctx)
	if err != nil {
		return driver.FileInfo{}, nil, err
	}
	defer done()
	opts.User = f.as(opts.User)
	return c.Open(ctx, path, opts)
}

// Write writes a file.
func (f *Calls) Write(ctx context.Context, path string, opts driver.WriteOptions, r io.Reader) (res driver.WriteResult, err error) {
	err = f.change(ctx, func(c *client.Client) (err error) {
		opts.User = f.as(opts.User)
		res, err = c.Write(ctx, path, opts, r)
		return err
	})
	return res, err
}

// Mkdir makes a directory.
func (f *Calls) Mkdir(ctx context.Context, path string, mode uint32, parents bool, user string) error {
	return f.change(ctx, func(c *client.Client) error { return c.Mkdir(ctx, path, mode, parents, f.as(user)) })
}

// Remove removes a file or directory.
func (f *Calls) Remove(ctx context.Context, path string, recursive bool, user string) error {
	return f.change(ctx, func(c *client.Client) error { return c.Remove(ctx, path, recursive, f.as(user)) })
}

// Move renames.
func (f *Calls) Move(ctx context.Context, from, to string, replace bool, user string) error {
	return f.change(ctx, func(c *client.Client) error { return c.Move(ctx, from, to, replace, f.as(user)) })
}

// SetMeta changes mode, owner or time.
func (f *Calls) SetMeta(ctx context.Context, path string, change driver.MetaChange) error {
	return f.change(ctx, func(c *client.Client) error { return c.SetMeta(ctx, path, change) })
}

// Import unpacks an archive. Everything belongs to the commands' user unless the caller says whom. Templates and
// references to this machine's files are not for a guest.
func (f *Calls) Import(ctx context.Context, opts driver.ImportOptions, r io.Reader) (res driver.ImportResult, err error) {
	if opts.HostReferences {
		return res, errs.New(errs.Unsupported, "the sandbox does not see this machine's files").With("feature", string(driver.TreeHostRefs))
	}
	err = f.change(ctx, func(c *client.Client) (err error) {
		if opts.Owner == "" {
			opts.Owner = WithGroup(f.cfg.User())
		}
		opts.Template = ""
		res, err = c.Import(ctx, opts, r)
		return err
	})
	return res, err
}

// Export writes a tree. It is compressed on this side: the guest reads compressed archives and writes none.
func (f *Calls) Export(ctx context.Context, opts driver.ExportOptions, w io.Writer) error {
	c, done, err := f.use(ctx)
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
