// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package files is the part of the fake daemon that moves files: in place, as its user, following links, and with errors
// that have a status and no words.
package files

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	uploadMemory = 32 << 20
	boundary     = "DAYTONA-FILE-BOUNDARY"
)

// Files serves files. Paths that are not absolute are below Home.
type Files struct{ Home string }

// Register adds the calls to a mux.
func (t *Files) Register(m *http.ServeMux) {
	for pattern, do := range map[string]http.HandlerFunc{
		"GET /files": t.listFiles, "GET /files/{$}": t.listFiles, "DELETE /files": t.deleteFile, "DELETE /files/{$}": t.deleteFile,
		"GET /files/info": t.fileInfo, "GET /files/download": t.download, "POST /files/bulk-download": t.bulkDownload,
		"POST /files/upload": t.upload, "POST /files/bulk-upload": t.bulkUpload, "POST /files/folder": t.makeFolder, "POST /files/move": t.move,
		"POST /files/permissions": t.permissions,
	} {
		m.HandleFunc(pattern, do)
	}
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client may be gone
}

type fileInfo struct {
	Name        string `json:"name"`
	Size        int64  `json:"size"`
	Mode        string `json:"mode"`
	ModTime     string `json:"modTime"`
	ModifiedAt  string `json:"modifiedAt"`
	IsDir       bool   `json:"isDir"`
	Owner       string `json:"owner"`
	Group       string `json:"group"`
	Permissions string `json:"permissions"`
}

// describe follows links.
func describe(path string) (*fileInfo, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	f := &fileInfo{
		Name: filepath.Base(path), Size: info.Size(), Mode: info.Mode().String(), ModTime: info.ModTime().String(),
		ModifiedAt: info.ModTime().UTC().Format(time.RFC3339), IsDir: info.IsDir(), Permissions: fmt.Sprintf("%04o", info.Mode().Perm()),
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		f.Owner, f.Group = strconv.Itoa(int(st.Uid)), strconv.Itoa(int(st.Gid))
	}
	return f, nil
}

// bare refuses a file call: the status is right, and there is no body.
func bare(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		w.WriteHeader(http.StatusNotFound)
	case errors.Is(err, fs.ErrPermission):
		w.WriteHeader(http.StatusForbidden)
	case errors.Is(err, fs.ErrExist):
		w.WriteHeader(http.StatusConflict)
	default:
		w.WriteHeader(http.StatusBadRequest)
	}
}

func (t *Files) path(r *http.Request, name string) string {
	p := r.URL.Query().Get(name)
	if p == "" || strings.HasPrefix(p, "/") {
		return p
	}
	return filepath.Join(t.Home, p)
}

func (t *Files) listFiles(w http.ResponseWriter, r *http.Request) {
	dir := t.path(r, "path")
	if dir == "" {
		dir = t.Home
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		bare(w, err)
		return
	}
	all := []*fileInfo{}
	for _, e := range entries {
		if f, err := describe(filepath.Join(dir, e.Name())); err == nil { // broken links are left out
			all = append(all, f)
		}
	}
	answer(w, 200, all)
}

func (t *Files) fileInfo(w http.ResponseWriter, r *http.Request) {
	f, err := describe(t.path(r, "path"))
	if err != nil {
		bare(w, err)
		return
	}
	answer(w, 200, f)
}

