// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"io"
	"iter"
	"math"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/api"
	"github.com/berth-dev/berth/sdk/guest/link"
)

// statBatch is how many bytes of paths are asked for at once.
const statBatch = 64 << 10

// Stat implements driver.FileSystem.
func (c *Client) Stat(ctx context.Context, paths []string, opts driver.StatOptions) ([]driver.StatResult, error) {
	results := make([]driver.StatResult, 0, len(paths))
	for len(paths) > 0 {
		n, size := 0, 0
		for n < len(paths) && (n == 0 || size+len(paths[n]) <= statBatch) && n < 4096 {
			size += len(paths[n])
			n++
		}
		got := 0
		err := c.entries(ctx, api.OpStat, api.Stat{Paths: api.Texts(paths[:n]), StatOptions: opts}, func(r driver.StatResult) bool {
			results = append(results, r)
			got++
			return true
		})
		if err != nil {
			return nil, err
		}
		if got != n {
			return nil, errs.New(errs.ExecTransport, "the guest told of %d files, asked for %d", got, n)
		}
		paths = paths[n:]
	}
	return results, nil
}

// List implements driver.FileSystem.
func (c *Client) List(ctx context.Context, path string, opts driver.ListOptions) iter.Seq2[driver.FileInfo, error] {
	return func(yield func(driver.FileInfo, error) bool) {
		args := api.List{Path: api.Text(path), Exclude: api.Texts(opts.Exclude), ListOptions: opts}
		args.ListOptions.Exclude = nil
		on := true
		err := c.entries(ctx, api.OpList, args, func(r driver.StatResult) bool {
			on = yield(r.Info, r.Err)
			return on
		})
		if err != nil && on {
			yield(driver.FileInfo{}, err)
		}
	}
}

// errEnough ends a listing whose caller wants no more.
var errEnough = errors.New("enough")

// entries gives what a stream of entries holds.
func (c *Client) entries(ctx context.Context, op api.Op, args any, each func(driver.StatResult) bool) error {
	st, err := c.open(ctx, op, args)
	if err != nil {
		return err
	}
	defer st.Close()
	var rest []byte
	err = c.receive(ctx, st, op, nil, func(m *link.Message) error {
		b := m.Body
		if len(rest) > 0 {
			b = append(rest, b...)
		}
		for len(b) > 0 {
			r, left, err := api.ReadEntry(b)
			if err != nil {
				break // it goes on in the next message
			}
			if !each(r) {
				return errEnough
			}
			b = left
		}
		rest = append([]byte(nil), b...)
		return nil //nolint:nilerr // the rest of an entry is in the next message
	})
	switch {
	case errors.Is(err, errEnough):
		return nil
	case err == nil && len(rest) > 0:
		return errs.New(errs.ExecTransport, "the guest's listing cannot be read")
	}
	return err
}

// download reads the data of a stream to its end.
type download struct {
	c   *Client
	ctx context.Context //nolint:containedctx // the life of the open file
	st  *link.Stream
	op  api.Op
	msg link.Message
	at  int
	err error
}

func (r *download) Read(p []byte) (int, error) {
	for r.at >= len(r.msg.Body) {
		r.msg.Release()
		r.msg, r.at = link.Message{}, 0
		if r.err != nil {
			return 0, r.err
		}
		r.next()
	}
	n := copy(p, r.msg.Body[r.at:])
	r.at += n
	return n, nil
}

// WriteTo saves a copy where the reader is copied from.
func (r *download) WriteTo(w io.Writer) (int64, error) {
	var total int64
	for {
		if r.at < len(r.msg.Body) {
			n, err := w.Write(r.msg.Body[r.at:])
			r.at += n
			total += int64(n)
			if err != nil {
				return total, err
			}
			continue
		}
		r.msg.Release()
		r.msg, r.at = link.Message{}, 0
		if errors.Is(r.err, io.EOF) {
			return total, nil
		}
		if r.err != nil {
			return total, r.err
		}
		r.next()
	}
}

func (r *download) next() {
	m, err := r.st.Recv(r.ctx)
	switch {
	case err != nil:
		r.err = r.c.failed(r.ctx, string(r.op), err)
	case m.Kind == link.End:
		if r.err = result(m, nil); r.err == nil {
			r.err = io.EOF
		}
	case m.Kind == link.Data:
		r.msg = m
	default:
		m.Release()
	}
}

// Close ends the reading; what was not read is not sent.
func (r *download) Close() error {
	if r.err == nil {
		r.err = errs.New(errs.InvalidArgument, "read after close")
	}
	r.msg.Release()
	r.msg = link.Message{}
	r.st.Close()
	return nil
}

// Open implements driver.FileSystem. The content comes for as long as ctx lives.
func (c *Client) Open(ctx context.Context, path string, opts driver.ReadOptions) (driver.FileInfo, io.ReadCloser, error) {
	info, r, err := c.read(ctx, path, opts, true)
	if errors.Is(err, errPassed) {
		// The same file, or it changed in between and the caller is told the newer truth.
		info, r, err = c.read(ctx, path, opts, false)
	}
	return info, r, err
}

