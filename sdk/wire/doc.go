// SPDX-License-Identifier: Apache-2.0

// Package wire converts between the values of sdk/driver and the messages of the protocol, and between *errs.Error and
// gRPC statuses.
//
// For a type X of sdk/driver, XProto gives its message and X gives it back. A message that is absent is the zero value,
// and an enum value that this side does not know is the unknown one.
package wire

import (
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	pb "github.com/berth-dev/berth/sdk/proto/berth/driver/v1"
	"github.com/berth-dev/berth/sdk/schema"
)

// MaxStateBytes bounds the data of a [driver.State].
const MaxStateBytes = 64 << 10

// duration leaves zero out.
func duration(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

func optionalDuration(d *time.Duration) *durationpb.Duration {
	if d == nil {
		return nil
	}
	return durationpb.New(*d)
}

func fromOptionalDuration(p *durationpb.Duration) *time.Duration {
	if p == nil {
		return nil
	}
	d := p.AsDuration()
	return &d
}

// Timestamp leaves the zero time out.
func Timestamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// Time is zero for an absent timestamp.
func Time(p *timestamppb.Timestamp) time.Time {
	if p == nil {
		return time.Time{}
	}
	return p.AsTime()
}

func each[A, B any](in []A, f func(A) B) []B {
	if len(in) == 0 {
		return nil
	}
	out := make([]B, len(in))
	for i, v := range in {
		out[i] = f(v)
	}
	return out
}

// known gives v when it is one of the values up to last, else zero.
func known[T ~uint8, E ~int32](v E, last T) T {
	if v < 0 || v > E(last) {
		return 0
	}
	return T(v)
}

// ValueProto gives the message of a configuration value; nil for the zero value.
func ValueProto(v schema.Value) *pb.DynamicValue {
	if v.MsgPack == nil && v.JSON == nil {
		return nil
	}
	return &pb.DynamicValue{Msgpack: v.MsgPack, Json: v.JSON}
}

// Value gives the configuration value of a message.
func Value(p *pb.DynamicValue) schema.Value {
	return schema.Value{MsgPack: p.GetMsgpack(), JSON: p.GetJson()}
}

// FeaturesProto gives the words of features.
func FeaturesProto(in []driver.Feature) []string {
	return each(in, func(f driver.Feature) string { return string(f) })
}

// Features gives the features of words.
func Features(in []string) []driver.Feature {
	return each(in, func(s string) driver.Feature { return driver.Feature(s) })
}

// PathProto gives the message of a path into a configuration body.
func PathProto(path []errs.PathStep) *pb.AttributePath {
	if len(path) == 0 {
		return nil
	}
	return &pb.AttributePath{Steps: each(path, func(s errs.PathStep) *pb.AttributePath_Step {
		switch {
		case s.Index != nil:
			return &pb.AttributePath_Step{Selector: &pb.AttributePath_Step_ElementKeyInt{ElementKeyInt: *s.Index}}
		case s.Key != "":
			return &pb.AttributePath_Step{Selector: &pb.AttributePath_Step_ElementKeyString{ElementKeyString: s.Key}}
		default:
			return &pb.AttributePath_Step{Selector: &pb.AttributePath_Step_AttributeName{AttributeName: s.Attribute}}
		}
	})}
}

// Path gives the path of a message.
func Path(p *pb.AttributePath) []errs.PathStep {
	return each(p.GetSteps(), func(s *pb.AttributePath_Step) errs.PathStep {
		switch sel := s.GetSelector().(type) {
		case *pb.AttributePath_Step_ElementKeyInt:
			return errs.PathStep{Index: &sel.ElementKeyInt}
		case *pb.AttributePath_Step_ElementKeyString:
			return errs.PathStep{Key: sel.ElementKeyString}
		default:
			return errs.PathStep{Attribute: s.GetAttributeName()}
		}
	})
}

// DiagnosticsProto gives the messages of findings.
func DiagnosticsProto(in []driver.Diagnostic) []*pb.Diagnostic {
	return each(in, func(d driver.Diagnostic) *pb.Diagnostic {
		sev := pb.Severity_SEVERITY_ERROR
		if d.Warning {
			sev = pb.Severity_SEVERITY_WARNING
		}
		return &pb.Diagnostic{Severity: sev, Summary: d.Summary, Detail: d.Detail, Path: PathProto(d.Path), Url: d.URL}
	})
}

// Diagnostics gives the findings of messages. What is not a warning is an error.
func Diagnostics(in []*pb.Diagnostic) []driver.Diagnostic {
	return each(in, func(p *pb.Diagnostic) driver.Diagnostic {
		return driver.Diagnostic{
			Warning: p.GetSeverity() == pb.Severity_SEVERITY_WARNING,
			Summary: p.GetSummary(), Detail: p.GetDetail(), Path: Path(p.GetPath()), URL: p.GetUrl(),
		}
	})
}

func secretEnvProto(env map[string]string) []*pb.SecretEnv {
	if len(env) == 0 {
		return nil
	}
	out := make([]*pb.SecretEnv, 0, len(env))
	for k, v := range env {
		out = append(out, &pb.SecretEnv{Name: k, Value: v})
	}
	slices.SortFunc(out, func(a, b *pb.SecretEnv) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return out
}

func secretEnv(in []*pb.SecretEnv) map[string]string {
	if len(in) == 0 {
		return nil
	}
	out := make(map[string]string, len(in))
	for _, e := range in {
		out[e.GetName()] = e.GetValue()
	}
	return out
}
