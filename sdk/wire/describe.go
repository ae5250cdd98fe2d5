// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/json"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	pb "github.com/berth-dev/berth/sdk/proto/berth/driver/v1"
	"github.com/berth-dev/berth/sdk/schema"
)

// DescriptionProto gives the message of a description. It fails when a schema holds a default that is not data.
func DescriptionProto(d driver.Description) (*pb.DescribeResponse, error) {
	process, err := SchemaProto(d.ProcessConfig)
	if err != nil {
		return nil, errs.Wrap(errs.Internal, "process configuration", err)
	}
	sandbox, err := SchemaProto(d.SandboxConfig)
	if err != nil {
		return nil, errs.Wrap(errs.Internal, "sandbox configuration", err)
	}
	return &pb.DescribeResponse{
		Name: d.Name, Version: d.Version, Features: FeaturesProto(d.Features),
		ProcessConfig: process, SandboxConfig: sandbox,
		Mounts: each(d.Mounts, func(m driver.MountSupport) *pb.MountSupport {
			return &pb.MountSupport{Kind: m.Kind, Strategies: m.Strategies, ReadOnlyOnly: m.ReadOnlyOnly}
		}),
		Limits: &pb.Limits{
			MaxSandboxes: d.Limits.MaxSandboxes, MaxLifetime: duration(d.Limits.MaxLifetime),
			MaxFileBytes: d.Limits.MaxFileBytes, MaxExecTimeout: duration(d.Limits.MaxExecTimeout),
		},
		Platforms: each(d.Platforms, func(p driver.Platform) *pb.Platform { return &pb.Platform{Os: p.OS, Arch: p.Arch} }),
		Docs:      d.Docs, StateVersion: d.StateVersion, StateVersionsReadable: d.StateReadable, SecretsEnv: d.SecretsEnv,
		Unimplementable: each(d.Unimplementable, func(u driver.Unimplementable) *pb.Unimplementable {
			return &pb.Unimplementable{Feature: string(u.Feature), Reason: u.Reason}
		}),
		ValueEncoding: pb.Encoding_ENCODING_MSGPACK,
		Isolation:     isolationProto(d.Isolation),
	}, nil
}

// Description gives the description of a message.
func Description(p *pb.DescribeResponse) (driver.Description, error) {
	process, err := Schema(p.GetProcessConfig())
	if err != nil {
		return driver.Description{}, errs.Wrap(errs.DriverIncompatible, "process configuration", err)
	}
	sandbox, err := Schema(p.GetSandboxConfig())
	if err != nil {
		return driver.Description{}, errs.Wrap(errs.DriverIncompatible, "sandbox configuration", err)
	}
	return driver.Description{
		Name: p.GetName(), Version: p.GetVersion(), Features: Features(p.GetFeatures()),
		ProcessConfig: process, SandboxConfig: sandbox,
		Mounts: each(p.GetMounts(), func(m *pb.MountSupport) driver.MountSupport {
			return driver.MountSupport{Kind: m.GetKind(), Strategies: m.GetStrategies(), ReadOnlyOnly: m.GetReadOnlyOnly()}
		}),
		Limits: driver.Limits{
			MaxSandboxes: p.GetLimits().GetMaxSandboxes(), MaxLifetime: p.GetLimits().GetMaxLifetime().AsDuration(),
			MaxFileBytes: p.GetLimits().GetMaxFileBytes(), MaxExecTimeout: p.GetLimits().GetMaxExecTimeout().AsDuration(),
		},
		Platforms: each(p.GetPlatforms(), func(p *pb.Platform) driver.Platform {
			return driver.Platform{OS: p.GetOs(), Arch: p.GetArch()}
		}),
		Docs: p.GetDocs(), StateVersion: p.GetStateVersion(), StateReadable: p.GetStateVersionsReadable(),
		SecretsEnv: p.GetSecretsEnv(),
		Unimplementable: each(p.GetUnimplementable(), func(u *pb.Unimplementable) driver.Unimplementable {
			return driver.Unimplementable{Feature: driver.Feature(u.GetFeature()), Reason: u.GetReason()}
		}),
		Isolation: isolation(p.GetIsolation()),
	}, nil
}

// MarshalDescription gives the JSON that `describe --json` prints and that caches hold.
func MarshalDescription(d driver.Description) ([]byte, error) {
	p, err := DescriptionProto(d)
	if err != nil {
		return nil, err
	}
	b, err := protojson.MarshalOptions{Multiline: true, Indent: "  "}.Marshal(p)
	return b, errs.Wrap(errs.Internal, "describe", err)
}

// UnmarshalDescription reads what [MarshalDescription] wrote, also that of a newer driver.
func UnmarshalDescription(b []byte) (driver.Description, error) {
	var p pb.DescribeResponse
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(b, &p); err != nil {
		return driver.Description{}, errs.Wrap(errs.DriverIncompatible, "read description", err)
	}
	return Description(&p)
}

