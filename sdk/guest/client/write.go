// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/api"
	"github.com/berth-dev/berth/sdk/guest/internal/beneath"
	"github.com/berth-dev/berth/sdk/guest/internal/content"
	"github.com/berth-dev/berth/sdk/guest/link"
)

// Write implements driver.FileSystem.
func (c *Client) Write(ctx context.Context, path string, opts driver.WriteOptions, r io.Reader) (driver.WriteResult, error) {
	w := &writing{path: path, r: source{r}, stream: opts.Append || opts.InPlace, places: make(chan place)}
	var res api.WriteResult
	if err := c.upload(ctx, api.OpWrite, api.Write{Path: api.Text(path), WriteOptions: opts}, w, &res); err != nil {
		return driver.WriteResult{}, err
	}
	e, _, err := api.ReadEntry(res.Entry)
	switch {
	case err != nil:
		return driver.WriteResult{}, errs.New(errs.ExecTransport, "the guest's answer cannot be read: %v", err)
	case !w.whole.Load():
		return driver.WriteResult{}, errs.New(errs.ExecTransport, "the guest said that the file is written before it was sent")
	}
	out := driver.WriteResult{Info: e.Info, SHA256: w.sum}
	if !w.placed {
		copy(out.SHA256[:], res.SHA256)
	}
	return out, nil
}

// writing sends the content of one file. When it is large and the guest passes the file, which it has made and will give
// its attributes and its name, the content is written to it here: it takes one way less through a socket.
type writing struct {
	path   string
	r      io.Reader
	stream bool // it has to be sent

	asked  atomic.Bool // for the file
	places chan place
	placed bool              // set before whole
	sum    [sha256.Size]byte // the same; of what was placed
	whole  atomic.Bool       // the guest may know that everything is there
}

// place is the guest's answer to a large file.
type place struct {
	file *os.File // nil = the content is to be sent
	most uint64   // bytes that the file may hold
}

