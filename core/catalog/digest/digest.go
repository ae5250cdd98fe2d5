// SPDX-License-Identifier: Apache-2.0

// Package digest gives the SHA-256 of files, once per file identity.
package digest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"sync"
)

// Cache remembers digests by what tells one state of a file from another: device, inode, size, and the times of
// content and status. The zero Cache is ready. It may be used from several goroutines.
type Cache struct {
	mu   sync.Mutex
	sums map[identity]string // guarded by mu
}

// Sum gives the digest of an open file in hexadecimal. It reads the descriptor and not the path, so that what is
// executed from the same descriptor is what was hashed.
func (c *Cache) Sum(f *os.File) (string, error) {
	before, err := identify(f)
	if err != nil {
		return "", err
	}
	c.mu.Lock()
	sum, ok := c.sums[before]
	c.mu.Unlock()
	if ok {
		return sum, nil
	}
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(f, 0, before.size)); err != nil {
		return "", err
	}
	after, err := identify(f)
	if err != nil {
		return "", err
	}
	if after != before {
		return "", fmt.Errorf("%s changed while it was read", f.Name())
	}
	sum = hex.EncodeToString(h.Sum(nil))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sums == nil {
		c.sums = map[identity]string{}
	}
	c.sums[before] = sum
	return sum, nil
}

// SumPath gives the digest of the file at path.
func (c *Cache) SumPath(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close() // it was only read
	return c.Sum(f)
}

type identity struct {
	dev, ino     uint64
	size         int64
	mtime, ctime int64
}
