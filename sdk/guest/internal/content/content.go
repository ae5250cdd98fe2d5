// SPDX-License-Identifier: Apache-2.0

// Package content moves the content of files.
package content

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"sync"

	"github.com/berth-dev/berth/sdk/guest/internal/beneath"
)

const (
	// pieceSize is what is read, hashed and written at a time.
	pieceSize = 256 << 10
	// ahead is how many pieces the writing may be ahead of the hashing.
	ahead = 4
)

// pieces are buffers of pieceSize bytes.
var pieces = sync.Pool{New: func() any { b := make([]byte, pieceSize); return &b }}

// Copy gives what r holds to write, in order and to its end, and tells how much it was and its SHA-256. What is more than
// one piece is hashed beside the writing: it takes twice as long.
func Copy(ctx context.Context, r io.Reader, write func([]byte) error) (size int64, sum [sha256.Size]byte, err error) {
	first := pieces.Get().(*[]byte) //nolint:errcheck // nothing else is put there
	n, ended, err := Fill(r, *first)
	if err != nil || ended {
		defer pieces.Put(first)
		if err != nil {
			return 0, sum, err
		}
		return int64(n), sha256.Sum256((*first)[:n]), write((*first)[:n])
	}
	c := copier{r: r, write: write, hashing: make(chan *[]byte, ahead), free: make(chan *[]byte, ahead+2)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		hash := sha256.New()
		for b := range c.hashing {
			hash.Write(*b)
			*b = (*b)[:cap(*b)]
			c.free <- b
		}
		hash.Sum(sum[:0])
	}()
	err = c.run(ctx, first)
	close(c.hashing)
	<-done
	for {
		select {
		case b := <-c.free:
			pieces.Put(b)
			continue
		default:
		}
		return c.size, sum, err
	}
}

type copier struct {
	r       io.Reader
	write   func([]byte) error
	size    int64
	hashing chan *[]byte // they come back by free
	free    chan *[]byte
}

// run writes b and what else there is.
func (c *copier) run(ctx context.Context, b *[]byte) error {
	for made := 1; ; {
		piece := *b // hashing gives b back with all its length again, and may be quicker than the write
		c.hashing <- b
		if err := c.write(piece); err != nil {
			return err
		}
		c.size += int64(len(piece))
		if len(piece) < cap(piece) {
			return nil // the content has ended
		}
		if ctx.Err() != nil {
			return beneath.Done(ctx)
		}
		if made < ahead+1 {
			select {
			case b = <-c.free:
			default:
				b = pieces.Get().(*[]byte) //nolint:errcheck // nothing else is put there
				made++
			}
		} else {
			b = <-c.free
		}
		n, ended, err := Fill(c.r, *b)
		if err != nil {
			return err
		}
		if ended {
			*b = (*b)[:n]
		}
	}
}

// Fill reads until b is full or r has ended. Unlike io.ReadFull it does not take content that broke with
// io.ErrUnexpectedEOF for such as ended.
func Fill(r io.Reader, b []byte) (n int, ended bool, err error) {
	for empty := 0; n < len(b); {
		m, err := r.Read(b[n:])
		n += m
		switch {
		case errors.Is(err, io.EOF):
			return n, n < len(b), nil
		case err != nil:
			return n, false, err
		case m > 0:
			empty = 0
		default:
			if empty++; empty > 100 {
				return n, false, io.ErrNoProgress
			}
		}
	}
	return n, false, nil
}
