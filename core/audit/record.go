// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Record is a line of the log.
type Record struct {
	Seq   uint64         `json:"seq"` // from 1, without gaps
	Time  time.Time      `json:"time"`
	Op    string         `json:"op"`
	Phase string         `json:"phase"`        // begin, end, note
	Of    uint64         `json:"of,omitempty"` // of an end: the number of its beginning
	Run   string         `json:"run,omitempty"`
	Agent string         `json:"agent,omitempty"`
	Call  string         `json:"call,omitempty"`    // of a tool, in whose course it happened
	Box   string         `json:"sandbox,omitempty"` // that it happened to
	Kind  string         `json:"driver,omitempty"`
	OK    *bool          `json:"ok,omitempty"` // of an end
	Error string         `json:"error,omitempty"`
	Took  int64          `json:"duration_ns,omitempty"`
	More  map[string]any `json:"detail,omitempty"`
	// Prev is the hash of the record before; Hash, of this one, is the last member of the line and covers all before it.
	Prev string `json:"prev"`
	Hash string `json:"hash,omitempty"`
}

// The phases.
const (
	Begin = "begin"
	End   = "end"
	Note  = "note"
)

const (
	hashKey = `,"hash":"`
	hashEnd = "\"}"
	hashLen = len(hashKey) + 2*sha256.Size + len(hashEnd)
)

// first is what the first record names as the one before it.
var first = hex.EncodeToString(make([]byte, sha256.Size))

// encode makes the line of a record that has no hash yet, and gives its hash.
func encode(r *Record) (line []byte, hash string, err error) {
	r.Hash = ""
	body, err := json.Marshal(r)
	if err != nil {
		return nil, "", err
	}
	body = body[:len(body)-1] // the brace comes after the hash
	hash = sum(body)
	line = append(append(append(body, hashKey...), hash...), hashEnd+"\n"...)
	return line, hash, nil
}

func sum(body []byte) string {
	s := sha256.Sum256(body)
	return hex.EncodeToString(s[:])
}

// decode reads a line without its end. The record is what the line says, also when the error says that it was changed.
func decode(line []byte) (Record, error) {
	var r Record
	if err := json.Unmarshal(line, &r); err != nil {
		return r, errors.New("it is no record")
	}
	cut := len(line) - hashLen
	switch {
	case cut < 0 || !bytes.HasPrefix(line[cut:], []byte(hashKey)) || !bytes.HasSuffix(line, []byte(hashEnd)):
		return r, errors.New("it does not end with its hash")
	case sum(line[:cut]) != string(line[cut+len(hashKey):len(line)-len(hashEnd)]):
		return r, errors.New("its hash does not fit: the record was changed")
	case r.Hash != string(line[cut+len(hashKey):len(line)-len(hashEnd)]):
		return r, errors.New("it has two hashes: the record was changed")
	}
	return r, nil
}

// head is how far the log was when it was last written to.
type head struct {
	Seq  uint64 `json:"seq"`
	Hash string `json:"hash"`
}

func (h head) encode() []byte {
	return fmt.Appendf(nil, `{"seq":%020d,"hash":"%s"}`+"\n", h.Seq, h.Hash)
}

func decodeHead(b []byte) (head, error) {
	var h head
	if n, err := fmt.Sscanf(string(b), `{"seq":%d,"hash":"%64s`, &h.Seq, &h.Hash); err != nil || n != 2 || len(h.Hash) != 2*sha256.Size {
		return h, fmt.Errorf("%s cannot be read", HeadName)
	}
	return h, nil
}