func (c *Client) read(ctx context.Context, path string, opts driver.ReadOptions, pass bool) (driver.FileInfo, io.ReadCloser, error) {
	st, err := c.open(ctx, api.OpOpen, api.Open{Path: api.Text(path), Pass: pass, ReadOptions: opts})
	if err != nil {
		return driver.FileInfo{}, nil, err
	}
	m, err := c.ready(ctx, st, api.OpOpen)
	if err != nil {
		st.Close()
		return driver.FileInfo{}, nil, err
	}
	r, _, err := api.ReadEntry(m.Body)
	sub, file := m.Sub, m.File
	m.File = nil
	m.Release()
	if err != nil {
		err = errs.New(errs.ExecTransport, "the guest's answer cannot be read: %v", err)
	}
	switch {
	case err != nil || sub != api.SubFile:
	case !pass:
		err = errs.New(errs.ExecTransport, "the guest passed a file that was not asked for")
	default:
		if err = checkPassed(file, forReading); err == nil {
			st.Close()
			return r.Info, &passed{ctx: ctx, file: file, at: int64(min(opts.Offset, math.MaxInt64))}, nil
		}
	}
	if err != nil {
		st.Close()
		if file != nil {
			file.Close()
		}
		return driver.FileInfo{}, nil, err
	}
	return r.Info, &download{c: c, ctx: ctx, st: st, op: api.OpOpen}, nil
}

// ready gives the message that says that a request has begun.
func (c *Client) ready(ctx context.Context, st *link.Stream, op api.Op) (link.Message, error) {
	m, err := st.Recv(ctx)
	switch {
	case err != nil:
		return m, c.failed(ctx, string(op), err)
	case m.Kind == link.End:
		if err := result(m, nil); err != nil {
			return m, err
		}
		return m, errs.New(errs.ExecTransport, "the guest ended %q before it began", op)
	case m.Kind != link.Control || m.Sub != api.SubReady && m.Sub != api.SubFile:
		m.Release()
		return m, errs.New(errs.ExecTransport, "the guest's answer to %q cannot be read", op)
	}
	return m, nil
}

// Mkdir implements driver.FileSystem.
func (c *Client) Mkdir(ctx context.Context, path string, mode uint32, parents bool, user string) error {
	return c.call(ctx, api.OpMkdir, api.Mkdir{Path: api.Text(path), Mode: mode, Parents: parents, User: user})
}

// Remove implements driver.FileSystem.
func (c *Client) Remove(ctx context.Context, path string, recursive bool, user string) error {
	return c.call(ctx, api.OpRemove, api.Remove{Path: api.Text(path), Recursive: recursive, User: user})
}

// Move implements driver.FileSystem.
func (c *Client) Move(ctx context.Context, from, to string, replace bool, user string) error {
	return c.call(ctx, api.OpMove, api.Move{From: api.Text(from), To: api.Text(to), Replace: replace, User: user})
}

// SetMeta implements driver.FileSystem.
func (c *Client) SetMeta(ctx context.Context, path string, change driver.MetaChange) error {
	return c.call(ctx, api.OpSetMeta, api.SetMeta{Path: api.Text(path), MetaChange: change})
}

// Export implements driver.TreeIO.
func (c *Client) Export(ctx context.Context, opts driver.ExportOptions, w io.Writer) error {
	args := api.Export{Path: api.Text(opts.Path), Exclude: api.Texts(opts.Exclude), ExportOptions: opts}
	args.ExportOptions.Path, args.ExportOptions.Exclude = "", nil
	st, err := c.open(ctx, api.OpExport, args)
	if err != nil {
		return err
	}
	defer st.Close()
	return c.receive(ctx, st, api.OpExport, nil, func(m *link.Message) error {
		if m.Kind != link.Data {
			return nil
		}
		_, err := w.Write(m.Body)
		return errs.Wrap(errs.Internal, string(api.OpExport), err)
	})
}

// Import implements driver.TreeIO.
func (c *Client) Import(ctx context.Context, opts driver.ImportOptions, r io.Reader) (driver.ImportResult, error) {
	args := api.Import{Path: api.Text(opts.Path), ImportOptions: opts}
	args.ImportOptions.Path = ""
	var res api.ImportResult
	if err := c.upload(ctx, api.OpImport, args, stream{source{r}}, &res); err != nil {
		return driver.ImportResult{}, err
	}
	out := driver.ImportResult{Members: res.Members, Bytes: res.Bytes}
	for _, s := range res.Skipped {
		out.Skipped = append(out.Skipped, driver.Skipped{Path: string(s.Path), Reason: string(s.Reason)})
	}
	if res.More > 0 {
		out.Skipped = append(out.Skipped, driver.Skipped{Reason: "and others, too many to name"})
	}
	return out, nil
}
