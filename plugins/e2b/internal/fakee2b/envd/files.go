// SPDX-License-Identifier: Apache-2.0

//go:build linux

package envd

import (
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/berth-dev/berth/plugins/e2b/internal/wire/filesystem"
)

// goodSignature checks an address that was signed.
func goodSignature(r *http.Request, token string) bool {
	q := r.URL.Query()
	op := "write"
	if r.Method == http.MethodGet {
		op = "read"
	}
	text := fmt.Sprintf("%s:%s:%s:%s", q.Get("path"), op, q.Get("username"), token)
	if s := q.Get("signature_expiration"); s != "" {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || time.Now().Unix() > n {
			return false
		}
		text += ":" + s
	}
	sum := sha256.Sum256([]byte(text))
	return q.Get("signature") == "v1_"+base64.RawStdEncoding.EncodeToString(sum[:])
}

// whose is the user that a file request names.
func (d *daemon) whose(w http.ResponseWriter, r *http.Request) *account {
	name := r.URL.Query().Get("username")
	if name == "" {
		name = d.cfg.User
	}
	a, err := lookup(name)
	if err != nil {
		refuse(w, http.StatusUnauthorized, "invalid username: '%s'", name)
		return nil
	}
	return a
}

func (a *account) resolve(p string) string {
	p = strings.Replace(p, "~", a.home, 1)
	if !filepath.IsAbs(p) {
		p = filepath.Join(a.home, p)
	}
	return filepath.Clean(p)
}

func (d *daemon) download(w http.ResponseWriter, r *http.Request) {
	a := d.whose(w, r)
	if a == nil {
		return
	}
	p := a.resolve(r.URL.Query().Get("path"))
	st, err := os.Stat(p)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		refuse(w, http.StatusNotFound, "path '%s' does not exist", p)
		return
	case err != nil:
		refuse(w, http.StatusInternalServerError, "error checking path '%s': %v", p, err)
		return
	case st.IsDir():
		refuse(w, http.StatusBadRequest, "path '%s' is a directory", p)
		return
	}
	f, err := os.Open(p)
	if err != nil {
		refuse(w, http.StatusInternalServerError, "error opening file '%s': %v", p, err)
		return
	}
	defer f.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", mime.FormatMediaType("inline", map[string]string{"filename": filepath.Base(p)}))
	http.ServeContent(w, r, "", st.ModTime(), f)
}

func (d *daemon) upload(w http.ResponseWriter, r *http.Request) {
	a := d.whose(w, r)
	if a == nil {
		return
	}
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(body)
		if err != nil {
			refuse(w, http.StatusBadRequest, "error reading body: %v", err)
			return
		}
		body = z
	}
	query := r.URL.Query().Get("path")
	done := []map[string]string{}
	put := func(name string, from io.Reader) bool {
		p := a.resolve(name)
		if err := place(p, from, a); err != nil {
			status := http.StatusInternalServerError
			if errors.Is(err, syscall.EISDIR) {
				status = http.StatusBadRequest
			}
			refuse(w, status, "error writing file '%s': %v", p, err)
			return false
		}
		done = append(done, map[string]string{"name": filepath.Base(p), "path": p, "type": "file"})
		return true
	}
	kind, params, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if kind == "multipart/form-data" {
		if params["boundary"] == "" {
			refuse(w, http.StatusBadRequest, "error parsing multipart form")
			return
		}
		parts, err := r.MultipartReader()
		for err == nil {
			part, e := parts.NextPart()
			if e != nil {
				break
			}
			_, disposition, _ := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
			if part.FormName() != "file" {
				continue // in silence
			}
			name := disposition["filename"]
			if query != "" {
				name = query
			}
			if !put(name, part) {
				return
			}
		}
	} else if query == "" {
		refuse(w, http.StatusBadRequest, "path is required")
		return
	} else if !put(query, body) {
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_ = json.NewEncoder(w).Encode(done) // the client may be gone
}

// place writes a file as root, in place, and gives it to its user. What breaks off leaves a part.
func place(p string, from io.Reader, a *account) error {
	if err := parents(filepath.Dir(p), a); err != nil {
		return err
	}
	f, err := os.OpenFile(p, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Chown(int(a.uid), int(a.gid)); err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	return err
}

func parents(dir string, a *account) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := parents(filepath.Dir(dir), a); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return os.Chown(dir, int(a.uid), int(a.gid))
}

