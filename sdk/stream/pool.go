// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"sync"

	"google.golang.org/grpc/mem"
)

// slack lets a payload of a round size and its header share a buffer of the round size's tier.
const slack = 128

// tierSizes are close enough together that no buffer is much larger than its use, unlike those of grpc's own pool, which
// jump from 32 KiB to 1 MiB and are cleared on every use.
var tierSizes = [...]int{4 << 10, 16 << 10, 32 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20}

type bufferPool struct {
	tiers [len(tierSizes)]sync.Pool
}

var shared bufferPool

// Pool is the pool of transport buffers of this process. Buffers come with whatever they held before.
func Pool() mem.BufferPool { return &shared }

// Get gives a buffer of the wanted length.
func (p *bufferPool) Get(length int) *[]byte {
	for i, size := range tierSizes {
		if length > size+slack {
			continue
		}
		if b, ok := p.tiers[i].Get().(*[]byte); ok {
			*b = (*b)[:length]
			return b
		}
		b := make([]byte, length, size+slack)
		return &b
	}
	b := make([]byte, length)
	return &b
}

// Put takes a buffer back. One that is not of a tier's exact size came from elsewhere and is left to the collector.
func (p *bufferPool) Put(b *[]byte) {
	for i, size := range tierSizes {
		if cap(*b) == size+slack {
			*b = (*b)[:cap(*b)]
			p.tiers[i].Put(b)
			return
		}
	}
}
