// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
)

// Digest is the key of the workspace: the same key is the same contents. Host files count by identity, size and times
// of modification and change, not by their bytes.
func (c *Contents) Digest() string {
	c.digestOnce.Do(func() { c.digest = c.makeDigest() })
	return c.digest
}

func (c *Contents) makeDigest() string {
	d := digester{h: sha256.New()}
	d.text("berth workspace 2")
	for i := range c.Members {
		m := &c.Members[i]
		if len(d.buf) >= digestBuffer {
			d.flush()
		}
		d.text(m.Path)
		d.number(uint64(m.Type)<<32 | uint64(m.Mode))
		d.text(m.Owner)
		d.text(m.Group)
		d.text(m.Target)
		d.text(m.Source)
		if m.Source != "" {
			d.number(m.ID.Dev)
			d.number(m.ID.Ino)
			d.number(uint64(m.ID.Size))
			d.number(uint64(m.ID.MTimeNS))
			d.number(uint64(m.ID.CTimeNS))
		} else {
			sum := m.sum()
			d.buf = append(d.buf, sum[:]...)
		}
	}
	d.flush()
	return hex.EncodeToString(d.h.Sum(nil))
}

// sum is the checksum of the content.
func (m *Member) sum() [sha256.Size]byte {
	if e := m.Entry; e != nil && e.File != nil && e.File.Expr == nil && e.Path == m.Path {
		return e.File.Sum()
	}
	return sha256.Sum256(m.Content)
}

// digestBuffer is how much is hashed at once.
const digestBuffer = 16 << 10

type digester struct {
	h   hash.Hash
	buf []byte
}

func (d *digester) flush() {
	d.h.Write(d.buf)
	d.buf = d.buf[:0]
}

func (d *digester) number(n uint64) { d.buf = binary.LittleEndian.AppendUint64(d.buf, n) }

func (d *digester) text(s string) {
	d.number(uint64(len(s)))
	d.buf = append(d.buf, s...)
}
