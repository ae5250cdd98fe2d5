// SPDX-License-Identifier: Apache-2.0

package runlog

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Entry is what a caller appends.
type Entry struct {
	Type string // lower-case letters and underscores
	Time time.Time
	Data []byte // one JSON value without line breaks
}

// Record is an entry in the log.
type Record struct {
	Seq  uint64          `json:"seq"` // from 1, without gaps
	Time time.Time       `json:"time"`
	Type string          `json:"type"`
	Data json.RawMessage `json:"data"`
	// Stored is the length of items.jsonl that the record needs.
	Stored int64 `json:"stored"`
	// Hash of this record, hex.
	Hash string `json:"hash"`
}

// The type and data of a log's first record.
const (
	headerType = "header"
	headerData = `{"format":"berth run log","version":1}`
)

type digest [sha256.Size]byte

const (
	hashKey = `,"hash":"`
	hashEnd = "\"}"
	// hashLen is the length of a line's part that the hash does not cover.
	hashLen = len(hashKey) + 2*sha256.Size + len(hashEnd)
)

// appendRecord encodes a record at the end of buf and gives its hash.
func appendRecord(buf []byte, prev digest, seq uint64, stored int64, e Entry) ([]byte, digest) {
	start := len(buf)
	buf = append(buf, `{"seq":`...)
	buf = strconv.AppendUint(buf, seq, 10)
	buf = append(buf, `,"time":"`...)
	buf = e.Time.UTC().AppendFormat(buf, time.RFC3339Nano)
	buf = append(buf, `","type":"`...)
	buf = append(buf, e.Type...)
	buf = append(buf, `","stored":`...)
	buf = strconv.AppendInt(buf, stored, 10)
	buf = append(buf, `,"data":`...)
	buf = append(buf, e.Data...)
	sum := chain(prev, buf[start:])
	buf = append(buf, hashKey...)
	buf = hex.AppendEncode(buf, sum[:])
	buf = append(buf, hashEnd...)
	return append(buf, '\n'), sum
}

func chain(prev digest, body []byte) digest {
	h := sha256.New()
	h.Write(prev[:])
	h.Write(body)
	var sum digest
	h.Sum(sum[:0])
	return sum
}

// parseRecord reads a line, without its line break, that must follow a record with the hash prev and the number seq-1.
// The hash says that this package wrote it, so the rest is read by position.
func parseRecord(line []byte, prev digest, seq uint64) (Record, digest, error) {
	cut := len(line) - hashLen
	if cut < 0 || !bytes.HasPrefix(line[cut:], []byte(hashKey)) || !bytes.HasSuffix(line, []byte(hashEnd)) {
		return Record{}, digest{}, errors.New("it is not a whole record")
	}
	r := Record{Hash: string(line[cut+len(hashKey) : len(line)-len(hashEnd)])}
	sum := chain(prev, line[:cut])
	if r.Hash != hex.EncodeToString(sum[:]) {
		return Record{}, digest{}, errors.New("its hash does not fit: it, or a record before it, was changed")
	}
	p := parser{rest: line[:cut]}
	r.Seq = uint64(p.number(`{"seq":`, `,"time":"`))
	r.Time = p.time(`","type":"`)
	r.Type = string(p.until(`","stored":`))
	r.Stored = p.number("", `,"data":`)
	r.Data = bytes.Clone(p.rest)
	switch {
	case p.bad:
		return Record{}, digest{}, errors.New("it is not a record")
	case r.Seq != seq:
		return Record{}, digest{}, fmt.Errorf("it has number %d in place of %d", r.Seq, seq)
	case seq == 1 && (r.Type != headerType || string(r.Data) != headerData):
		return Record{}, digest{}, fmt.Errorf("this is no run log that this program can read: it begins with %s %s", r.Type, r.Data)
	}
	return r, sum, nil
}

// parser takes a line apart from its start.
type parser struct {
	rest []byte
	bad  bool
}

// until gives what stands before a text, and goes on behind it.
func (p *parser) until(text string) []byte {
	before, after, ok := bytes.Cut(p.rest, []byte(text))
	p.bad = p.bad || !ok
	p.rest = after
	return before
}

func (p *parser) number(before, after string) int64 {
	lead := len(before)
	digits := p.until(after)
	if len(digits) < lead || string(digits[:lead]) != before {
		p.bad = true
		return 0
	}
	n, err := strconv.ParseInt(string(digits[lead:]), 10, 64)
	p.bad = p.bad || err != nil
	return n
}

func (p *parser) time(after string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, string(p.until(after)))
	p.bad = p.bad || err != nil
	return t
}
