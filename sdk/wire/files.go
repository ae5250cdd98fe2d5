// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"strings"
	"unicode/utf8"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	pb "github.com/berth-dev/berth/sdk/proto/berth/driver/v1"
)

// FileInfoProto gives the message of a file.
func FileInfoProto(f driver.FileInfo) *pb.FileInfo {
	p := &pb.FileInfo{
		Path: f.Path, Type: pb.FileType(f.Type), Size: f.Size, Mode: f.Mode, User: f.User, Group: f.Group,
		Mtime: Timestamp(f.ModTime), Target: f.Target, Version: f.Version, Uid: f.UID, Gid: f.GID, Nlink: f.Nlink,
	}
	if !utf8.ValidString(f.Path) {
		p.RawPath = []byte(f.Path)
		p.Path = strings.ToValidUTF8(f.Path, "\uFFFD")
	}
	return p
}

// FileInfo gives the file of a message.
func FileInfo(p *pb.FileInfo) driver.FileInfo {
	f := driver.FileInfo{
		Path: p.GetPath(), Type: known(p.GetType(), driver.TypeDevice), Size: p.GetSize(), Mode: p.GetMode(),
		User: p.GetUser(), Group: p.GetGroup(), UID: p.GetUid(), GID: p.GetGid(), Nlink: p.GetNlink(),
		ModTime: Time(p.GetMtime()), Target: p.GetTarget(), Version: p.GetVersion(),
	}
	if raw := p.GetRawPath(); len(raw) > 0 {
		f.Path = string(raw)
	}
	return f
}

// StatResultProto gives the message of one answer.
func StatResultProto(r driver.StatResult) *pb.StatResult {
	if r.Err == nil {
		return &pb.StatResult{Info: FileInfoProto(r.Info)}
	}
	return &pb.StatResult{Code: string(errs.CodeOf(r.Err)), Message: r.Err.Error()}
}

// StatResult gives the answer of a message.
func StatResult(p *pb.StatResult) driver.StatResult {
	if p.GetCode() != "" {
		return driver.StatResult{Err: &errs.Error{Code: errs.Code(p.GetCode()), Message: p.GetMessage()}}
	}
	return driver.StatResult{Info: FileInfo(p.GetInfo())}
}

// ListFilesProto gives the message of a listing that is wanted.
func ListFilesProto(sandboxID, path string, o driver.ListOptions) *pb.ListFilesRequest {
	return &pb.ListFilesRequest{
		SandboxId: sandboxID, Path: path, Recursive: o.Recursive, Limit: uint32(o.Limit), Exclude: o.Exclude, User: o.User,
	}
}

// ListOptions gives the options of a message.
func ListOptions(p *pb.ListFilesRequest) driver.ListOptions {
	return driver.ListOptions{
		Recursive: p.GetRecursive(), Limit: int(p.GetLimit()), Exclude: p.GetExclude(), User: p.GetUser(),
	}
}

// ReadProto gives the message of a read.
func ReadProto(sandboxID, path string, o driver.ReadOptions) *pb.ReadRequest {
	return &pb.ReadRequest{
		SandboxId: sandboxID, Path: path, Offset: o.Offset, Length: o.Length, IfVersion: o.IfVersion, User: o.User,
	}
}

// ReadOptions gives the options of a message.
func ReadOptions(p *pb.ReadRequest) driver.ReadOptions {
	return driver.ReadOptions{
		Offset: p.GetOffset(), Length: p.GetLength(), IfVersion: p.GetIfVersion(), User: p.GetUser(),
	}
}

// WriteHeaderProto gives the message that begins a write.
func WriteHeaderProto(sandboxID, path string, o driver.WriteOptions) *pb.WriteHeader {
	return &pb.WriteHeader{
		SandboxId: sandboxID, Path: path, Mode: o.Mode, Exclusive: o.Exclusive, Parents: o.Parents, Append: o.Append,
		InPlace: o.InPlace, IfVersion: o.IfVersion, User: o.User, Mtime: Timestamp(o.ModTime),
	}
}

// WriteOptions gives the options of a message.
func WriteOptions(p *pb.WriteHeader) driver.WriteOptions {
	return driver.WriteOptions{
		Mode: p.GetMode(), Exclusive: p.GetExclusive(), Parents: p.GetParents(), Append: p.GetAppend(),
		InPlace: p.GetInPlace(), IfVersion: p.GetIfVersion(), User: p.GetUser(), ModTime: Time(p.GetMtime()),
	}
}

