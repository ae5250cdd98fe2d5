// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "github.com/berth-dev/berth/sdk/proto/berth/driver/v1"
)

// whole puts the payload back into its message, as the protobuf library would have it.
func whole(m *Message) proto.Message {
	data := m.Data.Materialize()
	h := proto.Clone(m.Header)
	switch h := h.(type) {
	case *pb.Chunk:
		h.Data = data
	case *pb.FileChunk:
		h.Data = data
	case *pb.WriteRequest:
		h.Data = data
	case *pb.ImportRequest:
		h.Data = data
	case *pb.Frame:
		h.Data = data
	case *pb.ProcessEvent:
		if o := h.GetOutput(); o != nil {
			o.Data = data
		}
	case *pb.ProcessInput:
		if _, ok := h.GetInput().(*pb.ProcessInput_Stdin); ok {
			h.Input = &pb.ProcessInput_Stdin{Stdin: data}
		}
	}
	return h
}

func messages(data []byte) []proto.Message {
	return []proto.Message{
		&pb.Chunk{Data: data, Offset: 1 << 40},
		&pb.Chunk{Data: data},
		&pb.FileChunk{Data: data, Offset: 7, Info: &pb.FileInfo{Path: "a", Size: 9, Target: string(data[:min(len(data), 100)])}},
		&pb.WriteRequest{Data: data, Header: &pb.WriteHeader{SandboxId: "s", Path: "p"}},
		&pb.ImportRequest{Data: data, Header: &pb.ImportHeader{SandboxId: "s"}},
		&pb.Frame{Data: data, Eof: true},
		&pb.ProcessEvent{Event: &pb.ProcessEvent_Output{Output: &pb.Output{Data: data, Offset: 300, Fd: pb.Fd_FD_STDERR}}},
		&pb.ProcessEvent{Event: &pb.ProcessEvent_Output{Output: &pb.Output{Data: data}}},
		&pb.ProcessEvent{Event: &pb.ProcessEvent_Exited{Exited: &pb.Exited{Code: 3}}},
		&pb.ProcessEvent{Event: &pb.ProcessEvent_Started{Started: &pb.Started{ProcessId: "p"}}},
		&pb.ProcessInput{Input: &pb.ProcessInput_Stdin{Stdin: data}},
		&pb.ProcessInput{Input: &pb.ProcessInput_Resize{Resize: &pb.Winsize{Rows: 1}}},
		&pb.ProcessInput{Input: &pb.ProcessInput_Start{Start: &pb.Start{Argv: []string{"a"}}}},
		&pb.ProcessInput{},
	}
}

// split cuts b into buffers at random.
func split(b []byte, rnd *rand.Rand) mem.BufferSlice {
	var out mem.BufferSlice
	for len(b) > 0 {
		n := 1 + rnd.IntN(len(b))
		if rnd.IntN(3) == 0 {
			n = min(n, 1+rnd.IntN(3))
		}
		out = append(out, mem.Copy(b[:n], Pool()))
		b = b[n:]
	}
	return out
}

// lifted takes the payload out of a message.
func lifted(m proto.Message) *Message {
	out := &Message{Header: proto.Clone(m)}
	out.lift()
	return out
}

func TestCodecIsProtobuf(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int{0, 1, 127, 128, 5000, 16384, InteractiveChunk, BulkChunk} {
		data := bytes.Repeat([]byte{0xa5, 0, 0xff}, size/3+1)[:size]
		for _, want := range messages(data) {
			// Ours to stock.
			b, err := Codec{}.Marshal(lifted(want))
			if err != nil {
				t.Fatal(err)
			}
			got := want.ProtoReflect().New().Interface()
			if err := proto.Unmarshal(b.Materialize(), got); err != nil || !proto.Equal(got, want) {
				t.Fatalf("%T of %d bytes, to the stock codec: %v", want, size, err)
			}
			b.Free()
			// Stock to ours.
			raw, err := proto.Marshal(want)
			if err != nil {
				t.Fatal(err)
			}
			for range 8 {
				m := &Message{Header: want.ProtoReflect().New().Interface()}
				in := split(raw, rnd)
				if err := (Codec{}).Unmarshal(in, m); err != nil {
					t.Fatalf("%T of %d bytes, from the stock codec: %v", want, size, err)
				}
				in.Free() // as the transport does
				if !proto.Equal(whole(m), want) {
					t.Fatalf("%T of %d bytes, from the stock codec: got %v", want, size, m.Header)
				}
				m.Free()
			}
		}
	}
}

