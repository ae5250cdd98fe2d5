// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"time"

	"github.com/zclconf/go-cty/cty"
	"google.golang.org/grpc"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/rpc"
	"github.com/berth-dev/berth/sdk/schema"
)

// describeTimeout bounds the first question to a new process.
const describeTimeout = 5 * time.Second

// setter is a [driver.Configurer] that can also fail.
type setter interface {
	Setup(ctx context.Context, host driver.Host, features []driver.Feature, config schema.Value) ([]driver.Diagnostic, error)
}

func dialOptions() []grpc.DialOption { return rpc.DialOptions() }

// connect asks the driver at the other end what it is. gone tells the client whether the process has ended.
func connect(ctx context.Context, conn *grpc.ClientConn, gone func() error) (driver.Driver, driver.Description, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, describeTimeout,
		errs.New(errs.DriverStartFailed, "no answer within %s", describeTimeout))
	defer cancel()
	d := rpc.New(conn, rpc.Config{Gone: gone})
	desc, err := d.Load(ctx)
	return d, desc, err
}

// ConfigError is what a driver found wrong with its configuration.
type ConfigError struct {
	Driver      string
	Diagnostics []driver.Diagnostic // errors and warnings
}

// Error joins the findings that are errors.
func (e *ConfigError) Error() string {
	var all []error
	for _, d := range e.Diagnostics {
		if !d.Warning {
			text := d.Summary
			if d.Detail != "" {
				text += ": " + d.Detail
			}
			all = append(all, errors.New(text))
		}
	}
	return errors.Join(all...).Error()
}

// configError makes an error of the findings, if one of them is an error.
func configError(name string, diags []driver.Diagnostic) error {
	for _, d := range diags {
		if !d.Warning {
			return &errs.Error{
				Code: errs.ConfigInvalid, Op: "configure driver " + name, Path: d.Path,
				Err: &ConfigError{name, diags},
			}
		}
	}
	return nil
}

// sensitive collects the texts of a body that its schema calls sensitive. A body that cannot be read has none: the
// driver will say so.
func sensitive(s *schema.Schema, v schema.Value) []string {
	if s == nil {
		return nil
	}
	c, err := v.Cty(s)
	if err != nil {
		return nil
	}
	var out []string
	sensitiveIn(&s.Block, c, &out)
	return out
}

func sensitiveIn(b *schema.Block, v cty.Value, out *[]string) {
	if v.IsNull() || !v.IsKnown() {
		return
	}
	for i := range b.Attributes {
		if b.Attributes[i].Sensitive {
			texts(v.GetAttr(b.Attributes[i].Name), out)
		}
	}
	for i := range b.Blocks {
		n := &b.Blocks[i]
		x := v.GetAttr(n.Type)
		if x.IsNull() || !x.IsKnown() {
			continue
		}
		if n.Nesting == schema.Single {
			sensitiveIn(&n.Block, x, out)
			continue
		}
		for _, e := range x.Elements() {
			sensitiveIn(&n.Block, e, out)
		}
	}
}

func texts(v cty.Value, out *[]string) {
	switch {
	case v.IsNull() || !v.IsKnown():
	case v.Type() == cty.String:
		*out = append(*out, v.AsString())
	case v.CanIterateElements():
		for _, e := range v.Elements() {
			texts(e, out)
		}
	}
}
