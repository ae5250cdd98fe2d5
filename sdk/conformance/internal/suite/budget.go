// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/berth-dev/berth/sdk/errs"
)

// Budget bounds what a run may cost; the zero Budget bounds nothing. What does not fit is not run, and the report says
// so: see [OutOfBudget].
type Budget struct {
	Sandboxes int           // that exist at the same time; checks then run one at a time; 0 = any number
	Creates   int           // sandboxes in all; 0 = any number
	Wall      time.Duration // of the whole run; 0 = any
}

// errWall ends the check that is under way when the time is over.
var errWall = errors.New("the budget of time is spent")

// spent is what was used of a [Budget].
type spent struct {
	live map[string]bool // ids of sandboxes that exist
	all  map[string]bool // ids that were ever created
}

// left is how much time there is; ok is false when it is over.
func (s *Suite) left() (d time.Duration, ok bool) {
	if s.opts.Budget.Wall == 0 {
		return s.opts.Timeout, true
	}
	d = time.Until(s.began.Add(s.opts.Budget.Wall))
	return min(d, s.opts.Timeout), d > 0
}

// spend takes a sandbox from the budget, or says why there is none.
func (s *Suite) spend(ctx context.Context, id string) error {
	b := s.opts.Budget
	s.mu.Lock()
	defer s.mu.Unlock()
	var why string
	switch {
	case s.spent.all[id]:
	case b.Creates > 0 && len(s.spent.all) >= b.Creates:
		why = fmt.Sprintf("the budget of %d creates is spent", b.Creates)
	case b.Sandboxes > 0 && len(s.spent.live) >= b.Sandboxes:
		why = fmt.Sprintf("it needs more sandboxes than the budget of %d at a time", b.Sandboxes)
	}
	if why == "" {
		s.spent.all[id], s.spent.live[id] = true, true
		return nil
	}
	if c, ok := ctx.Value(checkKey{}).(*C); ok {
		c.mu.Lock()
		c.unpaid = why
		c.mu.Unlock()
	}
	return errs.New(errs.QuotaExceeded, "%s", why)
}

// gone gives a sandbox back that was destroyed, or never came to be.
func (s *Suite) gone(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.spent.live, id)
}
