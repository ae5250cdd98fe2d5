// SPDX-License-Identifier: Apache-2.0

package link

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"sync"

	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/frame"
)

const (
	nonceSize = 32
	macSize   = sha256.Size
	idSize    = 16

	helloSize     = 2 + 2 + idSize + 1 + 4 + nonceSize
	challengeSize = nonceSize + 2 + nonceSize + macSize
	proofSize     = macSize
	welcomeSize   = nonceSize + 4 + 1 // and the guest's own words
)

// The flags of a hello, and flagPlain of a welcome.
const (
	flagResume = 1
	flagFiles  = 2
	flagPlain  = 4
)

// hello opens a connection. With resume the host goes on with conversation id and has everything before expect.
type hello struct {
	min, max uint16
	id       [idSize]byte
	resume   bool
	files    bool // the host can take files
	plain    bool // its end is a socket within this machine: payloads need no checksum if the guest's is one too
	expect   uint32
	nonce    [nonceSize]byte
}

func (h *hello) marshal() []byte {
	b := make([]byte, 0, helloSize)
	b = binary.BigEndian.AppendUint16(b, h.min)
	b = binary.BigEndian.AppendUint16(b, h.max)
	b = append(b, h.id[:]...)
	var flags byte
	if h.resume {
		flags |= flagResume
	}
	if h.files {
		flags |= flagFiles
	}
	if h.plain {
		flags |= flagPlain
	}
	b = append(b, flags)
	b = binary.BigEndian.AppendUint32(b, h.expect)
	return append(b, h.nonce[:]...)
}

// parseHello takes longer ones too: a later version may add to the end.
func parseHello(b []byte) (*hello, bool) {
	if len(b) < helloSize {
		return nil, false
	}
	h := &hello{min: binary.BigEndian.Uint16(b), max: binary.BigEndian.Uint16(b[2:])}
	copy(h.id[:], b[4:])
	b = b[4+idSize:]
	h.resume, h.files, h.plain = b[0]&flagResume != 0, b[0]&flagFiles != 0, b[0]&flagPlain != 0
	h.expect = binary.BigEndian.Uint32(b[1:])
	copy(h.nonce[:], b[5:])
	return h, true
}

// The labels keep a proof from being used as another.
const (
	labelGuest = "berth guest 1"
	labelHost  = "berth host 1"
	labelSeed  = "berth seed 1"
)

func mac(key []byte, label string, parts ...[]byte) []byte {
	h := hmac.New(sha256.New, key)
	io.WriteString(h, label) //nolint:errcheck // a hash takes everything
	for _, p := range parts {
		h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(p))))
		h.Write(p)
	}
	return h.Sum(nil)
}

// seedOf is the conversation's checksum seed.
func seedOf(key []byte, id [idSize]byte) uint32 {
	return binary.BigEndian.Uint32(mac(key, labelSeed, id[:]))
}

// newChallenge answers hello (as it was received) with the guest's nonce and proof.
func newChallenge(key, received []byte, nonce [nonceSize]byte, version uint16) []byte {
	b := make([]byte, 0, challengeSize)
	b = append(b, nonce[:]...)
	b = binary.BigEndian.AppendUint16(b, version)
	var mine [nonceSize]byte
	rand.Read(mine[:]) // never fails
	b = append(b, mine[:]...)
	return append(b, mac(key, labelGuest, received, b)...)
}

// proof answers a challenge, or is nil when the guest does not know the key.
func proof(key, hello, challenge []byte) []byte {
	said, sum := challenge[:challengeSize-macSize], challenge[challengeSize-macSize:challengeSize]
	if !hmac.Equal(sum, mac(key, labelGuest, hello, said)) {
		return nil
	}
	return mac(key, labelHost, hello, challenge)
}

// refusal is why a guest does not serve a host.
type refusal struct {
	Code    errs.Code `json:"code"`
	Message string    `json:"message"`
}

// wire is one connection's writing side: handshake and conversation share it.
type wire struct {
	rw io.ReadWriteCloser
	mu sync.Mutex // held for the whole of a frame or batch
}

// newWire takes over a stream. As much as the kernel allows may be under way: each time that a writer has to wait costs
// two switches.
func newWire(rw io.ReadWriteCloser) *wire {
	if s, ok := rw.(interface{ SetWriteBuffer(bytes int) error }); ok {
		s.SetWriteBuffer(writeBuffer) //nolint:errcheck // it stays as it was
	}
	return &wire{rw: rw}
}

// send writes a frame of a handshake.
func (w *wire) send(f frame.Frame) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err := w.rw.Write(frame.Append(nil, f, frame.Check{}))
	return err
}

// local tells whether this end is a unix socket.
func local(rw io.ReadWriteCloser) bool {
	_, ok := rw.(*net.UnixConn)
	return ok
}

// refuse tells the host why, and gives the reason.
func (w *wire) refuse(nonce [nonceSize]byte, why *errs.Error) error {
	b, err := json.Marshal(refusal{why.Code, why.Message})
	if err != nil {
		return err
	}
	if err := w.send(frame.Frame{Type: typeRefused, Payload: append(nonce[:], b...)}); err != nil {
		return err
	}
	return why
}

// greeting is what a guest says at the end of the handshake: what it has received of this conversation, whether payloads go
// without a checksum, and what it is.
type greeting struct {
	got   uint32
	plain bool
	info  []byte
}

func (g *greeting) marshal(nonce [nonceSize]byte) []byte {
	b := binary.BigEndian.AppendUint32(append([]byte(nil), nonce[:]...), g.got)
	var flags byte
	if g.plain {
		flags |= flagPlain
	}
	return append(append(b, flags), g.info...)
}

func parseGreeting(b []byte) *greeting {
	return &greeting{
		got: binary.BigEndian.Uint32(b[nonceSize:]), plain: b[nonceSize+4]&flagPlain != 0, info: append([]byte(nil), b[welcomeSize:]...),
	}
}

// greet is the host's side of the handshake. It skips what an earlier connection left in a shared stream.
func greet(w *wire, dec *frame.Decoder, key []byte, h *hello) (*greeting, error) {
	opening := h.marshal()
	if err := w.send(frame.Frame{Type: typeHello, Payload: opening}); err != nil {
		return nil, err
	}
	proved := false
	for {
		f, err := dec.Next()
		if err != nil {
			return nil, err
		}
		p := f.Payload
		if f.Type >= frame.FirstSealed || len(p) < nonceSize || [nonceSize]byte(p[:nonceSize]) != h.nonce {
			continue
		}
		switch f.Type { //nolint:exhaustive // FirstSealed is a bound
		case typeChallenge:
			if len(p) < challengeSize {
				continue
			}
			answer := proof(key, opening, p[:challengeSize])
			if answer == nil {
				return nil, errs.New(errs.AuthFailed, "the guest does not know the session's key")
			}
			if err := w.send(frame.Frame{Type: typeProof, Payload: answer}); err != nil {
				return nil, err
			}
			proved = true
		case typeWelcome:
			if proved && len(p) >= welcomeSize {
				return parseGreeting(p), nil
			}
		case typeRefused:
			var r refusal
			if err := json.Unmarshal(p[nonceSize:], &r); err != nil || r.Code == "" {
				r = refusal{errs.ExecTransport, "the guest refused the connection"}
			}
			return nil, errs.New(r.Code, "%s", r.Message)
		}
	}
}
