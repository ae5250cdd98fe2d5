// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"github.com/berth-dev/berth/sdk/driver"
	pb "github.com/berth-dev/berth/sdk/proto/berth/driver/v1"
)

// StateProto gives the message of a state.
func StateProto(s driver.State) *pb.SandboxState {
	return &pb.SandboxState{Version: s.Version, Data: s.Data, Display: s.Display, Deadline: Timestamp(s.Deadline)}
}

// State gives the state of a message.
func State(p *pb.SandboxState) driver.State {
	return driver.State{Version: p.GetVersion(), Data: p.GetData(), Display: p.GetDisplay(), Deadline: Time(p.GetDeadline())}
}

// CreateRequestProto gives the message of a request. Progress is not part of it.
func CreateRequestProto(r *driver.CreateRequest) *pb.CreateRequest {
	return &pb.CreateRequest{
		SandboxId: r.SandboxID, Config: ValueProto(r.Config),
		Workspace: &pb.Workspace{
			Root: r.Workspace.Root, Owner: r.Workspace.Owner, Group: r.Workspace.Group, Mode: r.Workspace.Mode,
			Template: r.Workspace.Template,
		},
		Env: r.Env, SecretEnv: secretEnvProto(r.SecretEnv),
		Ports:  each(r.Ports, func(p uint16) uint32 { return uint32(p) }),
		Mounts: each(r.Mounts, MountSpecProto), Grants: each(r.Grants, grantProto), Accounts: AccountsProto(r.Accounts),
		Labels: r.Labels, NativeSnapshotId: r.NativeSnapshot, MaxLifetime: duration(r.MaxLifetime),
		Network:   &pb.NetworkPolicy{Mode: r.Network.Mode, Allow: r.Network.Allow},
		OrphanTtl: optionalDuration(r.OrphanTTL), RunAs: r.RunAs,
		Limits: &pb.ResourceLimits{
			Processes: r.Limits.Processes, MemoryBytes: r.Limits.MemoryBytes, Cpus: r.Limits.CPUs,
			FileBytes: r.Limits.FileBytes, OpenFiles: r.Limits.OpenFiles,
		},
	}
}

// CreateRequest gives the request of a message.
func CreateRequest(p *pb.CreateRequest) *driver.CreateRequest {
	w, l := p.GetWorkspace(), p.GetLimits()
	return &driver.CreateRequest{
		SandboxID: p.GetSandboxId(), Config: Value(p.GetConfig()),
		Workspace: driver.Workspace{
			Root: w.GetRoot(), Owner: w.GetOwner(), Group: w.GetGroup(), Mode: w.GetMode(), Template: w.GetTemplate(),
		},
		Env: p.GetEnv(), SecretEnv: secretEnv(p.GetSecretEnv()),
		Ports:  each(p.GetPorts(), func(p uint32) uint16 { return uint16(p) }),
		Mounts: each(p.GetMounts(), MountSpec), Grants: each(p.GetGrants(), grant), Accounts: Accounts(p.GetAccounts()),
		Labels: p.GetLabels(), NativeSnapshot: p.GetNativeSnapshotId(), MaxLifetime: p.GetMaxLifetime().AsDuration(),
		Network:   driver.NetworkPolicy{Mode: p.GetNetwork().GetMode(), Allow: p.GetNetwork().GetAllow()},
		OrphanTTL: fromOptionalDuration(p.GetOrphanTtl()), RunAs: p.GetRunAs(),
		Limits: driver.ResourceLimits{
			Processes: l.GetProcesses(), MemoryBytes: l.GetMemoryBytes(), CPUs: l.GetCpus(),
			FileBytes: l.GetFileBytes(), OpenFiles: l.GetOpenFiles(),
		},
	}
}

// ResumeRequestProto gives the message of a request. Progress is not part of it.
func ResumeRequestProto(r *driver.ResumeRequest) *pb.ResumeRequest {
	return &pb.ResumeRequest{
		SandboxId: r.SandboxID, State: StateProto(r.State), Config: ValueProto(r.Config), Env: r.Env,
		SecretEnv: secretEnvProto(r.SecretEnv), Mounts: each(r.Mounts, MountSpecProto),
		Grants: each(r.Grants, grantProto), OrphanTtl: optionalDuration(r.OrphanTTL),
	}
}

