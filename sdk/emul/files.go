// SPDX-License-Identifier: Apache-2.0

package emul

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/ignore"
)

// statBatch is how many paths go into one command line.
const statBatch = 200

// Stat describes files.
func (e *Emulator) Stat(ctx context.Context, paths []string, opts driver.StatOptions) ([]driver.StatResult, error) {
	t, err := e.use(ctx, driver.FilesNative, "stat", "readlink")
	if err != nil {
		return nil, err
	}
	out := make([]driver.StatResult, len(paths))
	for start := 0; start < len(paths); start += statBatch {
		end := min(start+statBatch, len(paths))
		if err := e.statBatch(ctx, t, paths[start:end], opts, out[start:end]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (e *Emulator) statBatch(ctx context.Context, t *tools, paths []string, opts driver.StatOptions, out []driver.StatResult) error {
	args := []string{""}
	if opts.Follow {
		args[0] = "follow"
	}
	var asked []int
	for i, p := range paths {
		dir, base, err := t.split(p)
		if err != nil {
			out[i].Err = err
			continue
		}
		args = append(args, dir, base)
		asked = append(asked, i)
	}
	c := call{op: "files.stat", script: statScript, args: args, user: opts.User}
	text, err := e.output(ctx, t, c)
	if err != nil {
		return err
	}
	fields := bytes.Split(text, []byte{0})
	if len(fields) != 2*len(asked)+1 {
		return errs.New(errs.Internal, "stat gave %d records for %d paths", len(fields)/2, len(asked))
	}
	for n, i := range asked {
		record, target := string(fields[2*n]), string(fields[2*n+1])
		if said, failed := strings.CutPrefix(record, "!"); failed {
			out[i].Err = failure(call{op: c.op, path: paths[i]}, driver.Exit{}, said)
			continue
		}
		out[i].Info, out[i].Err = parseStat(paths[i], record, target)
	}
	return nil
}

// parseStat reads a record of the function record.
func parseStat(name, record, target string) (driver.FileInfo, error) {
	f := strings.SplitN(record, " ", 11)
	bad := errs.New(errs.Internal, "stat gave %q", record).With("path", name)
	if len(f) != 11 {
		return driver.FileInfo{}, bad
	}
	mode, err := strconv.ParseUint(f[0], 16, 32)
	if err != nil {
		return driver.FileInfo{}, bad
	}
	var n [7]uint64
	for i := range n {
		if n[i], err = strconv.ParseUint(f[1+i], 10, 64); err != nil {
			return driver.FileInfo{}, bad
		}
	}
	return driver.FileInfo{
		Path: name, Type: fileType(mode), Size: n[0], Mode: uint32(mode & 0o7777), User: f[8], Group: f[9],
		UID: uint32(n[3]), GID: uint32(n[4]), Nlink: uint32(n[5]),
		ModTime: time.Unix(int64(n[1]), fraction(f[10])), Target: target,
		Version: fmt.Sprintf("%d-%d-%s-%d", n[6], n[0], f[10], n[2]),
	}, nil
}

// fraction reads the nanoseconds of "2026-01-02 03:04:05.123456789 +0000", zero when there are none.
func fraction(s string) int64 {
	_, rest, _ := strings.Cut(s, ".")
	digits, _, _ := strings.Cut(rest, " ")
	if len(digits) != 9 {
		return 0
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func fileType(mode uint64) driver.FileType {
	switch mode & 0o170000 {
	case 0o100000:
		return driver.TypeRegular
	case 0o040000:
		return driver.TypeDirectory
	case 0o120000:
		return driver.TypeSymlink
	case 0o010000:
		return driver.TypeFIFO
	case 0o140000:
		return driver.TypeSocket
	case 0o020000, 0o060000:
		return driver.TypeDevice
	}
	return driver.TypeUnknown
}

// List lists a directory in no order. What is excluded is still walked over.
func (e *Emulator) List(ctx context.Context, p string, opts driver.ListOptions) iter.Seq2[driver.FileInfo, error] {
	return func(yield func(driver.FileInfo, error) bool) {
		if err := e.list(ctx, p, opts, func(f driver.FileInfo) bool { return yield(f, nil) }); err != nil {
			yield(driver.FileInfo{}, err)
		}
	}
}

// list calls take for each entry until that is false.
func (e *Emulator) list(ctx context.Context, p string, opts driver.ListOptions, take func(driver.FileInfo) bool) error {
	t, err := e.use(ctx, driver.FilesNative, "find", "stat", "readlink")
	if err != nil {
		return err
	}
	dir, base, err := t.split(p)
	if err != nil {
		return err
	}
	exclude, err := ignore.New(opts.Exclude)
	if err != nil {
		return err
	}
	depth := "-maxdepth 1"
	if opts.Recursive {
		depth = ""
	}
	c := call{op: "files.list", path: p, script: listAny, args: []string{dir, base, depth}, user: opts.User}
	parse := parseStat
	if t.printf {
		c.script, parse = listGNU, parsePrintf
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	pr, pw := io.Pipe()
	c.stdout = pw
	done := make(chan error, 1)
	go func() {
		err := e.run(ctx, t, c)
		pw.Close() // never fails
		done <- err
	}()
	br := bufio.NewReaderSize(pr, 64<<10)
	kept, skipped := 0, map[string]bool{}
	for {
		record, err := fieldsOf(br, 3)
		if err != nil {
			pr.Close() // never fails
			if runErr := <-done; runErr != nil {
				return runErr
			}
			if errors.Is(err, io.EOF) {
				return nil
			}
			return errs.New(errs.Internal, "the listing of %s was cut", p)
		}
		info, err := parse(record[0], record[1], record[2])
		// A directory comes before what is in it.
		if err == nil && (below(info.Path, skipped) || exclude.Match(info.Path, info.Type == driver.TypeDirectory)) {
			if info.Type == driver.TypeDirectory {
				skipped[info.Path] = true
			}
			continue
		}
		kept++
		if err != nil || opts.Limit > 0 && kept > opts.Limit || !take(info) {
			stop(errors.New("no more entries are wanted"))
			pr.Close() // never fails
			<-done     //nolint:errcheck // only that it has ended counts
			return err
		}
	}
}

// fieldsOf reads fields that end with NUL; io.EOF at the end, io.ErrUnexpectedEOF within a record.
func fieldsOf(br *bufio.Reader, n int) ([]string, error) {
	out := make([]string, n)
	for i := range out {
		s, err := br.ReadString(0)
		if err != nil {
			if errors.Is(err, io.EOF) && (i > 0 || s != "") {
				return nil, io.ErrUnexpectedEOF
			}
			return nil, err
		}
		out[i] = s[:len(s)-1]
	}
	return out, nil
}

// parsePrintf reads a record of find -printf.
func parsePrintf(name, record, target string) (driver.FileInfo, error) {
	f := strings.Split(record, " ")
	bad := errs.New(errs.Internal, "find gave %q", record).With("path", name)
	if len(f) != 11 {
		return driver.FileInfo{}, bad
	}
	var n [5]uint64 // size, uid, gid, nlink, inode
	var err error
	for i, at := range []int{1, 4, 5, 6, 7} {
		if n[i], err = strconv.ParseUint(f[at], 10, 64); err != nil {
			return driver.FileInfo{}, bad
		}
	}
	mode, err := strconv.ParseUint(f[8], 8, 32)
	if err != nil {
		return driver.FileInfo{}, bad
	}
	secs, frac, _ := strings.Cut(f[2], ".")
	sec, err := strconv.ParseInt(secs, 10, 64)
	if err != nil {
		return driver.FileInfo{}, bad
	}
	frac = (frac + "000000000")[:9]
	nsec, err := strconv.ParseInt(frac, 10, 64)
	if err != nil {
		return driver.FileInfo{}, bad
	}
	changed, _, _ := strings.Cut(f[3], ".")
	mtime := time.Unix(sec, nsec)
	return driver.FileInfo{
		Path: name, Type: map[string]driver.FileType{
			"f": driver.TypeRegular, "d": driver.TypeDirectory, "l": driver.TypeSymlink, "p": driver.TypeFIFO,
			"s": driver.TypeSocket, "c": driver.TypeDevice, "b": driver.TypeDevice,
		}[f[0]],
		Size: n[0], Mode: uint32(mode), User: f[9], Group: f[10], UID: uint32(n[1]), GID: uint32(n[2]), Nlink: uint32(n[3]),
		ModTime: mtime, Target: target,
		// The same text that stat gives.
		Version: fmt.Sprintf("%d-%d-%s-%s", n[4], n[0], mtime.UTC().Format("2006-01-02 15:04:05.000000000 -0700"), changed),
	}, nil
}

// Open reads a regular file as a stream.
func (e *Emulator) Open(ctx context.Context, p string, opts driver.ReadOptions) (driver.FileInfo, io.ReadCloser, error) {
	t, err := e.use(ctx, driver.FilesNative, "cat", "stat", "readlink", "head", "tail")
	if err != nil {
		return driver.FileInfo{}, nil, err
	}
	dir, base, err := t.split(p)
	if err != nil {
		return driver.FileInfo{}, nil, err
	}
	ctx, stop := context.WithCancelCause(ctx)
	pr, pw := io.Pipe()
	o := &opened{stop: stop, pr: pr, br: bufio.NewReaderSize(pr, 64<<10), done: make(chan struct{})}
	go func() {
		defer close(o.done)
		err := e.run(ctx, t, call{
			op: "files.read", path: p, script: openScript, user: opts.User, stdout: pw,
			args: []string{dir, base, strconv.FormatUint(opts.Offset, 10), strconv.FormatUint(opts.Length, 10)},
		})
		pw.CloseWithError(err) // never fails; nil is the end
	}()
	head, err := fieldsOf(o.br, 2)
	if err == nil {
		o.info, err = parseStat(p, head[0], head[1])
	}
	if err == nil && opts.IfVersion != "" && opts.IfVersion != o.info.Version {
		err = errs.New(errs.VersionMismatch, "the file has changed").With("path", p)
	}
	if err != nil {
		o.Close() // the first error is what matters
		return driver.FileInfo{}, nil, errs.Wrap(errs.Internal, "files.read", err)
	}
	return o.info, o, nil
}

// opened is a file that is being read.
type opened struct {
	info driver.FileInfo
	stop context.CancelCauseFunc
	pr   *io.PipeReader
	br   *bufio.Reader
	done chan struct{}
}

// Read gives the content.
func (o *opened) Read(p []byte) (int, error) { return o.br.Read(p) }

// Close ends the command.
func (o *opened) Close() error {
	o.stop(errors.New("the file was closed"))
	o.pr.Close() // never fails
	<-o.done
	return nil
}
