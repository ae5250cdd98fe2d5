// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"context"
	"sync"

	"github.com/berth-dev/berth/sdk/guest/internal/beneath"
)

const (
	workerCount = 2
	batchJobs   = 64
	batchBytes  = 128 << 10
)

// batch is a group of jobs; their content shares one buffer. Handing over single files would cost a wake-up each.
type batch struct {
	jobs []job
	slab []byte
}

// workers write files beside the reader.
type workers struct {
	fail  context.CancelCauseFunc
	queue chan *batch
	free  chan *batch
	cur   *batch
	big   []byte
	group sync.WaitGroup // the goroutines
	busy  sync.WaitGroup // the batches under way

	mu  sync.Mutex
	err error // the first one, guarded by mu
}

func startWorkers(ctx context.Context, fail context.CancelCauseFunc) *workers {
	w := &workers{fail: fail, queue: make(chan *batch, 1), free: make(chan *batch, workerCount+2)}
	for range cap(w.free) {
		w.free <- &batch{}
	}
	for range workerCount {
		w.group.Go(func() {
			c := &copier{}
			for b := range w.queue {
				w.do(ctx, b, c)
			}
		})
	}
	return w
}

func (w *workers) do(ctx context.Context, b *batch, c *copier) {
	for i := range b.jobs {
		j := &b.jobs[i]
		if ctx.Err() == nil {
			if j.source != "" && c.buf == nil {
				c.buf = make([]byte, copyBuffer)
			}
			if err := j.run(ctx, c); err != nil {
				w.failed(memberError(j.member, err))
			}
		}
		j.dir.unpin()
	}
	b.jobs = b.jobs[:0]
	w.busy.Done()
	w.free <- b
}

func (w *workers) failed(err error) {
	w.mu.Lock()
	if w.err == nil {
		w.err = err
	}
	w.mu.Unlock()
	w.fail(err)
}

// add queues a job; fill reads its content of size bytes.
func (w *workers) add(ctx context.Context, j job, size int, fill func([]byte) error) error {
	if w.cur != nil && (len(w.cur.jobs) >= batchJobs || len(w.cur.slab)+size > cap(w.cur.slab)) {
		w.send()
	}
	if w.cur == nil {
		select {
		case w.cur = <-w.free:
		case <-ctx.Done():
			return beneath.Done(ctx)
		}
		if w.cur.slab == nil {
			w.cur.slab = make([]byte, 0, batchBytes)
		}
		w.cur.slab = w.cur.slab[:0]
	}
	b := w.cur
	if size > 0 {
		n := len(b.slab)
		b.slab = b.slab[:n+size]
		j.data = b.slab[n:]
		if err := fill(j.data); err != nil {
			b.slab = b.slab[:n]
			return err
		}
	}
	j.dir.pin()
	b.jobs = append(b.jobs, j)
	return nil
}

func (w *workers) send() {
	if w.cur == nil {
		return
	}
	w.busy.Add(1)
	w.queue <- w.cur
	w.cur = nil
}

// drain waits until everything that was added is written.
func (w *workers) drain(ctx context.Context) error {
	w.send()
	w.busy.Wait()
	if ctx.Err() != nil {
		return beneath.Done(ctx)
	}
	return nil
}

// wait ends the workers and gives the first error.
func (w *workers) wait() error {
	w.send()
	close(w.queue)
	w.group.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// buffer is the reader's own.
func (w *workers) buffer() []byte {
	if w.big == nil {
		w.big = make([]byte, copyBuffer)
	}
	return w.big
}
