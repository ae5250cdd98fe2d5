// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/api"
)

// The uses of a file that the guest passed.
const (
	forReading = os.O_RDONLY
	forWriting = os.O_WRONLY
)

// errPassed says that a file which the guest passed is not to be used: it did not arrive, or is none that can be used here.
var errPassed = errors.New("the file cannot be taken from the guest")

// passed is a file that the guest opened, under its confinement and with the rights of the user, and passed to this
// process. The guest may share its offset and change it: it is read by position.
type passed struct {
	ctx  context.Context //nolint:containedctx // the life of the open file
	file *os.File
	at   int64
}

func (r *passed) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, canceled(r.ctx, string(api.OpOpen))
	}
	if len(p) == 0 {
		return 0, nil
	}
	// One call of the system: ReadAt of a whole buffer would look twice for the end.
	n, err := pread(r.file, p, r.at)
	r.at += int64(n)
	switch {
	case err != nil:
		return n, errs.Wrap(errs.Internal, string(api.OpOpen), err)
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

func (r *passed) Close() error { return r.file.Close() }
