// SPDX-License-Identifier: Apache-2.0

// Package objects keeps immutable, named pieces of bytes. It is all that a snapshot needs of storage, and small enough
// for a folder and for any remote one. It knows nothing of what the objects hold.
package objects

import (
	"context"
	"fmt"
	"io"
	"iter"
	"regexp"
)

// Info describes an object.
type Info struct {
	Name string
	Size int64
}

// Store keeps objects. An object is complete under its name or it is not there, and it never changes. Names are relative
// paths of plain characters, see [CheckName]. Every method may be called from several goroutines and processes.
type Store interface {
	// Put stores an object, durably, unless there is one of that name; created says which.
	Put(ctx context.Context, name string, data []byte) (created bool, err error)
	// Open reads n bytes from off; a negative n reads to the end. An object that is not there is fs.ErrNotExist, and a
	// stream that ends early io.ErrUnexpectedEOF when it is read.
	Open(ctx context.Context, name string, off, n int64) (io.ReadCloser, error)
	// List gives the objects whose names begin with prefix, in any order.
	List(ctx context.Context, prefix string) iter.Seq2[Info, error]
	// Delete removes an object. One that is not there is no error.
	Delete(ctx context.Context, name string) error
	// Where says for people what the store is.
	Where() string
}

// Locker is a store that can keep its users apart: any number of them share it, or one has it for itself. A lock ends
// with the process that holds it. A store without it must not be swept while others may write.
type Locker interface {
	// Lock waits for the lock until ctx ends. The returned function gives it back.
	Lock(ctx context.Context, exclusive bool) (unlock func(), err error)
}

var goodName = regexp.MustCompile(`^[a-z0-9][a-zA-Z0-9._@-]*(/[a-zA-Z0-9][a-zA-Z0-9._@-]*)*$`)

// CheckName refuses names that no store needs to understand.
func CheckName(name string) error {
	if len(name) > 200 || !goodName.MatchString(name) {
		return fmt.Errorf("%q cannot be the name of an object", name)
	}
	return nil
}

// Read gives a whole object, or a part of it as [Store.Open] does; more than most bytes are an error.
func Read(ctx context.Context, s Store, name string, off, n, most int64) (_ []byte, err error) {
	r, err := s.Open(ctx, name, off, n)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }() // it was only read
	b, err := io.ReadAll(io.LimitReader(r, most+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", name, err)
	case int64(len(b)) > most:
		return nil, fmt.Errorf("%s has more than %d bytes", name, most)
	}
	return b, nil
}
