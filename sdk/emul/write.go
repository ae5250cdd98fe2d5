// SPDX-License-Identifier: Apache-2.0

package emul

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"strconv"
	"time"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// dropTimeout bounds the removal of what a failed write left.
const dropTimeout = 10 * time.Second

// Write writes a file: first beside its place, and into it when everything has arrived.
func (e *Emulator) Write(ctx context.Context, p string, opts driver.WriteOptions, r io.Reader) (driver.WriteResult, error) {
	t, err := e.use(ctx, driver.FilesNative, "cat", "stat", "readlink", "mkdir", "mv", "rm", "ln", "chmod")
	if err != nil {
		return driver.WriteResult{}, err
	}
	dir, base, err := t.split(p)
	if err != nil {
		return driver.WriteResult{}, err
	}
	var suffix [8]byte
	rand.Read(suffix[:]) // crypto/rand.Read never fails: it ends the program instead
	staged := ".berth-" + hex.EncodeToString(suffix[:])
	parents := ""
	if opts.Parents {
		parents = "parents"
	}
	in := &input{r: r, sum: sha256.New()}
	text, err := e.output(ctx, t, call{
		op: "files.write", path: p, script: stageScript, args: []string{dir, base, staged, parents}, user: opts.User, stdin: in,
	})
	place := bytes.Split(text, []byte{0})
	if err == nil && len(place) != 3 {
		err = errs.New(errs.Internal, "the sandbox's shell gave no place").With("path", p)
	}
	if err == nil && in.err != nil {
		err = errs.Wrap(errs.Canceled, "read what is to be written", in.err)
	}
	if err != nil {
		if len(place) == 3 {
			e.drop(ctx, t, string(place[0]), staged, opts.User)
		}
		return driver.WriteResult{}, err
	}
	how, mode, mtime := "", "", ""
	switch {
	case opts.Append:
		how = "append"
	case opts.Exclusive:
		how = "exclusive"
	case opts.InPlace:
		how = "inplace"
	}
	if opts.Mode != 0 {
		mode = strconv.FormatUint(uint64(opts.Mode&0o7777), 8)
	}
	if !opts.ModTime.IsZero() {
		mtime = touchTime(opts.ModTime)
	}
	text, err = e.output(ctx, t, call{
		op: "files.write", path: p, script: commitScript, user: opts.User,
		args: []string{string(place[0]), string(place[1]), staged, how, mode, mtime, opts.IfVersion},
	})
	if err != nil {
		return driver.WriteResult{}, err
	}
	record := bytes.Split(text, []byte{0})
	if len(record) != 3 {
		return driver.WriteResult{}, errs.New(errs.Internal, "the sandbox's shell did not say what it wrote").With("path", p)
	}
	out := driver.WriteResult{}
	in.sum.Sum(out.SHA256[:0])
	out.Info, err = parseStat(p, string(record[0]), string(record[1]))
	return out, err
}

// drop removes staged content, also when the caller is gone.
func (e *Emulator) drop(ctx context.Context, t *tools, dir, staged, user string) {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), dropTimeout, errs.New(errs.Canceled, "it took too long"))
	defer cancel()
	_ = e.run(ctx, t, call{op: "files.write", script: dropScript, args: []string{dir, staged}, user: user}) // it is only litter
}

// input remembers how the reading of what is to be written ended: a command sees only that it ended.
type input struct {
	r   io.Reader
	sum hash.Hash
	err error
}

// Read passes on and hashes.
func (i *input) Read(p []byte) (int, error) {
	n, err := i.r.Read(p)
	i.sum.Write(p[:n])
	if err != nil && err != io.EOF { // io.EOF is the end only when it is the value itself
		i.err = err
	}
	return n, err
}

func touchTime(t time.Time) string { return fmt.Sprintf("@%d", t.Unix()) }

// Mkdir makes a directory.
func (e *Emulator) Mkdir(ctx context.Context, p string, mode uint32, parents bool, user string) error {
	arg, text := "", ""
	if parents {
		arg = "parents"
	}
	if mode != 0 {
		text = strconv.FormatUint(uint64(mode&0o7777), 8)
	}
	return e.change(ctx, "files.mkdir", p, user, mkdirScript, []string{arg, text}, "mkdir", "chmod")
}

// Remove removes a file or a tree.
func (e *Emulator) Remove(ctx context.Context, p string, recursive bool, user string) error {
	arg := ""
	if recursive {
		arg = "recursive"
	}
	return e.change(ctx, "files.remove", p, user, removeScript, []string{arg}, "rm", "rmdir")
}

// Move renames.
func (e *Emulator) Move(ctx context.Context, from, to string, replace bool, user string) error {
	t, err := e.use(ctx, driver.FilesNative, "mv")
	if err != nil {
		return err
	}
	dir, base, err := t.split(to)
	if err != nil {
		return err
	}
	arg := ""
	if replace {
		arg = "replace"
	}
	return e.change(ctx, "files.move", from, user, moveScript, []string{dir, base, arg}, "mv", "rm", "rmdir")
}

// SetMeta changes mode, owner and time, the latter to the second.
func (e *Emulator) SetMeta(ctx context.Context, p string, c driver.MetaChange) error {
	recursive, owner, mode, mtime := "", "", "", ""
	if c.Recursive {
		recursive = "-R"
	}
	if c.Owner != nil {
		owner = *c.Owner
	}
	if c.Group != nil {
		owner += ":" + *c.Group
	}
	if c.Mode != nil {
		mode = strconv.FormatUint(uint64(*c.Mode&0o7777), 8)
	}
	if !c.ModTime.IsZero() {
		mtime = touchTime(c.ModTime)
	}
	return e.change(ctx, "files.set_meta", p, "", metaScript, []string{recursive, owner, mode, mtime}, "readlink", "chmod", "chown", "touch")
}

// change runs a script that gives nothing but its success.
func (e *Emulator) change(ctx context.Context, op, p, user, script string, args []string, need ...string) error {
	t, err := e.use(ctx, driver.FilesNative, need...)
	if err != nil {
		return err
	}
	dir, base, err := t.split(p)
	if err != nil {
		return err
	}
	return e.run(ctx, t, call{op: op, path: p, script: script, args: append([]string{dir, base}, args...), user: user})
}
