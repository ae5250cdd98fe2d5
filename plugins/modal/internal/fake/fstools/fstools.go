// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package fstools is a stand-in for the program that Modal puts into sandboxes for its clients' file operations: one
// operation as JSON in its argument, content over the standard streams, and failures as JSON on standard error.
package fstools

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// Name is the program's.
const Name = "modal-sandbox-fs-tools"

type operation struct {
	ReadFile, WriteFile, ListFiles, Stat *struct{ Path string }
	MakeDirectory                        *struct {
		Path    string
		Parents bool
	}
	Remove *struct {
		Path      string
		Recursive bool
	}
}

type failure struct {
	Kind    string `json:"error_kind"`
	Message string `json:"message"`
	Detail  string `json:"detail"`
}

func (f failure) Error() string { return f.Message }

type info struct {
	Name        string  `json:"name"`
	Path        string  `json:"path"`
	Type        string  `json:"type"`
	Size        int64   `json:"size"`
	Mode        uint32  `json:"mode"`
	Permissions string  `json:"permissions"`
	Owner       string  `json:"owner"`
	Group       string  `json:"group"`
	Modified    float64 `json:"modified_time"`
	Target      *string `json:"symlink_target"`
}

// Main does what the arguments say and gives the exit code.
func Main(args []string, in io.Reader, out, stderr io.Writer) int {
	var op operation
	err := error(failure{Kind: "InvalidInput", Message: "one argument is needed"})
	if len(args) == 1 {
		if err = json.Unmarshal([]byte(args[0]), &op); err == nil {
			err = do(&op, in, out)
		}
	}
	if err == nil {
		return 0
	}
	_ = json.NewEncoder(stderr).Encode(classify(err)) // nobody is left to tell
	return 1
}

func do(op *operation, in io.Reader, out io.Writer) error {
	switch {
	case op.ReadFile != nil:
		f, err := os.Open(op.ReadFile.Path)
		if err != nil {
			return err
		}
		defer f.Close() // it was read
		if st, err := f.Stat(); err == nil && st.IsDir() {
			return failure{Kind: "IsDirectory", Message: "is a directory"}
		}
		_, err = io.Copy(out, f)
		return err
	case op.WriteFile != nil:
		return write(op.WriteFile.Path, in)
	case op.ListFiles != nil:
		return list(op.ListFiles.Path, out)
	case op.Stat != nil:
		x, err := stat(op.Stat.Path)
		if err != nil {
			return err
		}
		return json.NewEncoder(out).Encode(x)
	case op.MakeDirectory != nil && op.MakeDirectory.Parents:
		return os.MkdirAll(op.MakeDirectory.Path, 0o755)
	case op.MakeDirectory != nil:
		return os.Mkdir(op.MakeDirectory.Path, 0o755)
	case op.Remove != nil && op.Remove.Recursive:
		if _, err := os.Lstat(op.Remove.Path); err != nil {
			return err
		}
		return os.RemoveAll(op.Remove.Path)
	case op.Remove != nil:
		return os.Remove(op.Remove.Path)
	}
	return failure{Kind: "NotSupported", Message: "this operation is not known"}
}

func write(path string, in io.Reader) error {
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		return failure{Kind: "IsDirectory", Message: "is a directory"}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		if errors.Is(err, syscall.ENOTDIR) {
			return failure{Kind: "AlreadyExists", Message: "a component of the path is a file"}
		}
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, in)
	return errors.Join(err, f.Close())
}

func list(path string, out io.Writer) error {
	all, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	infos := []info{}
	for _, e := range all {
		x, err := stat(filepath.Join(path, e.Name()))
		if err != nil {
			return err
		}
		infos = append(infos, x)
	}
	return json.NewEncoder(out).Encode(infos)
}

func stat(path string) (info, error) {
	st, err := os.Lstat(path)
	if err != nil {
		return info{}, err
	}
	x := info{
		Name: st.Name(), Path: path, Type: "file", Size: st.Size(), Mode: uint32(st.Mode().Perm()), Permissions: st.Mode().Perm().String(),
		Modified: float64(st.ModTime().UnixMicro()) / 1e6,
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		x.Owner, x.Group = strconv.Itoa(int(sys.Uid)), strconv.Itoa(int(sys.Gid))
		if u, err := user.LookupId(x.Owner); err == nil {
			x.Owner = u.Username
		}
		if g, err := user.LookupGroupId(x.Group); err == nil {
			x.Group = g.Name
		}
	}
	switch {
	case st.IsDir():
		x.Type = "directory"
	case st.Mode()&fs.ModeSymlink != 0:
		x.Type = "symlink"
		to, err := os.Readlink(path)
		if err != nil {
			return info{}, err
		}
		x.Target = &to
	}
	return x, nil
}

func classify(err error) failure {
	var f failure
	if errors.As(err, &f) {
		return f
	}
	f = failure{Kind: "Other", Message: err.Error(), Detail: fmt.Sprintf("%T", err)}
	for _, x := range []struct {
		err  error
		kind string
	}{
		{fs.ErrNotExist, "NotFound"},
		{syscall.ENOTEMPTY, "DirectoryNotEmpty"},
		{fs.ErrExist, "PathAlreadyExists"},
		{fs.ErrPermission, "PermissionDenied"},
		{syscall.ENOTDIR, "NotDirectory"},
		{syscall.EISDIR, "IsDirectory"},
		{syscall.ENOSYS, "NotSupported"},
	} {
		if errors.Is(err, x.err) {
			f.Kind = x.kind
			break
		}
	}
	return f
}