func (t *Files) download(w http.ResponseWriter, r *http.Request) {
	path := t.path(r, "path")
	f, err := os.Open(path)
	if err != nil {
		bare(w, err)
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.IsDir() {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", "attachment; filename="+strconv.Quote(filepath.Base(path)))
	http.ServeContent(w, r, "", info.ModTime(), f)
}

func (t *Files) bulkDownload(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Paths []string `json:"paths"`
	}
	if json.NewDecoder(r.Body).Decode(&req) != nil || len(req.Paths) == 0 {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "multipart/form-data; boundary="+boundary)
	mw := multipart.NewWriter(w)
	if err := mw.SetBoundary(boundary); err != nil {
		return
	}
	for _, p := range req.Paths {
		if !strings.HasPrefix(p, "/") {
			p = filepath.Join(t.Home, p)
		}
		if err := part(mw, p); err != nil {
			return // the body stays without its end
		}
	}
	_ = mw.Close() // the client may be gone
}

func part(mw *multipart.Writer, path string) error {
	header := func(name, kind string) (io.Writer, error) {
		h := textproto.MIMEHeader{}
		h.Set("Content-Disposition", fmt.Sprintf(`form-data; name=%q; filename=%q`, name, path))
		h.Set("Content-Type", kind)
		return mw.CreatePart(h)
	}
	f, err := os.Open(path)
	code, text := "", ""
	if err == nil {
		defer f.Close()
		if info, e := f.Stat(); e == nil && info.IsDir() {
			code, text = "INVALID_FILE_PATH", "path is a directory"
		}
	}
	switch {
	case code != "":
	case errors.Is(err, fs.ErrNotExist):
		code, text = "FILE_NOT_FOUND", "file not found"
	case errors.Is(err, fs.ErrPermission):
		code, text = "FILE_ACCESS_DENIED", "permission denied"
	case err != nil:
		code, text = "FILE_READ_FAILED", err.Error()
	default:
		w, err := header("file", "application/octet-stream")
		if err == nil {
			_, err = io.Copy(w, f)
		}
		return err
	}
	w, err := header("error", "application/json")
	if err != nil {
		return err
	}
	return json.NewEncoder(w).Encode(map[string]any{"code": code, "message": text + ": " + path, "path": path})
}

// put writes a file in place: nothing here is atomic.
func put(path string, mode os.FileMode, r io.Reader) (int64, error) {
	if err := os.MkdirAll(filepath.Dir(path), mode); err != nil {
		return 0, err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return 0, err
	}
	n, err := io.Copy(f, r)
	return n, errors.Join(err, f.Close())
}

func (t *Files) upload(w http.ResponseWriter, r *http.Request) {
	path := t.path(r, "path")
	if path == "" || r.ParseMultipartForm(uploadMemory) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	defer r.MultipartForm.RemoveAll() //nolint:errcheck // scratch
	f, _, err := r.FormFile("file")
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	defer f.Close()
	if _, err := put(path, 0o750, f); err != nil {
		bare(w, err)
		return
	}
	w.WriteHeader(http.StatusOK)
}

func (t *Files) bulkUpload(w http.ResponseWriter, r *http.Request) {
	mr, err := r.MultipartReader()
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	paths := map[string]string{}
	done := []map[string]any{}
	var failed []string
	for {
		p, err := mr.NextPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			failed = append(failed, "reading multipart: "+err.Error())
			break
		}
		index, field, ok := strings.Cut(strings.TrimPrefix(p.FormName(), "files["), "].")
		switch {
		case !ok:
		case field == "path":
			b, err := io.ReadAll(p)
			if err != nil {
				failed = append(failed, err.Error())
			}
			paths[index] = string(b)
		case field == "file" && paths[index] == "":
			failed = append(failed, "file "+index+" has no path before it")
		case field == "file":
			path := paths[index]
			if !strings.HasPrefix(path, "/") {
				path = filepath.Join(t.Home, path)
			}
			n, err := put(path, 0o755, p)
			if err != nil {
				failed = append(failed, paths[index]+": "+err.Error())
				continue
			}
			done = append(done, map[string]any{"path": paths[index], "bytes": n})
		}
	}
	if len(failed) > 0 {
		answer(w, 400, map[string]any{"errors": failed, "files": done})
		return
	}
	answer(w, 200, map[string]any{"files": done})
}

func mode(r *http.Request) (os.FileMode, error) {
	n, err := strconv.ParseUint(r.URL.Query().Get("mode"), 8, 32)
	return os.FileMode(n) & os.ModePerm, err
}

func (t *Files) makeFolder(w http.ResponseWriter, r *http.Request) {
	m, err := mode(r)
	path := t.path(r, "path")
	if err != nil || path == "" {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if err := os.MkdirAll(path, m); err != nil {
		bare(w, err)
		return
	}
	w.WriteHeader(http.StatusCreated)
}

func (t *Files) move(w http.ResponseWriter, r *http.Request) {
	from, to := t.path(r, "source"), t.path(r, "destination")
	if from == "" || to == "" {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if _, err := os.Lstat(to); err == nil {
		w.WriteHeader(http.StatusConflict)
		return
	}
	if err := os.Rename(from, to); err != nil {
		bare(w, err)
	}
}

func (t *Files) permissions(w http.ResponseWriter, r *http.Request) {
	path := t.path(r, "path")
	if r.URL.Query().Get("mode") != "" {
		m, err := mode(r)
		if err == nil {
			err = os.Chmod(path, m)
		}
		if err != nil {
			bare(w, err)
			return
		}
	}
	uid, gid := -1, -1
	for name, to := range map[string]*int{"owner": &uid, "group": &gid} {
		v := r.URL.Query().Get(name)
		if v == "" {
			continue
		}
		n, err := strconv.Atoi(v)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		*to = n
	}
	if uid >= 0 || gid >= 0 {
		if err := os.Chown(path, uid, gid); err != nil {
			bare(w, err)
		}
	}
}

func (t *Files) deleteFile(w http.ResponseWriter, r *http.Request) {
	path := t.path(r, "path")
	info, err := os.Lstat(path)
	if err != nil {
		bare(w, err)
		return
	}
	if info.IsDir() && r.URL.Query().Get("recursive") != "true" {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if err := os.RemoveAll(path); err != nil {
		bare(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
