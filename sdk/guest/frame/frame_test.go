// SPDX-License-Identifier: Apache-2.0

package frame_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/sdk/guest/frame"
)

var seed = frame.Check{Seed: 0x5eed}

// collect decodes everything and copies it. Payloads of at least large bytes are read straight into buffers of their own.
func collect(t testing.TB, r io.Reader, large int) ([]frame.Frame, *frame.Decoder) {
	t.Helper()
	d := frame.NewDecoder(r)
	d.SetCheck(seed)
	d.Large = func(n int) []byte {
		if n < large {
			return nil
		}
		return make([]byte, n)
	}
	var fs []frame.Frame
	for {
		f, err := d.Next()
		if errors.Is(err, io.EOF) {
			return fs, d
		}
		if err != nil {
			t.Fatal(err)
		}
		if f.Owned && len(f.Payload) < large {
			t.Errorf("%d bytes are owned", len(f.Payload))
		}
		f.Owned, f.Payload = false, append([]byte(nil), f.Payload...)
		fs = append(fs, f)
	}
}

// diff compares payloads at once and not byte by byte.
func diff(want, got []frame.Frame) string {
	return cmp.Diff(want, got, cmp.Comparer(bytes.Equal))
}

func sample(r *rand.Rand, seq uint32) frame.Frame {
	sizes := []int{0, 1, 27, 28, 100, 5000, frame.MaxPayload}
	p := make([]byte, sizes[r.IntN(len(sizes))])
	for i := range p {
		p[i] = byte(r.Uint32())
	}
	if len(p) == 0 {
		p = nil
	}
	return frame.Frame{Type: frame.Type(r.IntN(32)), Flags: uint8(r.IntN(256)), Stream: r.Uint32(), Sequence: seq, Payload: p}
}

func TestRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var want []frame.Frame
	var wire []byte
	for i := range 60 {
		f := sample(r, uint32(i))
		want = append(want, f)
		wire = frame.Append(wire, f, seed)
	}
	for name, rd := range map[string]io.Reader{
		"whole":   bytes.NewReader(wire),
		"halves":  iotest.HalfReader(bytes.NewReader(wire)),
		"dataErr": iotest.DataErrReader(bytes.NewReader(wire)),
	} {
		got, dec := collect(t, rd, 5000)
		if d := diff(want, got); d != "" {
			t.Errorf("%s: %s", name, d)
		}
		if dec.Skipped() != 0 {
			t.Errorf("%s: skipped %d bytes of a clean stream", name, dec.Skipped())
		}
	}
}

// Frames around an accident arrive, the frame that was hit does not, and nothing arrives that was not sent.
func TestResync(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 100 {
		a, b, c := sample(r, 1), sample(r, 2), sample(r, 3)
		wa, wb, wc := frame.Append(nil, a, seed), frame.Append(nil, b, seed), frame.Append(nil, c, seed)
		garbage := make([]byte, r.IntN(400))
		for i := range garbage {
			garbage[i] = byte(r.Uint32())
		}
		cutAt := r.IntN(len(wb))
		flipped := bytes.Clone(wb)
		flipped[r.IntN(len(flipped)-4)] ^= 1 << r.IntN(8) // the reserved field is in the header's check as well
		for name, tc := range map[string]struct {
			wire []byte
			want []frame.Frame
		}{
			"garbage": {append(append(bytes.Clone(wa), garbage...), wc...), []frame.Frame{a, c}},
			"cut":     {append(append(bytes.Clone(wa), wb[:cutAt]...), wc...), []frame.Frame{a, c}},
			"tail":    {append(append(bytes.Clone(wa), wb[cutAt+1:]...), wc...), []frame.Frame{a, c}},
			"flipped": {append(append(bytes.Clone(wa), flipped...), wc...), []frame.Frame{a, c}},
			"magic":   {append(append(bytes.Clone(wa), wb[:4]...), wc...), []frame.Frame{a, c}},
		} {
			for _, large := range []int{1, 1000, frame.MaxPayload + 1} {
				got, _ := collect(t, iotest.HalfReader(bytes.NewReader(tc.wire)), large)
				if d := diff(tc.want, got); d != "" {
					t.Fatalf("%s (cut at %d, %d is large): %s", name, cutAt, large, d)
				}
			}
		}
	}
}

