// SPDX-License-Identifier: Apache-2.0

package runlog

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/run"
)

// SyncEvery bounds how much working time a power failure can undo.
const SyncEvery = time.Second

const (
	logName   = "log.jsonl"
	itemsName = "items.jsonl"
)

// Log is the log of one run, open for appending. It is for one goroutine.
type Log struct {
	dir   string
	log   *os.File
	items *os.File

	seq      uint64
	sum      digest
	lastSync time.Time
	fresh    bool  // the directory does not have the files on stable storage yet
	logSize  int64 // in the file

	index   map[digest]place
	stored  int64  // length of items.jsonl with what is buffered
	buf     []byte // reused
	pending []byte // items that are not written yet: the end of stored

	cut int64 // bytes that Open cut off
	err error // a failed write; the file's end is unknown after it
}

type place struct {
	off  int64
	size int64
}

// Create makes a new log in a directory, which it makes too. A log that is there already is an error.
func Create(dir string) (*Log, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create run log: %w", err)
	}
	l := &Log{dir: dir, index: map[digest]place{}}
	if err := l.openFiles(os.O_CREATE | os.O_EXCL); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("create run log: %s holds a run already: %w", dir, err)
		}
		return nil, fmt.Errorf("create run log: %w", err)
	}
	l.fresh = true
	return l, nil
}

// Open opens a log to go on with it. It verifies every record and cuts off a torn tail, see [Log.Cut].
func Open(dir string) (*Log, error) {
	l := &Log{dir: dir, index: map[digest]place{}}
	if err := l.openFiles(0); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("open run log: there is no run in %s: %w", dir, err)
		}
		return nil, fmt.Errorf("open run log: %w", err)
	}
	if err := l.recover(); err != nil {
		return nil, errors.Join(fmt.Errorf("open run log %s: %w", dir, err), l.Close())
	}
	return l, nil
}

func (l *Log) openFiles(flag int) (err error) {
	flag |= os.O_RDWR | os.O_APPEND
	if l.log, err = os.OpenFile(filepath.Join(l.dir, logName), flag, 0o600); err != nil {
		return err
	}
	if err := lock(l.log); err != nil {
		return errors.Join(fmt.Errorf("the run is in use by another process: %w", err), l.log.Close())
	}
	if l.items, err = os.OpenFile(filepath.Join(l.dir, itemsName), flag, 0o600); err != nil {
		return errors.Join(err, l.log.Close())
	}
	return nil
}

// Cut is how many bytes of a torn tail [Open] cut off.
func (l *Log) Cut() int64 { return l.cut }

// Put keeps an item; it is on disk with the next [Log.Append]. The bytes must be one line.
func (l *Log) Put(it model.Item) (run.Ref, error) {
	if l.err != nil {
		return run.Ref{}, l.err
	}
	if bytes.IndexByte(it.Raw, '\n') >= 0 {
		return run.Ref{}, fmt.Errorf("run log: an item of type %q has a line break", it.Type)
	}
	sum := digest(sha256.Sum256(it.Raw))
	size := int64(len(it.Raw))
	ref := run.Ref{Hash: hex.EncodeToString(sum[:]), Size: size, Kind: it.Type}
	if _, ok := l.index[sum]; ok {
		return ref, nil
	}
	l.index[sum] = place{off: l.stored, size: size}
	l.pending = append(append(l.pending, it.Raw...), '\n')
	l.stored += size + 1
	return ref, nil
}

// Get gives an item back. The result is the caller's.
func (l *Log) Get(ref run.Ref) (model.Item, error) {
	var sum digest
	if n, err := hex.Decode(sum[:], []byte(ref.Hash)); err != nil || n != len(sum) {
		return model.Item{}, fmt.Errorf("run log: %q is no reference to an item", ref.Hash)
	}
	p, ok := l.index[sum]
	if !ok {
		return model.Item{}, fmt.Errorf("run log: item %s (%s, %d bytes) is not in %s", ref.Hash, ref.Kind, ref.Size, itemsName)
	}
	raw := make([]byte, p.size)
	if written := l.stored - int64(len(l.pending)); p.off >= written {
		copy(raw, l.pending[p.off-written:])
	} else if _, err := l.items.ReadAt(raw, p.off); err != nil {
		return model.Item{}, fmt.Errorf("run log: read item %s: %w", ref.Hash, err)
	}
	return model.Item{Type: ref.Kind, Raw: raw}, nil
}

// Append writes the items that were put, then the entries: all of them or, after an error, none that a later [Open]
// would not know to cut. With sync they are on stable storage when it returns.
func (l *Log) Append(sync bool, entries ...Entry) error {
	if l.err != nil {
		return l.err
	}
	if err := l.append(sync, entries); err != nil {
		l.err = fmt.Errorf("run log %s: %w", l.dir, err)
	}
	return l.err
}

func (l *Log) append(sync bool, entries []Entry) error {
	if len(l.pending) > 0 {
		if _, err := l.items.Write(l.pending); err != nil {
			return err
		}
		l.pending = l.pending[:0]
	}
	buf := l.buf[:0]
	seq, sum := l.seq, l.sum
	if seq == 0 && len(entries) > 0 {
		seq++
		l.lastSync = entries[0].Time
		buf, sum = appendRecord(buf, sum, seq, 0, Entry{Type: headerType, Time: entries[0].Time, Data: []byte(headerData)})
	}
	for _, e := range entries {
		if strings.Trim(e.Type, "abcdefghijklmnopqrstuvwxyz_") != "" || e.Type == "" || bytes.IndexByte(e.Data, '\n') >= 0 {
			return fmt.Errorf("entry of type %q: a type is lower-case letters, and the data is one line", e.Type)
		}
		seq++
		buf, sum = appendRecord(buf, sum, seq, l.stored, e)
		if e.Time.Sub(l.lastSync) >= SyncEvery {
			sync, l.lastSync = true, e.Time
		}
	}
	l.buf = buf
	if _, err := l.log.Write(buf); err != nil {
		return err
	}
	l.seq, l.sum = seq, sum
	l.logSize += int64(len(buf))
	if !sync {
		return nil
	}
	if err := errors.Join(l.items.Sync(), l.log.Sync()); err != nil {
		return err
	}
	if l.fresh {
		l.fresh = false
		return syncDir(l.dir)
	}
	return nil
}

// Records gives what is in the log, the header left out, in order.
func (l *Log) Records() iter.Seq2[Record, error] { return Read(l.dir) }

// Size is the length of log and items on disk.
func (l *Log) Size() (log, items int64) { return l.logSize, l.stored - int64(len(l.pending)) }

// Close ends the use of the log. What was appended stays; it is not put on stable storage first.
func (l *Log) Close() error {
	if l.log == nil {
		return nil
	}
	var err error
	if l.items != nil {
		err = l.items.Close()
	}
	err = errors.Join(err, l.log.Close())
	l.log, l.items = nil, nil
	if l.err == nil {
		l.err = fmt.Errorf("run log %s: %w", l.dir, fs.ErrClosed)
	}
	return err
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
