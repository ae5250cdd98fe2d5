// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"encoding/binary"

	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "github.com/berth-dev/berth/sdk/proto/berth/driver/v1"
)

// Message is a protocol message apart from its payload.
//
// Header is one of *pb.Chunk, *pb.FileChunk, *pb.WriteRequest, *pb.ImportRequest and *pb.Frame, whose field data is left
// empty; a *pb.ProcessEvent, where an Output's data is left empty; or a *pb.ProcessInput, where stdin is left empty.
type Message struct {
	Header proto.Message
	Data   mem.BufferSlice
}

// Free gives the payload's buffers back. It may be called again.
func (m *Message) Free() {
	m.Data.Free()
	m.Data = nil
}

// Len is the size of the payload.
func (m *Message) Len() int { return m.Data.Len() }

// Fields of the protocol that lead to a payload.
const (
	fieldData   protowire.Number = 1 // of all chunk-like messages and of Output
	fieldOutput protowire.Number = 2 // of ProcessEvent
	fieldStdin  protowire.Number = 3 // of ProcessInput
)

// Codec is the protobuf codec for gRPC. The zero value is ready.
type Codec struct{}

var _ encoding.CodecV2 = Codec{}

// Name is that of the stock codec: both sides may use either.
func (Codec) Name() string { return protocodec.Name }

func stock() encoding.CodecV2 { return encoding.GetCodecV2(protocodec.Name) }

// Marshal encodes a protobuf message, or a [Message], whose Data it takes over.
func (Codec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(*Message)
	if !ok {
		return stock().Marshal(v)
	}
	var head []byte
	switch h := m.Header.(type) {
	case *pb.ProcessEvent:
		out, ok := h.GetEvent().(*pb.ProcessEvent_Output)
		if !ok {
			return stock().Marshal(h)
		}
		n := m.Data.Len()
		inner := proto.Size(out.Output)
		if n > 0 {
			inner += protowire.SizeTag(fieldData) + protowire.SizeBytes(n)
		}
		head = protowire.AppendTag(make([]byte, 0, 48), fieldOutput, protowire.BytesType)
		head = protowire.AppendVarint(head, uint64(inner))
		var err error
		if head, err = (proto.MarshalOptions{}).MarshalAppend(head, out.Output); err != nil {
			return nil, err
		}
		head = appendPayloadHead(head, fieldData, n, false)
	case *pb.ProcessInput:
		if _, ok := h.GetInput().(*pb.ProcessInput_Stdin); !ok {
			return stock().Marshal(h)
		}
		head = appendPayloadHead(make([]byte, 0, 16), fieldStdin, m.Data.Len(), true)
	default:
		var err error
		if head, err = (proto.MarshalOptions{}).MarshalAppend(make([]byte, 0, 32), h); err != nil {
			return nil, err
		}
		head = appendPayloadHead(head, fieldData, m.Data.Len(), false)
	}
	out := make(mem.BufferSlice, 0, 1+len(m.Data))
	if len(head) > 0 {
		out = append(out, mem.SliceBuffer(head))
	}
	out = append(out, m.Data...)
	m.Data = nil
	return out, nil
}

// appendPayloadHead leaves an empty payload out unless its mere presence says something.
func appendPayloadHead(b []byte, field protowire.Number, n int, present bool) []byte {
	if n == 0 && !present {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.BytesType), uint64(n))
}

// Unmarshal decodes a protobuf message, or a [Message] with the Header that it has.
func (Codec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(*Message)
	if !ok {
		return stock().Unmarshal(data, v)
	}
	m.Free()
	if m.split(data) {
		return nil
	}
	m.Free()
	// Unusual, or not well-formed: the protobuf library knows what to do.
	if err := stock().Unmarshal(data, m.Header); err != nil {
		return err
	}
	m.lift()
	return nil
}

// split takes the payload out of data by reference. It answers false for anything but the usual form of a message: the
// payload at most once, in a message whose oneof is set once.
func (m *Message) split(data mem.BufferSlice) bool {
	c := cursor{rest: data}
	switch h := m.Header.(type) {
	case *pb.ProcessEvent:
		if n, ok := c.lead(fieldOutput); !ok || n != c.remaining() {
			return false
		}
		out := new(pb.Output)
		if !m.fields(&c, out) {
			return false
		}
		h.Reset()
		h.Event = &pb.ProcessEvent_Output{Output: out}
		return true
	case *pb.ProcessInput:
		n, ok := c.lead(fieldStdin)
		if !ok || n != c.remaining() {
			return false
		}
		m.Data = c.take(n)
		h.Reset()
		h.Input = &pb.ProcessInput_Stdin{}
		return true
	default:
		return m.fields(&c, h)
	}
}