// ResumeRequest gives the request of a message.
func ResumeRequest(p *pb.ResumeRequest) *driver.ResumeRequest {
	return &driver.ResumeRequest{
		SandboxID: p.GetSandboxId(), State: State(p.GetState()), Config: Value(p.GetConfig()), Env: p.GetEnv(),
		SecretEnv: secretEnv(p.GetSecretEnv()), Mounts: each(p.GetMounts(), MountSpec),
		Grants: each(p.GetGrants(), grant), OrphanTTL: fromOptionalDuration(p.GetOrphanTtl()),
	}
}

func grantProto(g driver.PathGrant) *pb.PathGrant {
	return &pb.PathGrant{Path: g.Path, HostPath: g.HostPath, ReadOnly: g.ReadOnly, Description: g.Description}
}

func grant(p *pb.PathGrant) driver.PathGrant {
	return driver.PathGrant{
		Path: p.GetPath(), HostPath: p.GetHostPath(), ReadOnly: p.GetReadOnly(), Description: p.GetDescription(),
	}
}

// AccountsProto gives the message of accounts.
func AccountsProto(a driver.Accounts) *pb.Accounts {
	return &pb.Accounts{
		Users:  each(a.Users, func(n string) *pb.User { return &pb.User{Name: n} }),
		Groups: each(a.Groups, func(g driver.Group) *pb.Group { return &pb.Group{Name: g.Name, Users: g.Users} }),
	}
}

// Accounts gives the accounts of a message.
func Accounts(p *pb.Accounts) driver.Accounts {
	return driver.Accounts{
		Users:  each(p.GetUsers(), (*pb.User).GetName),
		Groups: each(p.GetGroups(), func(g *pb.Group) driver.Group { return driver.Group{Name: g.GetName(), Users: g.GetUsers()} }),
	}
}

// MountSpecProto gives the message of a mount.
func MountSpecProto(m driver.MountSpec) *pb.MountSpec {
	return &pb.MountSpec{
		Id: m.ID, Kind: m.Kind, Path: m.Path, ReadOnly: m.ReadOnly, Strategy: m.Strategy, Source: ValueProto(m.Source),
		StrategyConfig: ValueProto(m.StrategyConfig), Credentials: m.Credentials, HostPath: m.HostPath,
	}
}

// MountSpec gives the mount of a message.
func MountSpec(p *pb.MountSpec) driver.MountSpec {
	return driver.MountSpec{
		ID: p.GetId(), Kind: p.GetKind(), Path: p.GetPath(), ReadOnly: p.GetReadOnly(), Strategy: p.GetStrategy(),
		Source: Value(p.GetSource()), StrategyConfig: Value(p.GetStrategyConfig()), Credentials: p.GetCredentials(),
		HostPath: p.GetHostPath(),
	}
}

// MountInfoProto gives the message of an attached mount.
func MountInfoProto(m driver.MountInfo) *pb.MountInfo {
	return &pb.MountInfo{
		Id: m.ID, Path: m.Path, ReadOnly: m.ReadOnly, Strategy: m.Strategy,
		CredentialsExpire: Timestamp(m.CredentialsExpires),
	}
}

// MountInfo gives the attached mount of a message.
func MountInfo(p *pb.MountInfo) driver.MountInfo {
	return driver.MountInfo{
		ID: p.GetId(), Path: p.GetPath(), ReadOnly: p.GetReadOnly(), Strategy: p.GetStrategy(),
		CredentialsExpires: Time(p.GetCredentialsExpire()),
	}
}

// InfoProto gives the message of what is known of a sandbox.
func InfoProto(i driver.Info) *pb.SandboxInfo {
	return &pb.SandboxInfo{
		SandboxId: i.SandboxID, Status: string(i.Status), Labels: i.Labels, Created: Timestamp(i.Created),
		Deadline: Timestamp(i.Deadline), WorkspaceRoot: i.Root, Os: i.OS, Arch: i.Arch,
		Isolation: isolationProto(i.Isolation), Display: i.Display, Features: FeaturesProto(i.Features),
	}
}

// Info gives what a message says of a sandbox.
func Info(p *pb.SandboxInfo) driver.Info {
	return driver.Info{
		SandboxID: p.GetSandboxId(), Status: driver.Status(p.GetStatus()), Labels: p.GetLabels(),
		Created: Time(p.GetCreated()), Deadline: Time(p.GetDeadline()), Root: p.GetWorkspaceRoot(),
		OS: p.GetOs(), Arch: p.GetArch(), Isolation: isolation(p.GetIsolation()), Display: p.GetDisplay(),
		Features: Features(p.GetFeatures()),
	}
}

