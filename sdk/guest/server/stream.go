// SPDX-License-Identifier: Apache-2.0

//go:build linux

package server

import (
	"io"

	"github.com/berth-dev/berth/sdk/guest/internal/content"
	"github.com/berth-dev/berth/sdk/guest/link"
)

// writer sends as data what is written to it.
type writer struct {
	st  *link.Stream
	sub uint8
}

func (w *writer) Write(p []byte) (int, error) {
	n := 0
	for len(p) > 0 {
		m := min(len(p), link.Chunk)
		if err := w.st.Send(w.st.Context(), w.sub, p[:m]); err != nil {
			return n, err
		}
		n += m
		p = p[m:]
	}
	return n, nil
}

// ReadFrom reads straight into what is sent.
func (w *writer) ReadFrom(r io.Reader) (int64, error) {
	var total int64
	for {
		if err := w.st.WaitCredit(w.st.Context()); err != nil {
			return total, err
		}
		buf := w.st.Buffer(link.Chunk)
		n, ended, err := content.Fill(r, buf.Bytes())
		if n > 0 {
			buf.Truncate(n)
			if err := w.st.SendBuffer(w.st.Context(), w.sub, buf); err != nil {
				return total, err
			}
			total += int64(n)
		} else {
			w.st.Recycle(buf)
		}
		if ended || err != nil {
			return total, err
		}
	}
}

// reader gives the data that the host sends, to the end of its input.
type reader struct {
	st  *link.Stream
	msg link.Message
	at  int
	end bool
}

func (r *reader) Read(p []byte) (int, error) {
	for r.at >= len(r.msg.Body) {
		r.msg.Release()
		r.msg, r.at = link.Message{}, 0
		if r.end {
			return 0, io.EOF
		}
		m, err := r.st.Recv(r.st.Context())
		if err != nil {
			return 0, err
		}
		r.take(m)
	}
	n := copy(p, r.msg.Body[r.at:])
	r.at += n
	return n, nil
}

// take makes a message what is read next.
func (r *reader) take(m link.Message) {
	switch m.Kind {
	case link.End:
		r.end = true
	case link.Data:
		r.msg = m
	default:
		m.Release()
	}
}