// fields walks one message: its payload stays where it is, the rest goes through the protobuf library.
func (m *Message) fields(c *cursor, into proto.Message) bool {
	var room [64]byte
	rest := room[:0]
	seen := false
	for c.remaining() > 0 {
		tag, ok := c.varint()
		if !ok {
			return false
		}
		num, typ := protowire.DecodeTag(tag)
		if num == fieldData {
			n, ok := c.varint()
			if typ != protowire.BytesType || !ok || seen || n > uint64(c.remaining()) {
				return false
			}
			seen = true
			m.Data = c.take(int(n))
			continue
		}
		rest = protowire.AppendVarint(rest, tag)
		if rest, ok = c.appendValue(rest, typ); !ok {
			return false
		}
	}
	return proto.Unmarshal(rest, into) == nil
}

// lift moves a payload that the protobuf library decoded to where it belongs.
func (m *Message) lift() {
	var data []byte
	switch h := m.Header.(type) {
	case *pb.Chunk:
		data, h.Data = h.Data, nil
	case *pb.FileChunk:
		data, h.Data = h.Data, nil
	case *pb.WriteRequest:
		data, h.Data = h.Data, nil
	case *pb.ImportRequest:
		data, h.Data = h.Data, nil
	case *pb.Frame:
		data, h.Data = h.Data, nil
	case *pb.ProcessEvent:
		if out := h.GetOutput(); out != nil {
			data, out.Data = out.Data, nil
		}
	case *pb.ProcessInput:
		if in, ok := h.GetInput().(*pb.ProcessInput_Stdin); ok {
			data, in.Stdin = in.Stdin, nil
		}
	}
	if len(data) > 0 {
		m.Data = mem.BufferSlice{mem.SliceBuffer(data)}
	}
}

// cursor walks over the bytes of several buffers.
type cursor struct {
	rest mem.BufferSlice
	pos  int // in rest[0]
}

func (c *cursor) remaining() int { return c.rest.Len() - c.pos }

// current drops buffers that are used up and gives what is left of the next one.
func (c *cursor) current() []byte {
	for len(c.rest) > 0 {
		if b := c.rest[0].ReadOnlyData(); c.pos < len(b) {
			return b[c.pos:]
		}
		c.rest, c.pos = c.rest[1:], 0
	}
	return nil
}

func (c *cursor) varint() (uint64, bool) {
	if b := c.current(); len(b) >= binary.MaxVarintLen64 {
		v, n := protowire.ConsumeVarint(b)
		if n < 0 {
			return 0, false
		}
		c.pos += n
		return v, true
	}
	var buf [binary.MaxVarintLen64]byte
	for i := range buf {
		b := c.current()
		if len(b) == 0 {
			return 0, false
		}
		buf[i] = b[0]
		c.pos++
		if b[0] < 0x80 {
			v, n := protowire.ConsumeVarint(buf[:i+1])
			return v, n == i+1
		}
	}
	return 0, false
}

// lead reads the head of one field of bytes.
func (c *cursor) lead(field protowire.Number) (int, bool) {
	tag, ok := c.varint()
	if !ok {
		return 0, false
	}
	num, typ := protowire.DecodeTag(tag)
	if num != field || typ != protowire.BytesType {
		return 0, false
	}
	n, ok := c.varint()
	return int(n), ok && n <= uint64(c.remaining())
}

// take refers to the next n bytes. Precondition: there are as many.
func (c *cursor) take(n int) mem.BufferSlice {
	if n == 0 {
		return nil
	}
	out := make(mem.BufferSlice, 0, len(c.rest))
	for n > 0 {
		b := c.current()
		k := min(n, len(b))
		out = append(out, c.rest[0].Slice(c.pos, c.pos+k))
		c.pos += k
		n -= k
	}
	return out
}

// appendValue copies the value of a field that is not the payload.
func (c *cursor) appendValue(out []byte, typ protowire.Type) ([]byte, bool) {
	var n int
	switch typ {
	case protowire.VarintType:
		v, ok := c.varint()
		return protowire.AppendVarint(out, v), ok
	case protowire.Fixed32Type:
		n = 4
	case protowire.Fixed64Type:
		n = 8
	case protowire.BytesType:
		v, ok := c.varint()
		if !ok || v > uint64(c.remaining()) {
			return out, false
		}
		out = protowire.AppendVarint(out, v)
		n = int(v)
	case protowire.StartGroupType, protowire.EndGroupType:
		return out, false
	default:
		return out, false
	}
	if n > c.remaining() {
		return out, false
	}
	for n > 0 {
		b := c.current()
		k := min(n, len(b))
		out = append(out, b[:k]...)
		c.pos += k
		n -= k
	}
	return out, true
}
