// SPDX-License-Identifier: Apache-2.0

package api

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"time"

	"github.com/berth-dev/berth/sdk/driver"
)

// An entry is one driver.StatResult in bytes: a mark, then either the fields of a FileInfo (numbers as varints, texts with
// their length before them) or an Error as JSON with its length before it.
const (
	entryInfo  = 1
	entryError = 2
)

var errEntry = errors.New("malformed entry")

// AppendEntry appends an entry to b.
func AppendEntry(b []byte, r driver.StatResult) []byte {
	if r.Err != nil {
		e, err := json.Marshal(NewError(r.Err))
		if err != nil {
			e = []byte(`{"code":"internal"}`)
		}
		return appendText(append(b, entryError), string(e))
	}
	i := &r.Info
	b = append(b, entryInfo)
	b = appendText(b, i.Path)
	b = append(b, byte(i.Type))
	b = binary.AppendUvarint(b, i.Size)
	b = binary.AppendUvarint(b, uint64(i.Mode))
	b = appendText(b, i.User)
	b = appendText(b, i.Group)
	b = binary.AppendUvarint(b, uint64(i.UID))
	b = binary.AppendUvarint(b, uint64(i.GID))
	b = binary.AppendUvarint(b, uint64(i.Nlink))
	if i.ModTime.IsZero() {
		b = append(b, 0)
	} else {
		b = append(b, 1)
		b = binary.AppendVarint(b, i.ModTime.Unix())
		b = binary.AppendUvarint(b, uint64(i.ModTime.Nanosecond()))
	}
	b = appendText(b, i.Target)
	return appendText(b, i.Version)
}

// ReadEntry takes the first entry off b.
func ReadEntry(b []byte) (driver.StatResult, []byte, error) {
	d := decoder{b: b}
	var r driver.StatResult
	switch d.byte() {
	case entryError:
		var e Error
		if err := json.Unmarshal([]byte(d.text()), &e); err != nil {
			return r, nil, errEntry
		}
		r.Err = e.Err()
	case entryInfo:
		i := &r.Info
		i.Path = d.text()
		i.Type = driver.FileType(d.byte())
		i.Size = d.uint()
		i.Mode = uint32(d.uint())
		i.User, i.Group = d.text(), d.text()
		i.UID, i.GID, i.Nlink = uint32(d.uint()), uint32(d.uint()), uint32(d.uint())
		if d.byte() != 0 {
			sec := d.int()
			i.ModTime = time.Unix(sec, int64(d.uint()))
		}
		i.Target, i.Version = d.text(), d.text()
	default:
		return r, nil, errEntry
	}
	if d.bad {
		return driver.StatResult{}, nil, errEntry
	}
	return r, d.b, nil
}

func appendText(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// decoder takes values off b; bad stays set after the first that is not there.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) byte() byte {
	if len(d.b) == 0 {
		d.bad = true
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return v
}

func (d *decoder) uint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) int() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) text() string {
	n := d.uint()
	if n > uint64(len(d.b)) {
		d.bad, d.b = true, nil
		return ""
	}
	s := string(d.b[:n])
	d.b = d.b[n:]
	return s
}
