// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/berth-dev/berth/plugins/e2b/internal/wire/filesystem"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/vendorhttp"
)

// Entry describes a file. Of a link it tells the target's kind.
type Entry struct {
	Name, Path   string
	Dir, Regular bool
	Size         int64
	Mode         uint32
	Owner, Group string
	Modified     time.Time
	Target       string // of a link, fully resolved
}

func entryOf(e *filesystem.EntryInfo) Entry {
	return Entry{
		Name: e.GetName(), Path: e.GetPath(), Size: e.GetSize(), Mode: e.GetMode(), Owner: e.GetOwner(), Group: e.GetGroup(),
		Dir: e.GetType() == filesystem.FileType_FILE_TYPE_DIRECTORY, Regular: e.GetType() == filesystem.FileType_FILE_TYPE_FILE,
		Modified: e.GetModifiedTime().AsTime(), Target: e.GetSymlinkTarget(),
	}
}

// Stat describes a file.
func (s *Sandbox) Stat(ctx context.Context, path, user string) (Entry, error) {
	res, err := s.stat.CallUnary(ctx, request(s, user, &filesystem.StatRequest{Path: path}))
	if err != nil {
		return Entry{}, s.failed(ctx, "stat", errs.FileNotFound, err)
	}
	return entryOf(res.Msg.GetEntry()), nil
}

// List lists a directory, so many levels deep.
func (s *Sandbox) List(ctx context.Context, path string, depth uint32, user string) ([]Entry, error) {
	res, err := s.listDir.CallUnary(ctx, request(s, user, &filesystem.ListDirRequest{Path: path, Depth: depth}))
	if err != nil {
		return nil, s.failed(ctx, "list", errs.FileNotFound, err)
	}
	var out []Entry
	for _, e := range res.Msg.GetEntries() {
		out = append(out, entryOf(e))
	}
	return out, nil
}

// Mkdir makes a directory with its parents. One that exists is errs.FileExists.
func (s *Sandbox) Mkdir(ctx context.Context, path, user string) error {
	if _, err := s.makeDir.CallUnary(ctx, request(s, user, &filesystem.MakeDirRequest{Path: path})); err != nil {
		return s.failed(ctx, "mkdir", errs.FileNotFound, err)
	}
	return nil
}

// Move renames a file; a file that is there is replaced.
func (s *Sandbox) Move(ctx context.Context, from, to, user string) error {
	if _, err := s.move.CallUnary(ctx, request(s, user, &filesystem.MoveRequest{Source: from, Destination: to})); err != nil {
		return s.failed(ctx, "move", errs.FileNotFound, err)
	}
	return nil
}

// Remove removes a file, or a whole directory. The daemon does it as root, whoever asks; what is missing is no error.
func (s *Sandbox) Remove(ctx context.Context, path, user string) error {
	if _, err := s.remove.CallUnary(ctx, request(s, user, &filesystem.RemoveRequest{Path: path})); err != nil {
		return s.failed(ctx, "remove", errs.FileNotFound, err)
	}
	return nil
}

// classifyFile says what an answer of the file routes means.
func classifyFile(a vendorhttp.Answer) *errs.Error {
	switch a.Status {
	case http.StatusNotFound:
		return &errs.Error{Code: errs.FileNotFound}
	case http.StatusBadRequest:
		return &errs.Error{Code: errs.InvalidArgument}
	}
	return edge(a.Status, a.Body)
}

func fileQuery(path, user string) url.Values {
	q := url.Values{"path": {path}}
	if user != "" {
		q.Set("username", user)
	}
	return q
}