func (d *daemon) filesystem(mux *http.ServeMux) {
	const at = "/filesystem.Filesystem/"
	unary(mux, at+"Stat", func(_ context.Context, r *connect.Request[filesystem.StatRequest]) (*filesystem.StatResponse, error) {
		a, err := d.caller(r.Header())
		if err != nil {
			return nil, err
		}
		e, err := entry(a.resolve(r.Msg.GetPath()))
		return &filesystem.StatResponse{Entry: e}, err
	})
	unary(mux, at+"MakeDir", func(_ context.Context, r *connect.Request[filesystem.MakeDirRequest]) (*filesystem.MakeDirResponse, error) {
		a, err := d.caller(r.Header())
		if err != nil {
			return nil, err
		}
		p := a.resolve(r.Msg.GetPath())
		if st, err := os.Stat(p); err == nil && st.IsDir() {
			return nil, connect.NewError(connect.CodeAlreadyExists, fmt.Errorf("directory already exists: %s", p))
		} else if err == nil {
			return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("path already exists but it is not a directory: %s", p))
		}
		if err := parents(p, a); err != nil {
			return nil, connect.NewError(connect.CodeInternal, err)
		}
		e, err := entry(p)
		return &filesystem.MakeDirResponse{Entry: e}, err
	})
	unary(mux, at+"Move", func(_ context.Context, r *connect.Request[filesystem.MoveRequest]) (*filesystem.MoveResponse, error) {
		a, err := d.caller(r.Header())
		if err != nil {
			return nil, err
		}
		from, to := a.resolve(r.Msg.GetSource()), a.resolve(r.Msg.GetDestination())
		if _, err := os.Lstat(from); err != nil {
			return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("source file not found: %w", err))
		}
		if err := parents(filepath.Dir(to), a); err != nil {
			return nil, connect.NewError(connect.CodeInternal, err)
		}
		if err := os.Rename(from, to); err != nil {
			return nil, connect.NewError(connect.CodeInternal, err)
		}
		e, err := entry(to)
		return &filesystem.MoveResponse{Entry: e}, err
	})
	unary(mux, at+"ListDir", func(_ context.Context, r *connect.Request[filesystem.ListDirRequest]) (*filesystem.ListDirResponse, error) {
		a, err := d.caller(r.Header())
		if err != nil {
			return nil, err
		}
		root := a.resolve(r.Msg.GetPath())
		st, err := os.Stat(root)
		if err != nil {
			return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("path not found: %w", err))
		}
		if !st.IsDir() {
			return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("path is not a directory: %s", root))
		}
		depth := max(int(r.Msg.GetDepth()), 1)
		out := &filesystem.ListDirResponse{}
		err = filepath.WalkDir(root, func(p string, de fs.DirEntry, err error) error {
			if err != nil || p == root {
				return err
			}
			e, err := entry(p)
			if err != nil {
				return err
			}
			out.Entries = append(out.Entries, e)
			rel, err := filepath.Rel(root, p)
			if err == nil && de.IsDir() && strings.Count(rel, "/")+1 >= depth {
				return filepath.SkipDir
			}
			return err
		})
		return out, err
	})
	unary(mux, at+"Remove", func(_ context.Context, r *connect.Request[filesystem.RemoveRequest]) (*filesystem.RemoveResponse, error) {
		a, err := d.caller(r.Header())
		if err != nil {
			return nil, err
		}
		if err := os.RemoveAll(a.resolve(r.Msg.GetPath())); err != nil {
			return nil, connect.NewError(connect.CodeInternal, err)
		}
		return &filesystem.RemoveResponse{}, nil
	})
}

// entry describes a file: of a link the kind of what it points to.
func entry(p string) (*filesystem.EntryInfo, error) {
	st, err := os.Lstat(p)
	if err != nil {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("file not found: %w", err))
	}
	e := &filesystem.EntryInfo{
		Name: filepath.Base(p), Path: p, Size: st.Size(), Mode: uint32(st.Mode().Perm()), Permissions: st.Mode().String(),
		ModifiedTime: timestamppb.New(st.ModTime()),
	}
	if st.Mode()&fs.ModeSymlink != 0 {
		target, err := filepath.EvalSymlinks(p)
		if err != nil {
			target = p
		}
		e.SymlinkTarget = &target
		if st, err = os.Stat(p); err != nil {
			return e, nil //nolint:nilerr // a broken link has no kind
		}
	}
	switch {
	case st.IsDir():
		e.Type = filesystem.FileType_FILE_TYPE_DIRECTORY
	case st.Mode().IsRegular():
		e.Type = filesystem.FileType_FILE_TYPE_FILE
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		e.Owner, e.Group = strconv.Itoa(int(sys.Uid)), strconv.Itoa(int(sys.Gid))
		if u, err := user.LookupId(e.GetOwner()); err == nil {
			e.Owner = u.Username
		}
		if g, err := user.LookupGroupId(e.GetGroup()); err == nil {
			e.Group = g.Name
		}
	}
	return e, nil
}
