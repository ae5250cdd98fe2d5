// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/berth-dev/berth/sdk/guest/client"
)

// EndGuest ends the guest, and returns when it has ended. One that lives and that nobody recorded was started by a driver
// that was killed before it could write down the number: it is asked by its socket, as often as it takes until it listens.
func (x *Session) EndGuest() error {
	if x.Record.Guest.PID != 0 {
		return x.Record.Guest.Kill()
	}
	late := fmt.Errorf("the guest of sandbox %s, which nobody recorded, did not end within %s", x.Record.ID, killTimeout)
	ctx, cancel := context.WithTimeoutCause(context.Background(), killTimeout, late)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for x.Alive() {
		x.ask(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// ask tells the guest to end. That it has ended is what counts, so a failure is only the reason to ask again.
func (x *Session) ask(ctx context.Context) {
	key, err := x.Key()
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeoutCause(ctx, time.Second, errors.New("no answer"))
	defer cancel()
	if c, err := client.Connect(ctx, client.Options{Dial: x.Dial, Key: key}); err == nil {
		_ = c.Shutdown(ctx) // see above
	}
}