func TestCodecKeepsPayloadWhereItIs(t *testing.T) {
	data := make([]byte, 1<<20)
	b, err := proto.Marshal(&pb.Chunk{Data: data, Offset: 5})
	if err != nil {
		t.Fatal(err)
	}
	in := mem.BufferSlice{mem.SliceBuffer(b)}
	m := &Message{Header: &pb.Chunk{}}
	allocated := testing.AllocsPerRun(100, func() {
		if err := (Codec{}).Unmarshal(in, m); err != nil {
			t.Fatal(err)
		}
	})
	if &m.Data[0].ReadOnlyData()[0] != &b[len(b)-len(data)-2] && m.Len() != len(data) {
		t.Error("the payload was copied")
	}
	if allocated > 4 {
		t.Errorf("%v allocations for a message", allocated)
	}
}

func TestOrdinaryMessagesGoThrough(t *testing.T) {
	want := &pb.StatRequest{SandboxId: "s", Paths: []string{"a", "\xff"}}
	b, err := Codec{}.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got pb.StatRequest
	if err := (Codec{}).Unmarshal(b, &got); err != nil || !proto.Equal(want, &got) {
		t.Errorf("got %v, %v", &got, err)
	}
}

// Whatever bytes arrive, however they are cut, our decoder says what the protobuf library says.
func FuzzUnmarshal(f *testing.F) {
	for _, m := range messages([]byte("payload")) {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, uint64(1))
	}
	twice := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), []byte("a"))
	twice = protowire.AppendBytes(protowire.AppendTag(twice, 1, protowire.BytesType), []byte("bc"))
	f.Add(twice, uint64(3))
	f.Add([]byte("0\xff\x00"), uint64(18))
	f.Add([]byte{0x0b, 0x0c}, uint64(0))                                                 // a group
	f.Add([]byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}, uint64(0)) // a huge length
	f.Add([]byte{0x12, 0x00, 0x12, 0x03, 0x0a, 0x01, 0x61}, uint64(2))
	f.Fuzz(func(t *testing.T, b []byte, seed uint64) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		for _, header := range []proto.Message{
			&pb.Chunk{}, &pb.FileChunk{}, &pb.WriteRequest{}, &pb.ImportRequest{}, &pb.Frame{}, &pb.ProcessEvent{}, &pb.ProcessInput{},
		} {
			want := header.ProtoReflect().New().Interface()
			wantErr := proto.Unmarshal(b, want)
			m := &Message{Header: header}
			err := (Codec{}).Unmarshal(split(b, rnd), m)
			if (err == nil) != (wantErr == nil) {
				t.Fatalf("%T: %v, the library says %v", header, err, wantErr)
			}
			if err != nil {
				continue
			}
			if got := known(whole(m)); !proto.Equal(got, known(want)) {
				t.Fatalf("%T: %v, the library says %v", header, got, want)
			}
		}
	})
}

// known drops unknown fields: their numbers may be written in more than one way.
func known(m proto.Message) proto.Message {
	m.ProtoReflect().SetUnknown(nil)
	if e, ok := m.(*pb.ProcessEvent); ok && e.GetOutput() != nil {
		e.GetOutput().ProtoReflect().SetUnknown(nil)
	}
	return m
}
