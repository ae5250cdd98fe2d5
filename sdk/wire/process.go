// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"github.com/berth-dev/berth/sdk/driver"
	pb "github.com/berth-dev/berth/sdk/proto/berth/driver/v1"
)

// StartProto gives the message that starts a command; stdin says whether standard input stays open.
func StartProto(sandboxID string, c *driver.Command, stdin bool) *pb.Start {
	return &pb.Start{
		SandboxId: sandboxID, ProcessId: c.ID, Argv: c.Argv, Env: c.Env, SecretEnv: secretEnvProto(c.SecretEnv),
		Cwd: c.Dir, User: c.User, Tty: c.TTY, Size: SizeProto(c.Size), Stdin: stdin, Timeout: duration(c.Timeout),
		KillGrace: duration(c.KillGrace), Detached: c.Detached, ReplayBytes: c.ReplayBytes,
	}
}

// Command gives the command of a message.
func Command(p *pb.Start) *driver.Command {
	return &driver.Command{
		ID: p.GetProcessId(), Argv: p.GetArgv(), Env: p.GetEnv(), SecretEnv: secretEnv(p.GetSecretEnv()), Dir: p.GetCwd(),
		User: p.GetUser(), TTY: p.GetTty(), Size: Size(p.GetSize()), Timeout: p.GetTimeout().AsDuration(),
		KillGrace: p.GetKillGrace().AsDuration(), Detached: p.GetDetached(), ReplayBytes: p.GetReplayBytes(),
	}
}

// SizeProto gives the message of a terminal's size; nil for the zero size.
func SizeProto(s driver.Size) *pb.Winsize {
	if s == (driver.Size{}) {
		return nil
	}
	return &pb.Winsize{Rows: uint32(s.Rows), Cols: uint32(s.Cols)}
}

// Size gives the size of a message.
func Size(p *pb.Winsize) driver.Size {
	return driver.Size{Rows: uint16(p.GetRows()), Cols: uint16(p.GetCols())}
}

// SignalProto gives the message of a signal.
func SignalProto(s driver.Signal) *pb.Sig { return &pb.Sig{Name: s.Name, LeaderOnly: s.LeaderOnly} }

// Signal gives the signal of a message.
func Signal(p *pb.Sig) driver.Signal {
	return driver.Signal{Name: p.GetName(), LeaderOnly: p.GetLeaderOnly()}
}

// StartedProto gives the message that a process exists.
func StartedProto(s driver.Started) *pb.Started {
	return &pb.Started{ProcessId: s.ProcessID, Pid: s.PID, Reattached: s.Reattached}
}

// Started gives what a message says of a process that exists.
func Started(p *pb.Started) driver.Started {
	return driver.Started{ProcessID: p.GetProcessId(), PID: p.GetPid(), Reattached: p.GetReattached()}
}

// ExitProto gives the message of an end.
func ExitProto(e driver.Exit) *pb.Exited {
	return &pb.Exited{
		Code: int32(e.Code), Signal: e.Signal, TimedOut: e.TimedOut, Oom: e.OOM, KilledByStop: e.KilledByStop,
		Ran: duration(e.Ran), OutputBytes: e.OutputBytes,
	}
}

// Exit gives the end of a message.
func Exit(p *pb.Exited) driver.Exit {
	return driver.Exit{
		Code: int(p.GetCode()), Signal: p.GetSignal(), TimedOut: p.GetTimedOut(), OOM: p.GetOom(),
		KilledByStop: p.GetKilledByStop(), Ran: p.GetRan().AsDuration(), OutputBytes: p.GetOutputBytes(),
	}
}

// ProcessProto gives the message of a process.
func ProcessProto(p driver.Process) *pb.ProcessInfo {
	out := &pb.ProcessInfo{
		ProcessId: p.ID, Pid: p.PID, Argv: p.Argv, User: p.User, Tty: p.TTY, Started: Timestamp(p.Started),
		Running: p.Exit == nil, OutputBytes: p.OutputBytes,
	}
	if p.Exit != nil {
		out.Exited = ExitProto(*p.Exit)
	}
	return out
}

// Process gives the process of a message.
func Process(p *pb.ProcessInfo) driver.Process {
	out := driver.Process{
		ID: p.GetProcessId(), PID: p.GetPid(), Argv: p.GetArgv(), User: p.GetUser(), TTY: p.GetTty(),
		Started: Time(p.GetStarted()), OutputBytes: p.GetOutputBytes(),
	}
	if !p.GetRunning() {
		e := Exit(p.GetExited())
		out.Exit = &e
	}
	return out
}
