// SPDX-License-Identifier: Apache-2.0

package box

import (
	"context"
	"io"
	"iter"
	"maps"
	"net"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/zstd"
)

// Run runs a command.
func (b *Box) Run(ctx context.Context, cmd *driver.Command, streams driver.Streams) (driver.Exit, error) {
	c, err := b.live(ctx)
	if err != nil {
		return driver.Exit{}, err
	}
	if env, secret, each := b.today(); each {
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

// today gives the environment, and whether each command has to be given it.
func (b *Box) today() (env, secret map[string]string, each bool) {
	defer b.hold()()
	return b.env, b.secretEnv, b.mergeEnv
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

// Dial connects to a port inside.
func (b *Box) Dial(ctx context.Context, port uint16) (net.Conn, error) {
	c, err := b.live(ctx)
	if err != nil {
		return nil, err
	}
	return c.Dial(ctx, port)
}

// Stat describes files.
func (b *Box) Stat(ctx context.Context, paths []string, opts driver.StatOptions) ([]driver.StatResult, error) {
	c, err := b.live(ctx)
	if err != nil {
		return nil, err
	}
	return c.Stat(ctx, paths, opts)
}

// List lists a directory.
func (b *Box) List(ctx context.Context, path string, opts driver.ListOptions) iter.Seq2[driver.FileInfo, error] {
	c, err := b.live(ctx)
	if err != nil {
		return func(yield func(driver.FileInfo, error) bool) { yield(driver.FileInfo{}, err) }
	}
	return c.List(ctx, path, opts)
}

// Open reads a file.
func (b *Box) Open(ctx context.Context, path string, opts driver.ReadOptions) (driver.FileInfo, io.ReadCloser, error) {
	c, err := b.live(ctx)
	if err != nil {
		return driver.FileInfo{}, nil, err
	}
	return c.Open(ctx, path, opts)
}

// Write writes a file.
func (b *Box) Write(ctx context.Context, path string, opts driver.WriteOptions, r io.Reader) (driver.WriteResult, error) {
	c, err := b.live(ctx)
	if err != nil {
		return driver.WriteResult{}, err
	}
	return c.Write(ctx, path, opts, r)
}

// Mkdir makes a directory.
func (b *Box) Mkdir(ctx context.Context, path string, mode uint32, parents bool, user string) error {
	c, err := b.live(ctx)
	if err != nil {
		return err
	}
	return c.Mkdir(ctx, path, mode, parents, user)
}

// Remove removes a file or a tree.
func (b *Box) Remove(ctx context.Context, path string, recursive bool, user string) error {
	c, err := b.live(ctx)
	if err != nil {
		return err
	}
	return c.Remove(ctx, path, recursive, user)
}

// Move renames.
func (b *Box) Move(ctx context.Context, from, to string, replace bool, user string) error {
	c, err := b.live(ctx)
	if err != nil {
		return err
	}
	return c.Move(ctx, from, to, replace, user)
}

// SetMeta changes what is not content.
func (b *Box) SetMeta(ctx context.Context, path string, change driver.MetaChange) error {
	c, err := b.live(ctx)
	if err != nil {
		return err
	}
	return c.SetMeta(ctx, path, change)
}

// Export sends a tree. The guest does not compress; here it is done on the way out.
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

// Import takes a tree.
func (b *Box) Import(ctx context.Context, opts driver.ImportOptions, r io.Reader) (driver.ImportResult, error) {
	c, err := b.live(ctx)
	if err != nil {
		return driver.ImportResult{}, err
	}
	return c.Import(ctx, opts, r)
}