func (w *writing) send(ctx context.Context, st *link.Stream) error {
	if w.stream || !st.TakesFiles() {
		return w.rest(ctx, st)
	}
	var first []*link.Buffer
	for ended := false; !ended && len(first) < api.PassSize/link.Chunk; {
		buf := st.Buffer(link.Chunk)
		var n int
		var err error
		if n, ended, err = content.Fill(w.r, buf.Bytes()); err != nil {
			return err
		}
		buf.Truncate(n)
		first = append(first, buf)
		if ended {
			return w.begin(ctx, st, first, true)
		}
	}
	w.asked.Store(true)
	if err := st.SendControl(ctx, api.SubLarge, nil); err != nil {
		return err
	}
	select {
	case p := <-w.places:
		if p.file == nil {
			return w.begin(ctx, st, first, false)
		}
		return w.place(ctx, st, first, p)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// begin sends what was read already, and then the rest.
func (w *writing) begin(ctx context.Context, st *link.Stream, first []*link.Buffer, ended bool) error {
	for _, buf := range first {
		if len(buf.Bytes()) == 0 {
			st.Recycle(buf)
			continue
		}
		if err := st.SendBuffer(ctx, api.SubContent, buf); err != nil {
			return err
		}
	}
	if !ended {
		return w.rest(ctx, st)
	}
	w.whole.Store(true)
	st.EndInput()
	return nil
}

func (w *writing) rest(ctx context.Context, st *link.Stream) error {
	return send(ctx, st, w.r, func() { w.whole.Store(true) })
}

// place writes the content to the guest's file.
func (w *writing) place(ctx context.Context, st *link.Stream, first []*link.Buffer, to place) error {
	all := make([]io.Reader, 0, len(first)+1)
	for _, buf := range first {
		all = append(all, bytes.NewReader(buf.Bytes()))
	}
	at := int64(0)
	size, sum, err := content.Copy(ctx, io.MultiReader(append(all, w.r)...), func(b []byte) error {
		if uint64(at)+uint64(len(b)) > to.most {
			return &sourceError{beneath.Fail("files.write", w.path, unix.EFBIG)}
		}
		if err := pwrite(to.file, b, at); err != nil {
			return &sourceError{beneath.Fail("files.write", w.path, err)}
		}
		at += int64(len(b))
		return nil
	})
	// Before the guest goes on: a program that somebody holds open for writing cannot be executed.
	if e := to.file.Close(); err == nil && e != nil {
		err = &sourceError{beneath.Fail("files.write", w.path, e)}
	}
	if err != nil {
		return err
	}
	for _, buf := range first {
		st.Recycle(buf)
	}
	b, err := json.Marshal(api.Size{Bytes: uint64(size)})
	if err != nil {
		return err
	}
	w.placed, w.sum = true, sum
	w.whole.Store(true)
	if err := st.SendControl(ctx, api.SubWritten, b); err != nil {
		return err
	}
	st.EndInput()
	return nil
}

// take gives the guest's answer to the sender.
func (w *writing) take(ctx context.Context, m *link.Message) error {
	if m.Kind != link.Control || m.Sub != api.SubFile && m.Sub != api.SubReady {
		return nil
	}
	if !w.asked.Swap(false) {
		return errs.New(errs.ExecTransport, "the guest passed a file that was not asked for")
	}
	var p place
	var most api.Size
	if m.Sub == api.SubFile && checkPassed(m.File, forWriting) == nil && json.Unmarshal(m.Body, &most) == nil {
		p = place{m.File, most.Bytes}
		m.File = nil
	}
	select {
	case w.places <- p:
	case <-ctx.Done():
		if p.file != nil {
			p.file.Close()
		}
	}
	return nil
}

// upload is content on its way to the guest.
type upload interface {
	// send sends all of it. A *sourceError makes the guest drop what it has, and is what the caller is told.
	send(ctx context.Context, st *link.Stream) error
	// take is called with each message that comes meanwhile, until ctx has ended.
	take(ctx context.Context, m *link.Message) error
}

// upload sends content, then decodes the answer. The guest's answer is heard meanwhile: it may refuse early.
func (c *Client) upload(ctx context.Context, op api.Op, args any, u upload, value any) error {
	st, err := c.open(ctx, op, args)
	if err != nil {
		return err
	}
	defer st.Close()
	sending, cancel := context.WithCancelCause(ctx)
	defer cancel(errEnough)
	sent := make(chan error, 1)
	go func() { sent <- u.send(sending, st) }()
	answered := make(chan error, 1)
	go func() {
		err := c.receive(ctx, st, op, value, func(m *link.Message) error { return u.take(sending, m) })
		cancel(errEnough)
		answered <- err
	}()
	select {
	case err := <-answered: // a reader that waits is left waiting, as by an HTTP client
		return err
	case err := <-sent:
		var own *sourceError
		if !errors.As(err, &own) {
			return <-answered
		}
		cancel(errEnough)
		st.Cancel() // what was sent is dropped, not kept as if it were all
		<-answered  //nolint:errcheck // only that it has ended counts
		return errs.Wrap(errs.Internal, string(op), own.err)
	}
}

// stream is content that is only sent.
type stream struct{ source }

func (s stream) send(ctx context.Context, st *link.Stream) error {
	return send(ctx, st, s.source, func() {})
}

func (stream) take(context.Context, *link.Message) error { return nil }

// source tells the caller's reader's errors from others.
type source struct{ r io.Reader }

func (s source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = &sourceError{&readError{err}}
	}
	return n, err
}

// sourceError is why content is not to be had.
type sourceError struct{ err error }

func (e *sourceError) Error() string { return e.err.Error() }
func (e *sourceError) Unwrap() error { return e.err }

// readError is what the caller's reader said.
type readError struct{ err error }

func (e *readError) Error() string { return "read what is to be sent: " + e.err.Error() }
func (e *readError) Unwrap() error { return e.err }

// send sends what r gives, as data. It calls whole before it says that this was all.
func send(ctx context.Context, st *link.Stream, r io.Reader, whole func()) error {
	for {
		if err := st.WaitCredit(ctx); err != nil {
			return err
		}
		buf := st.Buffer(link.Chunk)
		n, ended, err := content.Fill(r, buf.Bytes())
		if n > 0 {
			buf.Truncate(n)
			if err := st.SendBuffer(ctx, api.SubContent, buf); err != nil {
				return err
			}
		} else {
			st.Recycle(buf)
		}
		switch {
		case err != nil:
			return err
		case ended:
			whole()
			st.EndInput()
			return nil
		}
	}
}