// ProgressProto gives the message of news.
func ProgressProto(p driver.Progress) *pb.Progress {
	return &pb.Progress{Phase: p.Phase, Message: p.Message, Done: p.Done, Total: p.Total}
}

// Progress gives the news of a message.
func Progress(p *pb.Progress) driver.Progress {
	return driver.Progress{Phase: p.GetPhase(), Message: p.GetMessage(), Done: p.GetDone(), Total: p.GetTotal()}
}

// EventProto gives the message of an event of a sandbox.
func EventProto(sandboxID string, e driver.Event) *pb.SandboxEvent {
	return &pb.SandboxEvent{
		SandboxId: sandboxID, Kind: pb.SandboxEvent_Kind(e.Kind), Message: e.Message, Deadline: Timestamp(e.Deadline),
		Port: uint32(e.Port),
	}
}

// Event gives the event of a message.
func Event(p *pb.SandboxEvent) driver.Event {
	return driver.Event{
		Kind: known(p.GetKind(), driver.EventPortClosed), Message: p.GetMessage(), Deadline: Time(p.GetDeadline()),
		Port: uint16(p.GetPort()),
	}
}

// NativeSnapshotProto gives the message of a snapshot.
func NativeSnapshotProto(s driver.NativeSnapshot) *pb.NativeSnapshot {
	return &pb.NativeSnapshot{
		Id: s.ID, SandboxId: s.SandboxID, Created: Timestamp(s.Created), Bytes: s.Bytes, Memory: s.Memory, Labels: s.Labels,
	}
}

// NativeSnapshot gives the snapshot of a message.
func NativeSnapshot(p *pb.NativeSnapshot) driver.NativeSnapshot {
	return driver.NativeSnapshot{
		ID: p.GetId(), SandboxID: p.GetSandboxId(), Created: Time(p.GetCreated()), Bytes: p.GetBytes(),
		Memory: p.GetMemory(), Labels: p.GetLabels(),
	}
}

// EndpointProto gives the message of an address.
func EndpointProto(e driver.Endpoint) *pb.Endpoint {
	return &pb.Endpoint{
		Host: e.Host, Port: uint32(e.Port), Tls: e.TLS, Path: e.Path, Query: e.Query, Headers: e.Headers,
		Expires: Timestamp(e.Expires),
	}
}

// Endpoint gives the address of a message.
func Endpoint(p *pb.Endpoint) driver.Endpoint {
	return driver.Endpoint{
		Host: p.GetHost(), Port: uint16(p.GetPort()), TLS: p.GetTls(), Path: p.GetPath(), Query: p.GetQuery(),
		Headers: p.GetHeaders(), Expires: Time(p.GetExpires()),
	}
}

// OrphanPolicyProto gives the message of a policy.
func OrphanPolicyProto(p driver.OrphanPolicy) pb.OrphanPolicy { return pb.OrphanPolicy(p) }

// OrphanPolicy gives the policy of a message; park when it is unspecified.
func OrphanPolicy(p pb.OrphanPolicy) driver.OrphanPolicy {
	if v := known(p, driver.OrphanDestroy); v != 0 {
		return v
	}
	return driver.OrphanPark
}

// HostProto gives the configure message of what a driver is told; features are those that the core accepted.
func HostProto(h driver.Host, features []driver.Feature, config *pb.DynamicValue) *pb.ConfigureRequest {
	return &pb.ConfigureRequest{
		Config: config, Features: FeaturesProto(features), CoreVersion: h.CoreVersion, CoreId: h.CoreID,
		RunDir: h.RunDir, CacheDir: h.CacheDir, StateDir: h.StateDir, LogLevel: h.LogLevel,
		OrphanPolicy: OrphanPolicyProto(h.Orphans), Labels: h.Labels,
	}
}

// Host gives what a configure message tells.
func Host(p *pb.ConfigureRequest) driver.Host {
	return driver.Host{
		CoreVersion: p.GetCoreVersion(), CoreID: p.GetCoreId(), RunDir: p.GetRunDir(), CacheDir: p.GetCacheDir(),
		StateDir: p.GetStateDir(), LogLevel: p.GetLogLevel(), Orphans: OrphanPolicy(p.GetOrphanPolicy()),
		Labels: p.GetLabels(),
	}
}
