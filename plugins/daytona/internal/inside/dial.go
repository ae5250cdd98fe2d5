// SPDX-License-Identifier: Apache-2.0

package inside

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/berth-dev/berth/plugins/daytona/client"
	"github.com/berth-dev/berth/sdk/errs"
)

// Bare says whether an error is a gateway's that speaks for nobody.
func Bare(err error) bool {
	e, ok := errors.AsType[*errs.Error](err)
	return ok && e.Vendor != nil && e.Vendor.HTTPStatus == http.StatusBadGateway && e.Vendor.Message == ""
}

// Dialer makes the connections of one conversation.
type Dialer struct {
	Client   *client.Client
	ID       string // of the sandbox, berth's
	Vendor   string // the vendor's
	AutoStop time.Duration
	Toolbox  *client.Toolbox
	PTY      string
	Line     []byte          // the guest's configuration
	First    *client.PTYConn // of a guest that was just started; nil = none

	bare int // answers of nobody, one after the other
}

// Dial connects to the terminal that the guest is in. Its errors say why the guest is not there, where that is final.
func (d *Dialer) Dial(ctx context.Context) (io.ReadWriteCloser, error) {
	conn, opening := d.First, d.Line
	d.First = nil
	if conn == nil {
		// Others used the terminal before, and the guest may be in the middle of something.
		opening = append(flush(), d.Line...)
		var err error
		if conn, err = d.Toolbox.ConnectPTY(ctx, d.PTY); err != nil {
			return nil, d.why(ctx, err)
		}
	}
	d.bare = 0
	if _, err := conn.Write(opening); err != nil {
		_ = conn.Close() // the first error is the one to tell
		return nil, err
	}
	return conn, nil
}

// lost is the error of a guest that is not coming back while its sandbox is still there. The conversation ends with it,
// and its calls get errs.ExecTransport.
func lost(format string, args ...any) error { return errs.New(errs.ProcessUnknown, format, args...) }

// bareTries is how many answers of nobody there are until the daemon counts as dead.
const bareTries = 2

// why finds out what a failed connection means.
func (d *Dialer) why(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	v, lookErr := d.Client.Sandbox(ctx, d.Vendor)
	switch {
	case errors.Is(lookErr, errs.SandboxGone):
		return errs.New(errs.SandboxGone, "sandbox %s was deleted at Daytona", d.ID)
	case errors.Is(lookErr, errs.AuthFailed):
		return lookErr
	case lookErr != nil:
		return err // the next try may know more
	case v.State.Gone():
		return errs.New(errs.SandboxGone, "sandbox %s was deleted at Daytona", d.ID)
	case v.State == client.StateError:
		return lost("the sandbox is in an error at Daytona: %s", v.ErrorReason)
	case v.State == client.StateStopped, v.State == client.StateStopping, v.State == client.StateArchived, v.State == client.StateArchiving:
		if d.AutoStop > 0 && v.UpdatedAt.Sub(v.LastActivityAt) >= d.AutoStop {
			return lost("the sandbox was stopped by Daytona after %s without activity (auto_stop)", d.AutoStop)
		}
		return lost("the sandbox was stopped at Daytona")
	case v.State == client.StatePaused, v.State == client.StatePausing:
		return lost("the sandbox was paused at Daytona")
	}
	if errors.Is(err, errs.ProcessUnknown) && v.State == client.StateStarted {
		return lost("the guest has ended: the sandbox was started again, or something in it ended the guest")
	}
	if Bare(err) {
		if d.bare++; d.bare >= bareTries {
			return lost("the sandbox's daemon does not answer, for want of memory as a rule")
		}
	}
	// It may have moved.
	if t, e := d.Client.Toolbox(v); e == nil {
		d.Toolbox = t
	}
	return err
}