func isolationProto(in []driver.Isolation) []*pb.IsolationStatement {
	return each(in, func(i driver.Isolation) *pb.IsolationStatement {
		return &pb.IsolationStatement{Axis: i.Axis, Statement: i.Statement, Strength: i.Strength, Gap: i.Gap}
	})
}

func isolation(in []*pb.IsolationStatement) []driver.Isolation {
	return each(in, func(p *pb.IsolationStatement) driver.Isolation {
		return driver.Isolation{Axis: p.GetAxis(), Statement: p.GetStatement(), Strength: p.GetStrength(), Gap: p.GetGap()}
	})
}

// SchemaProto gives the message of a schema; nil for nil.
func SchemaProto(s *schema.Schema) (*pb.Schema, error) {
	if s == nil {
		return nil, nil
	}
	b, err := blockProto(s.Block)
	if err != nil {
		return nil, err
	}
	return &pb.Schema{Version: s.Version, Block: b}, nil
}

// Schema gives the schema of a message; nil for nil. Defaults come back as JSON decodes them.
func Schema(p *pb.Schema) (*schema.Schema, error) {
	if p == nil {
		return nil, nil
	}
	b, err := block(p.GetBlock())
	if err != nil {
		return nil, err
	}
	return &schema.Schema{Version: p.GetVersion(), Block: b}, nil
}

func blockProto(b schema.Block) (*pb.Block, error) {
	out := &pb.Block{Doc: b.Doc}
	for _, a := range b.Attributes {
		p, err := attributeProto(a)
		if err != nil {
			return nil, errs.Wrap(errs.Internal, "attribute "+a.Name, err)
		}
		out.Attributes = append(out.Attributes, p)
	}
	for _, n := range b.Blocks {
		inner, err := blockProto(n.Block)
		if err != nil {
			return nil, errs.Wrap(errs.Internal, "block "+n.Type, err)
		}
		out.Blocks = append(out.Blocks, &pb.NestedBlock{
			Type: n.Type, Block: inner, Nesting: pb.Nesting(n.Nesting), Min: n.Min, Max: n.Max, Labels: n.Labels,
		})
	}
	return out, nil
}

func block(p *pb.Block) (schema.Block, error) {
	out := schema.Block{Doc: p.GetDoc()}
	for _, a := range p.GetAttributes() {
		v, err := attribute(a)
		if err != nil {
			return schema.Block{}, errs.Wrap(errs.DriverIncompatible, "attribute "+a.GetName(), err)
		}
		out.Attributes = append(out.Attributes, v)
	}
	for _, n := range p.GetBlocks() {
		inner, err := block(n.GetBlock())
		if err != nil {
			return schema.Block{}, errs.Wrap(errs.DriverIncompatible, "block "+n.GetType(), err)
		}
		out.Blocks = append(out.Blocks, schema.NestedBlock{
			Type: n.GetType(), Block: inner, Nesting: known(n.GetNesting(), schema.Map),
			Min: n.GetMin(), Max: n.GetMax(), Labels: n.GetLabels(),
		})
	}
	return out, nil
}

func attributeProto(a schema.Attribute) (*pb.Attribute, error) {
	typ, err := a.Type.MarshalJSON()
	if err != nil {
		return nil, err
	}
	p := &pb.Attribute{
		Name: a.Name, Type: typ, Required: a.Required, Doc: a.Doc, Sensitive: a.Sensitive, Immutable: a.Immutable,
		OneOf: a.OneOf, Pattern: a.Pattern, Min: a.Min, Max: a.Max, Unit: a.Unit, Env: a.Env,
		ConflictsWith: a.ConflictsWith, Requires: a.Requires, Example: a.Example,
	}
	if a.Default != nil {
		b, err := json.Marshal(a.Default)
		if err != nil {
			return nil, err
		}
		p.Default = &pb.DynamicValue{Json: b}
	}
	if a.Deprecated != nil {
		p.Deprecated = &pb.Deprecation{Message: a.Deprecated.Message, Replacement: a.Deprecated.Replacement}
	}
	return p, nil
}

func attribute(p *pb.Attribute) (schema.Attribute, error) {
	a := schema.Attribute{
		Name: p.GetName(), Required: p.GetRequired(), Doc: p.GetDoc(), Sensitive: p.GetSensitive(),
		Immutable: p.GetImmutable(), OneOf: p.GetOneOf(), Pattern: p.GetPattern(), Min: p.Min, Max: p.Max,
		Unit: p.GetUnit(), Env: p.GetEnv(), ConflictsWith: p.GetConflictsWith(), Requires: p.GetRequires(),
		Example: p.GetExample(),
	}
	if err := a.Type.UnmarshalJSON(p.GetType()); err != nil {
		return a, err
	}
	if j := p.GetDefault().GetJson(); j != nil {
		if err := json.Unmarshal(j, &a.Default); err != nil {
			return a, err
		}
	}
	if d := p.GetDeprecated(); d != nil {
		a.Deprecated = &schema.Deprecation{Message: d.GetMessage(), Replacement: d.GetReplacement()}
	}
	return a, nil
}
