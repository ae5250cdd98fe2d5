// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// maxLine bounds a line that is read; a command line is at most some MiB.
const maxLine = 64 << 20

// Finding is a place at which the log is not as it was written.
type Finding struct {
	Line    int    `json:"line"` // from 1; one past the last says that something is missing there
	Seq     uint64 `json:"seq,omitempty"`
	Problem string `json:"problem"`
}

// Report is what a look at a log gave.
type Report struct {
	Records int    `json:"records"`
	Head    string `json:"head"` // hash of the last record
	// Torn is the length of a record that berth did not finish writing, at the end.
	Torn     int       `json:"torn_bytes,omitempty"`
	Findings []Finding `json:"findings"`
}

// OK reports whether the log is as it was written.
func (r *Report) OK() bool { return len(r.Findings) == 0 }

// Verify looks at the log in a run's directory, also while it is written. Each record is given to see, which may be nil,
// with what is wrong with it. Expect is the hash that some record must have, kept elsewhere; empty = there is none.
func Verify(dir, expect string, see func(Record, error)) (*Report, error) {
	// The head is read first: a record that is written meanwhile is past it.
	h, headErr := readHead(dir)
	f, err := os.Open(filepath.Join(dir, FileName))
	if errors.Is(err, fs.ErrNotExist) && h.Seq > 0 {
		return &Report{Findings: []Finding{{Line: 1, Problem: fmt.Sprintf("the whole log is missing: it had %d records", h.Seq)}}}, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close() // it was only read
	rep, err := verify(f, h, expect, see)
	if headErr == nil && h.Seq == 0 {
		headErr = fmt.Errorf("%s is empty", HeadName) // as a crash at the first record leaves it, but no later one
	}
	if err == nil && headErr != nil && rep.Records > 1 {
		rep.find(rep.Records+1, 0, "%v, so nobody can say whether records are missing at the end", headErr)
	}
	return rep, err
}

// find adds a finding, and gives it as an error too.
func (r *Report) find(line int, seq uint64, format string, args ...any) error {
	f := Finding{Line: line, Seq: seq, Problem: fmt.Sprintf(format, args...)}
	r.Findings = append(r.Findings, f)
	return errors.New(f.Problem)
}

func verify(in io.Reader, h head, expect string, see func(Record, error)) (*Report, error) {
	rep := &Report{Findings: []Finding{}}
	prev, seq, line := first, uint64(0), 0
	found, met := h.Seq == 0, expect == ""
	r := bufio.NewReaderSize(in, 1<<16)
	for {
		text, err := readLine(r)
		if errors.Is(err, io.EOF) {
			rep.Torn = len(text)
			break
		}
		if err != nil {
			return rep, err
		}
		line++
		rec, bad := decode(text[:len(text)-1])
		if bad != nil {
			bad = rep.find(line, rec.Seq, "%v", bad)
		}
		switch {
		case rec.Hash == "": // not even that is known; the next one tells whether something is missing too
		case rec.Seq != seq+1:
			bad = rep.find(line, rec.Seq, "record %d follows record %d: records were removed, put in or moved", rec.Seq, seq)
		case rec.Prev != prev:
			bad = rep.find(line, rec.Seq, "it does not name the record before it: that one was changed or exchanged")
		}
		if rec.Seq == h.Seq && rec.Hash == h.Hash {
			found = true
		}
		met = met || rec.Hash == expect
		rep.Records++
		seq++
		if rec.Hash != "" {
			prev, seq, rep.Head = rec.Hash, rec.Seq, rec.Hash
		}
		if see != nil {
			see(rec, bad)
		}
	}
	switch {
	case !found && seq < h.Seq:
		rep.find(line+1, 0, "%d records are missing at the end: it had %d", h.Seq-seq, h.Seq)
	case !found:
		rep.find(line+1, 0, "record %d is not the one that was written: its hash was %s", h.Seq, h.Hash)
	}
	if !met {
		rep.find(line+1, 0, "no record has the hash %s", expect)
	}
	return rep, nil
}

// readLine reads a line with its end. At the end of the file it gives what is left, and io.EOF.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
		if len(line) > maxLine {
			return nil, fmt.Errorf("%s has a line of more than %d bytes", FileName, maxLine)
		}
	}
}

func readHead(dir string) (head, error) {
	b, err := os.ReadFile(filepath.Join(dir, HeadName))
	if errors.Is(err, fs.ErrNotExist) {
		return head{}, fmt.Errorf("%s is missing", HeadName)
	}
	if err != nil {
		return head{}, err
	}
	if len(b) == 0 {
		return head{}, nil
	}
	return decodeHead(b)
}
