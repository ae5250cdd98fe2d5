// SPDX-License-Identifier: Apache-2.0

// Package chunks keeps pieces of content by their SHA-256, each once, in an object store.
//
// Chunks are at most [MaxChunk] bytes. Small ones share a block of up to that size, blocks are compressed with zstd, and
// some sixteen MiB of blocks make a pack, which is one object: ten thousand small files are one object and one sync. A pack
// ends in a footer that lists its chunks; the pack's name is the footer's hash. Nothing else says where a chunk is, so that
// there is nothing that could disagree.
//
// A chunk is checked against its hash whenever it is read. What does not hold is a [*Corrupt] error, which says what and
// where. The package does not know which chunks belong together; package index does.
package chunks

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"

	"github.com/berth-dev/berth/core/snapshot/objects"
)

const (
	// MaxChunk is the size of a chunk of a large file, and of a block. A change inside a file costs one chunk; a smaller
	// one would cost more memory and time for each byte. Chunks begin at multiples of it: what large files in workspaces
	// do, which is to grow at the end, to change in pages or to be replaced, keeps the others where they are, and finding
	// places by content costs as much as hashing does.
	MaxChunk = 256 << 10
	// packSize is when a pack is full.
	packSize = 16 << 20

	prefix = "packs/"
)

// Hash is the SHA-256 of a chunk.
type Hash [sha256.Size]byte

// Sum hashes a chunk.
func Sum(b []byte) Hash { return sha256.Sum256(b) }

func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// MarshalText gives the hash in hexadecimal digits.
func (h Hash) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, h[:]), nil }

// UnmarshalText reads hexadecimal digits.
func (h *Hash) UnmarshalText(b []byte) error {
	if len(b) != hex.EncodedLen(len(h)) {
		return fmt.Errorf("%q is no hash", b)
	}
	_, err := hex.Decode(h[:], b)
	return err
}

// Corrupt says what in the store is not as it was written.
type Corrupt struct {
	Object string
	Chunk  *Hash // nil = the object as a whole
	Err    error
}

// Error names the object and the chunk.
func (c *Corrupt) Error() string {
	if c.Chunk != nil {
		return fmt.Sprintf("chunk %s in object %s is damaged: %v", c.Chunk, c.Object, c.Err)
	}
	return fmt.Sprintf("object %s is damaged: %v", c.Object, c.Err)
}

// Unwrap gives the cause.
func (c *Corrupt) Unwrap() error { return c.Err }

// Missing is a chunk that no pack holds.
type Missing struct {
	Chunk Hash
	Where string
	Err   error // of the packs that cannot be read and might hold it; nil = there are none
}

// Error names the chunk.
func (m *Missing) Error() string {
	if m.Err != nil {
		return fmt.Sprintf("chunk %s is not in %s, or in what cannot be read there: %v", m.Chunk, m.Where, m.Err)
	}
	return fmt.Sprintf("chunk %s is not in %s", m.Chunk, m.Where)
}

// Unwrap gives what keeps packs from being read.
func (m *Missing) Unwrap() error { return m.Err }

// Store is the chunks in an object store.
type Store struct {
	objs objects.Store

	mu     sync.RWMutex
	packs  []*pack        // guarded by mu
	names  map[string]int // guarded by mu; index in packs
	bad    []error        // guarded by mu; of packs whose footers cannot be read
	places map[Hash]place // guarded by mu
	recent blockCache
}

// pack is an object with chunks.
type pack struct {
	name   string
	size   int64
	blocks []block
	chunks int
}

// block is a stretch of a pack that is compressed as one.
type block struct {
	off         int64
	stored, raw uint32
	codec       byte
}

// place is where a chunk is.
type place struct{ pack, block, off, size uint32 }

// Open gives the chunks in a store. [Store.Load] finds out which there are.
func Open(objs objects.Store) *Store {
	return &Store{objs: objs, names: map[string]int{}, places: map[Hash]place{}}
}

// Load reads the footers of the packs that are not known yet. One that is damaged is passed over: what needs it will miss
// its chunks, see [Missing], and the rest can be used.
func (s *Store) Load(ctx context.Context) error {
	var fresh []objects.Info
	s.mu.RLock()
	for info, err := range s.objs.List(ctx, prefix) {
		if err != nil {
			s.mu.RUnlock()
			return err
		}
		if _, known := s.names[info.Name]; !known {
			fresh = append(fresh, info)
		}
	}
	s.mu.RUnlock()
	for _, info := range fresh {
		p, chunks, err := readFooter(ctx, s.objs, info)
		if _, damaged := errors.AsType[*Corrupt](err); damaged {
			s.mu.Lock()
			s.names[info.Name] = -1
			s.bad = append(s.bad, err)
			s.mu.Unlock()
			continue
		}
		if err != nil {
			return err
		}
		s.add(p, chunks)
	}
	return nil
}

// add makes the chunks of a pack known.
func (s *Store) add(p *pack, chunks []located) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.names[p.name]; known {
		return
	}
	n := uint32(len(s.packs))
	s.names[p.name] = int(n)
	s.packs = append(s.packs, p)
	p.chunks = len(chunks)
	for _, c := range chunks {
		if _, known := s.places[c.hash]; !known {
			s.places[c.hash] = place{n, c.block, c.off, c.size}
		}
	}
}

// find says where a chunk is.
func (s *Store) find(h Hash) (p *pack, at place, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if at, ok = s.places[h]; ok {
		p = s.packs[at.pack]
	}
	return p, at, ok
}

func (s *Store) missing(h Hash) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return &Missing{h, s.objs.Where(), errors.Join(s.bad...)}
}

// Has reports whether the chunk is there.
func (s *Store) Has(h Hash) bool {
	_, _, ok := s.find(h)
	return ok
}

// Size is how many bytes all packs have.
func (s *Store) Size() (n int64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, p := range s.packs {
		n += p.size
	}
	return n
}