// Read opens a file, from an offset. The daemon reads it as root; user is whose home relative paths are below.
func (s *Sandbox) Read(ctx context.Context, path, user string, offset int64) (io.ReadCloser, error) {
	h := s.headers("")
	h.Set("Accept-Encoding", "identity")
	if offset > 0 {
		h.Set("Range", "bytes="+strconv.FormatInt(offset, 10)+"-")
	}
	resp, err := s.files.Stream(ctx, &vendorhttp.Request{Op: "read", Path: "/files", Query: fileQuery(path, user), Header: h})
	if err != nil {
		return nil, err
	}
	if offset > 0 && resp.StatusCode != http.StatusPartialContent {
		_ = resp.Body.Close() // it is the whole file
		return nil, errs.New(errs.Unsupported, "the sandbox's daemon gave the whole of %s, not the part that was asked for", path)
	}
	return resp.Body, nil
}

// WriteOptions are for [Sandbox.Write].
type WriteOptions struct {
	User   string // who owns the file
	Length int64  // of the content; 0 = unknown
	Gzip   bool   // the content is compressed, and is unpacked inside
}

// Write writes a file; missing directories are made. It is not atomic: a write that breaks off leaves a part. The daemon
// does it as root and gives the file to the user, also one that exists.
func (s *Sandbox) Write(ctx context.Context, path string, content io.Reader, o WriteOptions) error {
	h := s.headers("")
	h.Set("Content-Type", "application/octet-stream")
	if o.Gzip {
		h.Set("Content-Encoding", "gzip")
	}
	_, err := s.files.Do(ctx, &vendorhttp.Request{
		Op: "write", Method: http.MethodPost, Path: "/files", Query: fileQuery(path, o.User), Header: h, Length: o.Length, Once: true,
		Body: func() (io.ReadCloser, error) { return io.NopCloser(content), nil }, Timeout: uploadTime,
	}, nil)
	return err
}

// uploadTime bounds one upload; the caller's context may end it sooner.
const uploadTime = time.Hour

// SignedURL is an address at which anybody may read, or with write put, one file until it expires; zero = never. Without a
// token, of a sandbox that is not secure, it needs no signature.
func (s *Sandbox) SignedURL(path, user string, write bool, expires time.Time) (string, error) {
	daemon, _ := s.tokens()
	a, err := s.Address(DaemonPort, true)
	if err != nil {
		return "", err
	}
	if len(a.Headers) > 0 {
		return "", errs.New(errs.Unsupported, "sandboxes are reached by headers here, which an address cannot carry").With("feature", "signed addresses")
	}
	q := fileQuery(path, user)
	if daemon != "" {
		q.Set("signature", signature(path, user, daemon, write, expires))
		if !expires.IsZero() {
			q.Set("signature_expiration", strconv.FormatInt(expires.Unix(), 10))
		}
	}
	u := a.URL.JoinPath("/files")
	u.RawQuery = q.Encode()
	return u.String(), nil
}

// signature proves that whoever made an address knows the token.
func signature(path, user, token string, write bool, expires time.Time) string {
	op := "read"
	if write {
		op = "write"
	}
	text := fmt.Sprintf("%s:%s:%s:%s", path, op, user, token)
	if !expires.IsZero() {
		text += ":" + strconv.FormatInt(expires.Unix(), 10)
	}
	sum := sha256.Sum256([]byte(text))
	return "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
}

// Usage is what the daemon measures just now.
type Usage struct {
	CPUCount   int     `json:"cpu_count"`
	CPUUsedPct float64 `json:"cpu_used_pct"`
	MemTotal   uint64  `json:"mem_total"`
	MemUsed    uint64  `json:"mem_used"`
	DiskTotal  uint64  `json:"disk_total"`
	DiskUsed   uint64  `json:"disk_used"`
}

// Usage asks the daemon.
func (s *Sandbox) Usage(ctx context.Context) (Usage, error) {
	var u Usage
	_, err := s.files.Do(ctx, &vendorhttp.Request{Op: "usage", Path: "/metrics", Header: s.headers("")}, &u)
	return u, err
}

// Environment is what every process begins with: the template's variables, and those of the create.
func (s *Sandbox) Environment(ctx context.Context) (map[string]string, error) {
	var env map[string]string
	_, err := s.files.Do(ctx, &vendorhttp.Request{Op: "environment", Path: "/envs", Header: s.headers("")}, &env)
	return env, err
}
