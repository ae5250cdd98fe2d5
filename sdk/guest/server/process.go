// SPDX-License-Identifier: Apache-2.0

//go:build linux

package server

import (
	"context"
	"encoding/json"
	"errors"
	"io"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/api"
	"github.com/berth-dev/berth/sdk/guest/link"
	"github.com/berth-dev/berth/sdk/guest/proc"
	"github.com/berth-dev/berth/sdk/guest/proc/output"
)

func (s *server) run(st *link.Stream, args *api.Command) (any, error) {
	p, out, err := s.table.Start(args.Driver())
	if err != nil {
		return nil, err
	}
	existed := out == nil
	if existed {
		out = p.Reader(0)
	}
	return s.follow(st, p, out, existed)
}

func (s *server) attach(st *link.Stream, args *api.Attach) (any, error) {
	p, err := s.table.Get(args.ID)
	if err != nil {
		return nil, err
	}
	return s.follow(st, p, p.Reader(args.Offset), true)
}

// follow sends the output and takes input, until the process has ended or the stream is over. It closes out.
func (s *server) follow(st *link.Stream, p *proc.Process, out *output.Reader, existed bool) (any, error) {
	ctx := st.Context()
	err := s.send(st, p, out, existed)
	out.Close() // before the tree is ended: nothing is to be held up by this reader
	if err == nil {
		return p.Wait(ctx)
	}
	if errors.Is(context.Cause(ctx), link.ErrCanceled) {
		if !p.Detached() {
			p.Terminate()
		}
		return nil, errs.New(errs.Canceled, "canceled")
	}
	return nil, errs.Wrap(errs.ExecTransport, "process.output", err)
}

func (s *server) send(st *link.Stream, p *proc.Process, out *output.Reader, existed bool) error {
	ctx := st.Context()
	started, err := json.Marshal(driver.Started{ProcessID: p.ID(), PID: int64(p.PID()), Reattached: existed})
	if err != nil {
		return err
	}
	if err := st.SendControl(ctx, api.SubStarted, started); err != nil {
		return err
	}
	go s.input(st, p)
	for {
		if err := out.Wait(ctx); errors.Is(err, io.EOF) {
			_, err := p.Wait(ctx)
			return err
		} else if err != nil {
			return err
		}
		// Credit first: what cannot be sent stays in the process's own buffer.
		if err := st.WaitCredit(ctx); err != nil {
			return err
		}
		buf := st.Buffer(min(out.Available(), link.Chunk))
		n, stream, gap := out.Next(buf.Bytes())
		if n == 0 {
			st.Recycle(buf)
			if gap == (driver.Gap{}) {
				continue
			}
			b, err := json.Marshal(gap)
			if err != nil {
				return err
			}
			if err := st.SendControl(ctx, api.SubGap, b); err != nil {
				return err
			}
			continue
		}
		buf.Truncate(n)
		if err := st.SendBuffer(ctx, stream, buf); err != nil {
			return err
		}
	}
}

// input takes what the host types until it ends the input or the stream is over.
func (s *server) input(st *link.Stream, p *proc.Process) {
	for {
		m, err := st.Recv(st.Context())
		if err != nil {
			return
		}
		if m.Kind == link.End {
			p.CloseStdin()
			return
		}
		if m.Kind == link.Data {
			p.WriteStdin(m.Body) //nolint:errcheck // a process that does not want it is no fault of the host
		}
		m.Release()
	}
}

func (s *server) signal(_ *link.Stream, args *api.Signal) (any, error) {
	p, err := s.table.Get(args.ID)
	if err != nil {
		return nil, err
	}
	return nil, p.Signal(args.Signal)
}

func (s *server) resize(_ *link.Stream, args *api.Resize) (any, error) {
	p, err := s.table.Get(args.ID)
	if err != nil {
		return nil, err
	}
	return nil, p.Resize(args.Size)
}

func (s *server) processes(st *link.Stream) error {
	list := []api.Process{}
	for _, p := range s.table.List() {
		a := api.Process{Process: p, Argv: api.Texts(p.Argv)}
		a.Process.Argv = nil
		list = append(list, a)
	}
	b, err := json.Marshal(list)
	if err != nil {
		return err
	}
	w := &writer{st: st, sub: api.SubContent}
	_, err = w.Write(b)
	return err
}
