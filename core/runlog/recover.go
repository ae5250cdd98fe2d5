// SPDX-License-Identifier: Apache-2.0

package runlog

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
)

// recover finds the end of what is good, in both files, and cuts off the rest.
func (l *Log) recover() error {
	itemsSize, err := l.indexItems()
	if err != nil {
		return err
	}
	good, needed, err := l.scan(itemsSize)
	if err != nil {
		return err
	}
	if err := l.truncate(l.log, good); err != nil {
		return err
	}
	// Items after the last record were on their way when the process ended. Nothing refers to them.
	if err := l.truncate(l.items, needed); err != nil {
		return err
	}
	for sum, p := range l.index {
		if p.off >= needed {
			delete(l.index, sum)
		}
	}
	l.logSize, l.stored = good, needed
	return nil
}

func (l *Log) truncate(f *os.File, size int64) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() == size {
		return nil
	}
	l.cut += info.Size() - size
	return errors.Join(f.Truncate(size), f.Sync())
}

// indexItems hashes the whole lines of items.jsonl and gives their length.
func (l *Log) indexItems() (int64, error) {
	var size int64
	for line, err := range lines(l.items) {
		if err != nil {
			return 0, err
		}
		if !whole(line) {
			break
		}
		sum := digest(sha256.Sum256(line[:len(line)-1]))
		if _, ok := l.index[sum]; !ok {
			l.index[sum] = place{off: size, size: int64(len(line) - 1)}
		}
		size += int64(len(line))
	}
	return size, nil
}

// scan verifies the records. It gives the length of the good ones and the length of the items that they need.
func (l *Log) scan(itemsSize int64) (good, needed int64, err error) {
	var bad error
	for line, err := range lines(l.log) {
		if err != nil {
			return 0, 0, err
		}
		if bad != nil {
			if isRecord(line) {
				return 0, 0, fmt.Errorf("%s line %d: %w; whole records follow, so this is damage and no torn end. "+
					"To go on without them, keep a copy of the file and remove the line and all after it", logName, l.seq+1, bad)
			}
			continue
		}
		r, sum, err := Record{}, digest{}, errors.New("it is not a whole record")
		if whole(line) {
			r, sum, err = parseRecord(line[:len(line)-1], l.sum, l.seq+1)
		}
		switch {
		case err != nil && whole(line) && isRecord(line):
			return 0, 0, fmt.Errorf("%s line %d: %w", logName, l.seq+1, err)
		case err != nil:
			bad = err
			continue
		case r.Stored > itemsSize:
			// A power failure kept the record and lost its items: the end of what can be used.
			return good, needed, nil
		}
		l.seq, l.sum, l.lastSync = r.Seq, sum, r.Time
		good += int64(len(line))
		needed = max(needed, r.Stored)
	}
	return good, needed, nil
}

// isRecord reports whether a line is a whole record, be its hash right or wrong.
func isRecord(line []byte) bool {
	var r Record
	return whole(line) && json.Unmarshal(line, &r) == nil && r.Seq > 0 && len(r.Hash) == 2*sha256.Size
}

func whole(line []byte) bool { return bytes.HasSuffix(line, []byte("\n")) }

// lines gives the lines of a file from its start, with their line breaks. A slice holds until the next one.
func lines(f *os.File) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		r := bufio.NewReaderSize(io.NewSectionReader(f, 0, 1<<62), 1<<16)
		var long []byte
		for {
			line, err := r.ReadSlice('\n')
			if errors.Is(err, bufio.ErrBufferFull) {
				long = append(long, line...)
				continue
			}
			if len(long) > 0 {
				line = append(long, line...)
				long = line[:0]
			}
			if err != nil && !errors.Is(err, io.EOF) {
				yield(nil, err)
				return
			}
			if len(line) > 0 && !yield(line, nil) {
				return
			}
			if err != nil {
				return
			}
		}
	}
}

// Read gives the records of a run's directory in order, the header left out, and verifies them. It takes no lock: of a
// log that is being written it gives what is complete. A torn tail ends the records without an error.
func Read(dir string) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		f, err := os.Open(filepath.Join(dir, logName))
		if err != nil {
			yield(Record{}, fmt.Errorf("read run log: %w", err))
			return
		}
		defer f.Close()
		var (
			sum digest
			seq uint64
		)
		for line, err := range lines(f) {
			if err != nil {
				yield(Record{}, fmt.Errorf("read run log %s: %w", dir, err))
				return
			}
			if !whole(line) {
				return
			}
			r, next, err := parseRecord(line[:len(line)-1], sum, seq+1)
			if err != nil {
				if isRecord(line) {
					yield(Record{}, fmt.Errorf("read run log %s: line %d: %w", dir, seq+1, err))
				}
				return
			}
			seq, sum = r.Seq, next
			if seq > 1 && !yield(r, nil) {
				return
			}
		}
	}
}
