// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/iotest"
	"testing/synctest"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/berth-dev/berth/sdk/errs"
	pb "github.com/berth-dev/berth/sdk/proto/berth/driver/v1"
)

func random(n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{9}).Read(b)
	return b
}

func TestPool(t *testing.T) {
	for _, n := range []int{0, 1, 4096, 4<<10 + slack, BulkChunk, 1<<20 + slack, 4 << 20, 5 << 20} {
		b := Pool().Get(n)
		if len(*b) != n {
			t.Errorf("asked for %d, got %d", n, len(*b))
		}
		if n <= BulkChunk && cap(*b) > 8*n+8<<10 {
			t.Errorf("%d bytes took a buffer of %d", n, cap(*b))
		}
		*b = (*b)[:min(n, 10)]
		Pool().Put(b)
	}
	other := make([]byte, 100)
	Pool().Put(&other)
}

// transfer sends data through a Sender and a Receiver and gives what arrives.
func transfer(t *testing.T, data []byte, write func(*Sender), read func(*Receiver) ([]byte, error)) (got []byte, sizes []int) {
	t.Helper()
	var queue []*Message
	s := &Sender{
		Send:   func(m *Message) error { queue = append(queue, &Message{m.Header, m.Data}); return nil },
		Header: func(o uint64) proto.Message { return &pb.Chunk{Offset: o} },
	}
	write(s)
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	for _, m := range queue {
		sizes = append(sizes, m.Len())
	}
	r := &Receiver{Message: Message{Header: &pb.Chunk{}}, Recv: func(m *Message) error {
		if len(queue) == 0 {
			return io.EOF
		}
		*m, queue = *queue[0], queue[1:]
		return nil
	}}
	got, err := read(r)
	if err != nil {
		t.Fatal(err)
	}
	return got, sizes
}

func TestTransfer(t *testing.T) {
	for _, n := range []int{0, 1, InteractiveChunk, InteractiveChunk + 1, 3 << 20} {
		data := random(n)
		for name, write := range map[string]func(*Sender){
			"read from":  func(s *Sender) { s.ReadFrom(iotest.HalfReader(bytes.NewReader(data))) },
			"write":      func(s *Sender) { s.Write(data) },
			"write some": func(s *Sender) { io.CopyBuffer(struct{ io.Writer }{s}, bytes.NewReader(data), make([]byte, 1000)) },
		} {
			got, sizes := transfer(t, data, write, func(r *Receiver) ([]byte, error) { return io.ReadAll(r) })
			if !bytes.Equal(got, data) {
				t.Errorf("%s: %d bytes came out as %d others", name, n, len(got))
			}
			if n == 3<<20 && slices.Max(sizes) != BulkChunk {
				t.Errorf("%s: chunks of %v", name, sizes)
			}
			got, _ = transfer(t, data, write, func(r *Receiver) ([]byte, error) {
				var b bytes.Buffer
				_, err := r.WriteTo(&b)
				return b.Bytes(), err
			})
			if !bytes.Equal(got, data) {
				t.Errorf("%s, WriteTo: %d bytes came out as %d others", name, n, len(got))
			}
		}
	}
}

func TestReceiverSeesHoles(t *testing.T) {
	r := &Receiver{Message: Message{Header: &pb.Chunk{}}, Recv: func(m *Message) error {
		m.Header, m.Data = &pb.Chunk{Offset: 5}, mem.BufferSlice{mem.SliceBuffer("abc")}
		return nil
	}}
	if _, err := io.ReadAll(r); !errors.Is(err, errs.Internal) {
		t.Errorf("got %v", err)
	}
}

