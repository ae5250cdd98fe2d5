// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"bufio"
	"errors"
	"io"
)

// pipeBuffer joins the small writes of an archive.
const pipeBuffer = 256 << 10

// Pipe connects a writer and a reader of one stream, and gives the error that came first: the other is its echo.
func Pipe(write func(io.Writer) error, read func(io.Reader) error) error {
	r, w := io.Pipe()
	written := make(chan error, 1)
	go func() {
		b := bufio.NewWriterSize(w, pipeBuffer)
		err := write(b)
		if err == nil {
			err = b.Flush()
		}
		_ = w.CloseWithError(err) // nil is the end of the stream
		written <- err
	}()
	err := read(r)
	_ = r.CloseWithError(io.ErrClosedPipe) // lets the writer end when the reader took no more
	if werr := <-written; werr != nil && !errors.Is(werr, io.ErrClosedPipe) {
		return werr
	}
	return err
}
