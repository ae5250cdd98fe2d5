// SPDX-License-Identifier: Apache-2.0

//go:build linux

package server

import (
	"context"
	"encoding/json"
	"math"
	"os"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/api"
	"github.com/berth-dev/berth/sdk/guest/fsys"
	"github.com/berth-dev/berth/sdk/guest/link"
)

// placer is the content of a write, which the host writes to the file itself when it is large.
type placer struct {
	reader
	placed bool
}

var _ fsys.Placer = (*placer)(nil)

// Place implements fsys.Placer.
func (p *placer) Place(fd int) (int64, bool, error) {
	ctx := p.st.Context()
	m, err := p.st.Recv(ctx)
	if err != nil {
		return 0, false, err
	}
	if m.Kind != link.Control || m.Sub != api.SubLarge {
		p.take(m)
		return 0, false, nil
	}
	m.Release()
	if fd < 0 || !p.st.PassesFiles() {
		return 0, false, p.st.SendControl(ctx, api.SubReady, nil)
	}
	gone, err := p.pass(ctx, fd)
	if err != nil {
		return 0, false, err
	}
	if m, err = p.st.Recv(ctx); err != nil {
		return 0, false, err
	}
	// What comes after the file comes after the word that the host has it: the wait is short.
	select {
	case <-gone:
	case <-ctx.Done():
		m.Release()
		return 0, false, context.Cause(ctx)
	}
	if m.Kind != link.Control || m.Sub != api.SubWritten {
		p.take(m) // the host could not take the file
		return 0, false, nil
	}
	var size api.Size
	err = json.Unmarshal(m.Body, &size)
	m.Release()
	if err != nil || size.Bytes > math.MaxInt64 {
		return 0, false, errs.New(errs.InvalidArgument, "the size of what was written cannot be read: %v", err)
	}
	p.placed = true
	return int64(size.Bytes), true, nil
}

// pass gives the file away, with the most that this process could write to it.
func (p *placer) pass(ctx context.Context, fd int) (gone <-chan struct{}, err error) {
	var most unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &most); err != nil {
		return nil, err
	}
	body, err := json.Marshal(api.Size{Bytes: most.Cur})
	if err != nil {
		return nil, err
	}
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return p.st.SendFile(ctx, api.SubFile, body, os.NewFile(uintptr(own), "content"))
}