func TestReceiverGivesTheErrorAfterTheData(t *testing.T) {
	broken := errors.New("broken")
	n := 0
	r := &Receiver{Message: Message{Header: &pb.Chunk{}}, Recv: func(m *Message) error {
		if n++; n > 1 {
			return broken
		}
		m.Data = mem.BufferSlice{mem.SliceBuffer("abc")}
		return nil
	}}
	got, err := io.ReadAll(r)
	if string(got) != "abc" || !errors.Is(err, broken) {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestHeadTail(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		h := HeadTail{Head: rnd.IntN(20), Tail: rnd.IntN(20)}
		var all []byte
		for range rnd.IntN(12) {
			p := random(rnd.IntN(15))
			all = append(all, p...)
			h.Write(p)
		}
		head, tail, dropped := h.Result()
		// The obvious version.
		k := min(h.Head, len(all))
		rest := all[k:]
		want := rest[max(0, len(rest)-h.Tail):]
		if !bytes.Equal(head, all[:k]) || !bytes.Equal(tail, want) || dropped != uint64(len(rest)-len(want)) {
			t.Fatalf("head %d tail %d of %d: %q … %q, %d dropped", h.Head, h.Tail, len(all), head, tail, dropped)
		}
	}
}

// collect follows a ring to its end.
func collect(t *testing.T, f *Follower, limit int) (out map[int32][]byte, lost uint64, pieces int) {
	t.Helper()
	defer f.Close()
	out = map[int32][]byte{}
	next := f.pos
	for {
		p, err := f.Next(limit)
		if errors.Is(err, io.EOF) {
			return out, lost, pieces
		}
		if err != nil {
			t.Error(err)
			return out, lost, pieces
		}
		if p.Lost != next || p.Data.Len() > limit {
			t.Errorf("piece at %d, lost since %d, %d bytes; expected %d", p.Offset, p.Lost, p.Data.Len(), next)
		}
		pieces++
		lost += p.Offset - p.Lost
		next = p.Offset + uint64(p.Data.Len())
		out[p.Stream] = append(out[p.Stream], p.Data.Materialize()...)
		p.Data.Free()
	}
}

func TestRingDeliversInOrder(t *testing.T) {
	r := NewRing(0, 0)
	data := random(5 << 20)
	go func() {
		rnd := rand.New(rand.NewPCG(5, 5))
		for rest := data; len(rest) > 0; {
			n := min(1+rnd.IntN(100_000), len(rest))
			if _, err := r.Write(1, rest[:n]); err != nil {
				t.Error(err)
			}
			rest = rest[n:]
		}
		r.Write(2, []byte("error"))
		r.Close()
	}()
	out, lost, _ := collect(t, r.Follow(t.Context(), 0), BulkChunk)
	if !bytes.Equal(out[1], data) || string(out[2]) != "error" || lost != 0 {
		t.Errorf("%d and %d bytes, %d lost", len(out[1]), len(out[2]), lost)
	}
	if r.Retained() != 0 {
		t.Errorf("%d bytes are kept for nobody", r.Retained())
	}
}

func TestRingJoinsWhatIsThere(t *testing.T) {
	r := NewRing(0, 1<<20)
	for range 1000 {
		r.Write(1, make([]byte, 500))
	}
	r.Close()
	if _, _, pieces := collect(t, r.Follow(t.Context(), 0), 1<<20); pieces != 1 {
		t.Errorf("%d pieces", pieces)
	}
}

func TestRingReplays(t *testing.T) {
	r := NewRing(0, 100_000)
	data := random(1 << 20)
	r.Write(1, data)
	r.Close()
	// Everything that is promised is there, from any offset on.
	for _, offset := range []uint64{1<<20 - 100_000, 1<<20 - 1, 1 << 20} {
		out, lost, _ := collect(t, r.Follow(t.Context(), offset), 1000)
		if lost != 0 || !bytes.Equal(out[1], data[offset:]) {
			t.Errorf("from %d: %d lost, %d bytes", offset, lost, len(out[1]))
		}
	}
	// What is older is told to be lost, and nothing else is.
	out, lost, _ := collect(t, r.Follow(t.Context(), 10), BulkChunk)
	if lost == 0 || !bytes.Equal(out[1], data[10+lost:]) {
		t.Errorf("%d lost, %d bytes", lost, len(out[1]))
	}
	if r.Retained() > 100_000+2*maxBlock {
		t.Errorf("%d bytes are retained", r.Retained())
	}
}

func TestRingWithoutFollowersNeverBlocks(t *testing.T) {
	r := NewRing(0, 0)
	for range 100 {
		r.Write(1, make([]byte, 1<<20))
		r.Write(2, make([]byte, 1))
	}
	if r.Head() != 100*(1<<20+1) || r.Retained() > maxBlock {
		t.Errorf("head %d, %d retained", r.Head(), r.Retained())
	}
	r.Release()
}

func TestRingSlowsItsWriterDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRing(0, 0)
		ctx, cancel := context.WithCancelCause(t.Context())
		f := r.Follow(ctx, 0)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range 100 {
				r.Write(1, make([]byte, 1<<20))
			}
		}()
		synctest.Wait()
		if h := r.Head(); h > DefaultWindow+maxBlock {
			t.Errorf("%d bytes ahead of a follower that reads nothing", h)
		}
		p, err := f.Next(100)
		if err != nil || p.Data.Len() != 100 {
			t.Error(p, err)
		}
		cancel(errors.New("left"))
		if _, err := f.Next(100); err == nil || err.Error() != "left" {
			t.Errorf("got %v", err)
		}
		f.Close()
		<-done // nobody follows: the writer is free
	})
}

func TestRingKeepsWhatWasNotAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRing(0, 64<<10)
		f := r.Follow(t.Context(), 0)
		f.Ack(0)
		go func() {
			r.Write(1, random(3<<20))
			r.Close()
		}()
		synctest.Wait()
		got := uint64(0)
		for got < DefaultWindow {
			p, err := f.Next(BulkChunk)
			if err != nil {
				t.Fatal(err)
			}
			got += uint64(p.Data.Len())
			p.Data.Free()
		}
		synctest.Wait()
		if h := r.Head(); h > DefaultWindow+maxBlock {
			t.Errorf("the writer went on to %d although nothing was acknowledged", h)
		}
		// The connection breaks: nothing that was in flight is lost.
		f.Close()
		synctest.Wait()
		out, lost, _ := collect(t, r.Follow(t.Context(), 2<<20+512<<10), BulkChunk)
		if lost > 512<<10-64<<10 || !bytes.HasSuffix(random(3<<20), out[1]) {
			t.Errorf("%d lost", lost)
		}
	})
}