// WriteResultProto gives the message of a file as written.
func WriteResultProto(r driver.WriteResult) *pb.WriteResponse {
	return &pb.WriteResponse{Info: FileInfoProto(r.Info), Sha256: r.SHA256[:]}
}

// WriteResult gives the file of a message.
func WriteResult(p *pb.WriteResponse) driver.WriteResult {
	r := driver.WriteResult{Info: FileInfo(p.GetInfo())}
	copy(r.SHA256[:], p.GetSha256())
	return r
}

// MetaChangeProto gives the message of a change.
func MetaChangeProto(sandboxID, path string, c driver.MetaChange) *pb.SetMetaRequest {
	return &pb.SetMetaRequest{
		SandboxId: sandboxID, Path: path, Mode: c.Mode, Owner: c.Owner, Group: c.Group, Mtime: Timestamp(c.ModTime),
		Recursive: c.Recursive,
	}
}

// MetaChange gives the change of a message.
func MetaChange(p *pb.SetMetaRequest) driver.MetaChange {
	return driver.MetaChange{
		Mode: p.Mode, Owner: p.Owner, Group: p.Group, ModTime: Time(p.GetMtime()), Recursive: p.GetRecursive(),
	}
}

// ExportProto gives the message of an export.
func ExportProto(sandboxID string, o driver.ExportOptions) *pb.ExportRequest {
	return &pb.ExportRequest{SandboxId: sandboxID, Path: o.Path, Exclude: o.Exclude, Compression: o.Compression}
}

// ExportOptions gives the options of a message.
func ExportOptions(p *pb.ExportRequest) driver.ExportOptions {
	return driver.ExportOptions{Path: p.GetPath(), Exclude: p.GetExclude(), Compression: p.GetCompression()}
}

// ImportHeaderProto gives the message that begins an import.
func ImportHeaderProto(sandboxID string, o driver.ImportOptions) *pb.ImportHeader {
	return &pb.ImportHeader{
		SandboxId: sandboxID, Path: o.Path, Replace: o.Replace,
		Limits: &pb.TreeLimits{
			MaxInputBytes: o.Limits.MaxInputBytes, MaxExtractedBytes: o.Limits.MaxExtractedBytes,
			MaxMembers: o.Limits.MaxMembers,
		},
		Owner: o.Owner, Group: o.Group, Template: o.Template, HostReferences: o.HostReferences, Compression: o.Compression,
	}
}

// ImportOptions gives the options of a message.
func ImportOptions(p *pb.ImportHeader) driver.ImportOptions {
	return driver.ImportOptions{
		Path: p.GetPath(), Replace: p.GetReplace(),
		Limits: driver.TreeLimits{
			MaxInputBytes:     p.GetLimits().GetMaxInputBytes(),
			MaxExtractedBytes: p.GetLimits().GetMaxExtractedBytes(), MaxMembers: p.GetLimits().GetMaxMembers(),
		},
		Owner: p.GetOwner(), Group: p.GetGroup(), Template: p.GetTemplate(), HostReferences: p.GetHostReferences(),
		Compression: p.GetCompression(),
	}
}

// ImportResultProto gives the message of what an import did.
func ImportResultProto(r driver.ImportResult) *pb.ImportResponse {
	return &pb.ImportResponse{
		Members: r.Members, Bytes: r.Bytes,
		Skipped: each(r.Skipped, func(s driver.Skipped) *pb.SkippedMember {
			return &pb.SkippedMember{Path: strings.ToValidUTF8(s.Path, "\uFFFD"), Reason: s.Reason}
		}),
	}
}

// ImportResult gives what a message says an import did.
func ImportResult(p *pb.ImportResponse) driver.ImportResult {
	return driver.ImportResult{
		Members: p.GetMembers(), Bytes: p.GetBytes(),
		Skipped: each(p.GetSkipped(), func(s *pb.SkippedMember) driver.Skipped {
			return driver.Skipped{Path: s.GetPath(), Reason: s.GetReason()}
		}),
	}
}

// FileEventProto gives the message of a change of a file.
func FileEventProto(e driver.FileEvent) *pb.FileEvent {
	return &pb.FileEvent{Kind: pb.FileEvent_Kind(e.Kind), Path: e.Path, ResumeToken: e.ResumeToken}
}

// FileEvent gives the change of a message.
func FileEvent(p *pb.FileEvent) driver.FileEvent {
	return driver.FileEvent{
		Kind: known(p.GetKind(), driver.FileOverflow), Path: p.GetPath(), ResumeToken: p.GetResumeToken(),
	}
}