// A frame of another conversation is no frame, a handshake always is one.
func TestSeed(t *testing.T) {
	other := frame.Append(nil, frame.Frame{Type: 20, Payload: []byte("stale")}, frame.Check{Seed: seed.Seed + 1})
	hello := frame.Frame{Type: 1, Payload: []byte("hello")}
	mine := frame.Frame{Type: 20, Payload: []byte("mine")}
	wire := frame.Append(frame.Append(other, hello, frame.Check{Seed: 99}), mine, seed)
	got, d := collect(t, bytes.NewReader(wire), 1)
	if d := diff([]frame.Frame{hello, mine}, got); d != "" {
		t.Fatal(d)
	}
	if d.Skipped() != uint64(frame.HeaderSize+len("stale")) {
		t.Errorf("skipped %d", d.Skipped())
	}
}

// Where payloads are not checked, headers are, and a frame of another conversation is still none.
func TestPlain(t *testing.T) {
	plain := frame.Check{Seed: seed.Seed, Plain: true}
	f := frame.Frame{Type: 20, Stream: 3, Sequence: 4, Payload: bytes.Repeat([]byte("payload"), 1000)}
	resealed := frame.Append(nil, f, seed)
	frame.Reseal(resealed, plain)
	if !bytes.Equal(resealed, frame.Append(nil, f, plain)) {
		t.Error("sealed again, it is another frame")
	}
	next := func(wire []byte) (frame.Frame, error) {
		d := frame.NewDecoder(bytes.NewReader(wire))
		d.SetCheck(plain)
		return d.Next()
	}
	for name, tc := range map[string]struct {
		wire  []byte
		taken bool
	}{
		"whole":                      {resealed, true},
		"with a checksum":            {frame.Append(nil, f, seed), false},
		"of another conversation":    {frame.Append(nil, f, frame.Check{Seed: seed.Seed + 1, Plain: true}), false},
		"a handshake":                {frame.Append(nil, frame.Frame{Type: 1, Payload: []byte("x")}, plain), true},
		"a handshake with an error":  {flip(frame.Append(nil, frame.Frame{Type: 1, Payload: []byte("x")}, plain), frame.HeaderSize), false},
		"with an error in its data":  {flip(resealed, frame.HeaderSize+5000), true},
		"with an error in its head":  {flip(resealed, 9), false},
		"with an error in the check": {flip(resealed, 21), false},
	} {
		if _, err := next(tc.wire); (err == nil) != tc.taken {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// flip changes a bit of a copy.
func flip(b []byte, at int) []byte {
	b = bytes.Clone(b)
	b[at] ^= 4
	return b
}

// FuzzDecoder: whatever surrounds a good frame, it comes out (unless what precedes it claims its bytes, which needs a
// valid header), decoding never fails, never gives more than it got, and ends.
func FuzzDecoder(f *testing.F) {
	good := frame.Append(nil, frame.Frame{Type: 9, Stream: 7, Sequence: 1, Payload: []byte("payload")}, seed)
	f.Add([]byte{}, []byte{})
	f.Add([]byte("login: \r\n"), []byte{0xb7})
	f.Add(good, good[:11])
	f.Add(good[:frame.HeaderSize], good[3:])
	f.Add([]byte{0xb7, 'b', 0x1f, 'g', 0xb7, 'b'}, []byte{0xff})
	f.Fuzz(func(t *testing.T, before, after []byte) {
		wire := append(append(append([]byte{}, before...), good...), after...)
		fs, d := collect(t, iotest.HalfReader(bytes.NewReader(wire)), 5)
		total := d.Skipped()
		found := false
		for _, x := range fs {
			total += uint64(frame.HeaderSize + len(x.Payload))
			found = found || x.Type == 9 && x.Stream == 7 && bytes.Equal(x.Payload, []byte("payload"))
		}
		if total != uint64(len(wire)) {
			t.Fatalf("%d bytes accounted for, of %d", total, len(wire))
		}
		if !found {
			t.Fatal("the good frame was not found")
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	one := frame.Append(nil, frame.Frame{Type: 20, Payload: make([]byte, 128<<10)}, seed)
	r := bytes.NewReader(one)
	loop := readerFunc(func(p []byte) (int, error) {
		if r.Len() == 0 {
			r.Reset(one)
		}
		return r.Read(p)
	})
	d := frame.NewDecoder(loop)
	d.SetCheck(seed)
	b.SetBytes(int64(len(one)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.Next(); err != nil {
			b.Fatal(err)
		}
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