// What a gap has swallowed can be acknowledged by nobody, so it does not fill the window.
func TestRingGoesOnAfterALargeGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRing(0, 0)
		f := r.Follow(t.Context(), 0)
		f.Ack(0)
		r.Write(1, []byte("before"))
		r.Skip(10 * DefaultWindow)
		go func() {
			r.Write(1, random(2*DefaultWindow))
			r.Close()
		}()
		synctest.Wait()
		if got := r.Head() - 10*DefaultWindow; got < DefaultWindow-maxBlock || got > DefaultWindow+maxBlock {
			t.Errorf("the writer was let %d bytes ahead", got)
		}
		got := uint64(0)
		for got < DefaultWindow {
			p, err := f.Next(BulkChunk)
			if err != nil {
				t.Fatal(err)
			}
			got = p.Offset + uint64(p.Data.Len()) - min(p.Offset, 10*DefaultWindow)
			p.Data.Free()
		}
		f.Ack(10*DefaultWindow + got)
		out, lost, _ := collect(t, f, BulkChunk)
		if lost != 0 || !bytes.Equal(out[1], random(2 * DefaultWindow)[got:]) {
			t.Errorf("%d bytes, %d lost", len(out[1]), lost)
		}
	})
}

// What is kept comes in its order with what is written, is held for as long as somebody needs it, and is freed once.
func TestRingKeeps(t *testing.T) {
	const size = 100_000
	data := random(40 * size)
	for _, retain := range []uint64{0, 3 * size} {
		synctest.Test(t, func(t *testing.T) {
			free := 0
			r := NewRing(0, retain)
			f := r.Follow(t.Context(), 0)
			go func() {
				for i := range 40 {
					piece := data[i*size : (i+1)*size]
					var err error
					if i%3 == 2 {
						_, err = r.Write(1, piece)
					} else {
						err = r.Keep(1, piece, func() { free++ })
					}
					if err != nil {
						t.Error(err)
					}
				}
				if err := r.Keep(2, nil, func() { free++ }); err != nil {
					t.Error(err)
				}
				r.Close()
			}()
			synctest.Wait()
			if h := r.Head(); h > DefaultWindow+size {
				t.Errorf("%d bytes ahead of a follower that reads nothing", h)
			}
			if retain == 0 && free != 0 {
				t.Errorf("%d buffers were freed that nobody had read", free)
			}
			out, lost, _ := collect(t, f, 70_000)
			if lost != 0 || !bytes.Equal(out[1], data) {
				t.Errorf("%d bytes, or others, %d lost", len(out[1]), lost)
			}
			if free != 28 {
				t.Errorf("%d buffers were freed, of 28", free)
			}
			if err := r.Keep(1, make([]byte, size), func() { free++ }); !errors.Is(err, io.ErrClosedPipe) || free != 29 {
				t.Errorf("closed: %v, %d were freed", err, free)
			}
			r.Release()
		})
	}
	// Nobody follows, or nobody will any more.
	free := 0
	r := NewRing(0, 0)
	if err := r.Keep(1, make([]byte, size), func() { free++ }); err != nil || free != 1 || r.Retained() != 0 {
		t.Errorf("%v, %d were freed, %d bytes are held", err, free, r.Retained())
	}
	f := r.Follow(t.Context(), size)
	if err := r.Keep(1, make([]byte, size), func() { free++ }); err != nil || free != 1 {
		t.Errorf("%v, %d were freed", err, free)
	}
	r.Release()
	if f.Close(); free != 2 {
		t.Errorf("%d were freed", free)
	}
}

func TestRingBoundsManyChanges(t *testing.T) {
	r := NewRing(0, 1<<20)
	for i := range 200_000 {
		r.Write(int32(i%2), []byte{byte(i)})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.segments) > maxSegments {
		t.Errorf("%d segments", len(r.segments))
	}
}

func TestRingSkip(t *testing.T) {
	r := NewRing(10, 0)
	r.retain = 100
	r.Write(1, []byte("ab"))
	r.Skip(20)
	r.Write(1, []byte("cd"))
	r.Skip(30)
	r.Close()
	f := r.Follow(t.Context(), 10)
	defer f.Close()
	var got []Piece
	for {
		p, err := f.Next(100)
		if err != nil {
			break
		}
		got = append(got, p)
	}
	if len(got) != 3 || got[0].Lost != 10 || got[0].Offset != 10 || got[1].Lost != 12 || got[1].Offset != 20 ||
		got[2].Lost != 22 || got[2].Offset != 30 || len(got[2].Data) != 0 {
		t.Errorf("%+v", got)
	}
}

func BenchmarkRing(b *testing.B) {
	for b.Loop() {
		r := NewRing(0, 0)
		go func() {
			p := make([]byte, 32<<10)
			for range 64 << 20 / len(p) {
				r.Write(1, p)
			}
			r.Close()
		}()
		f := r.Follow(b.Context(), 0)
		for {
			p, err := f.Next(BulkChunk)
			if err != nil {
				break
			}
			p.Data.Free()
		}
		f.Close()
	}
	b.SetBytes(64 << 20)
	b.ReportAllocs()
}
