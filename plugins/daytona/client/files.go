// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"strconv"
	"time"

	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/vendorhttp"
)

// File is what the vendor says of one. Links are followed; broken ones are left out of lists.
type File struct {
	Name        string    `json:"name"`
	Size        int64     `json:"size"`
	Mode        string    `json:"mode"` // as ls writes it
	Permissions string    `json:"permissions"`
	IsDir       bool      `json:"isDir"`
	Owner       string    `json:"owner"` // a number
	Group       string    `json:"group"`
	ModifiedAt  time.Time `json:"modifiedAt"`
}

// transferTime bounds one attempt at moving a file.
const transferTime = 30 * time.Minute

// ListFiles lists a directory.
func (t *Toolbox) ListFiles(ctx context.Context, dir string) ([]File, error) {
	var all []File
	err := t.do(ctx, &vendorhttp.Request{Op: "list files", Path: "files", Query: query("path", dir)}, &all)
	return all, err
}

// FileInfo describes a file.
func (t *Toolbox) FileInfo(ctx context.Context, path string) (*File, error) {
	var f File
	if err := t.do(ctx, &vendorhttp.Request{Op: "look at a file", Path: "files/info", Query: query("path", path)}, &f); err != nil {
		return nil, err
	}
	return &f, nil
}

// Download reads a file from an offset on. The caller closes it.
func (t *Toolbox) Download(ctx context.Context, path string, offset int64) (io.ReadCloser, error) {
	req := &vendorhttp.Request{Op: "read a file", Path: "files/download", Query: query("path", path)}
	if offset > 0 {
		req.Header = http.Header{"Range": {fmt.Sprintf("bytes=%d-", offset)}}
	}
	resp, err := t.http.Stream(ctx, req)
	if e, ok := asError(err); ok && e.Vendor != nil && e.Vendor.HTTPStatus == http.StatusRequestedRangeNotSatisfiable {
		return http.NoBody, nil // there is nothing from there on
	}
	if err != nil {
		return nil, err
	}
	if offset > 0 && resp.StatusCode != http.StatusPartialContent {
		_ = resp.Body.Close() // it is not what was asked for
		return nil, errs.New(errs.VendorFailed, "the vendor sent a whole file where a part was asked for")
	}
	return resp.Body, nil
}

// Upload writes a file in place; it is not atomic. Open is called for each attempt.
func (t *Toolbox) Upload(ctx context.Context, path string, open func() (io.ReadCloser, error)) error {
	like := multipart.NewWriter(io.Discard) // for a boundary that all attempts have
	body := func() (io.ReadCloser, error) {
		content, err := open()
		if err != nil {
			return nil, err
		}
		r, w := io.Pipe()
		go func() {
			defer content.Close()
			form := multipart.NewWriter(w)
			err := form.SetBoundary(like.Boundary())
			var part io.Writer
			if err == nil {
				part, err = form.CreateFormFile("file", "file")
			}
			if err == nil {
				_, err = io.Copy(part, content)
			}
			if err == nil {
				err = form.Close()
			}
			_ = w.CloseWithError(err) // it never fails
		}()
		return r, nil
	}
	return t.do(ctx, &vendorhttp.Request{
		Op: "write a file", Method: http.MethodPost, Path: "files/upload", Query: query("path", path), Header: http.Header{"Content-Type": {like.FormDataContentType()}},
		Body: body, Repeatable: true, Timeout: transferTime,
	}, nil)
}

// MakeDir makes a directory and those above it. One that is there is no error.
func (t *Toolbox) MakeDir(ctx context.Context, path string, mode uint32) error {
	q := query("path", path, "mode", strconv.FormatUint(uint64(mode), 8))
	return t.do(ctx, &vendorhttp.Request{Op: "make a directory", Method: http.MethodPost, Path: "files/folder", Query: q, Repeatable: true}, nil)
}

// SetMode changes who may do what with a file.
func (t *Toolbox) SetMode(ctx context.Context, path string, mode uint32) error {
	q := query("path", path, "mode", strconv.FormatUint(uint64(mode), 8))
	return t.do(ctx, &vendorhttp.Request{Op: "change a file's mode", Method: http.MethodPost, Path: "files/permissions", Query: q, Repeatable: true}, nil)
}

// Move renames a file. It replaces nothing. It is sent once.
func (t *Toolbox) Move(ctx context.Context, from, to string) error {
	return t.do(ctx, &vendorhttp.Request{Op: "move a file", Method: http.MethodPost, Path: "files/move", Query: query("source", from, "destination", to)}, nil)
}

// Remove deletes a file, or with recursive a directory with everything in it.
func (t *Toolbox) Remove(ctx context.Context, path string, recursive bool) error {
	q := query("path", path)
	if recursive {
		q.Set("recursive", "true")
	}
	return t.do(ctx, &vendorhttp.Request{Op: "remove a file", Method: http.MethodDelete, Path: "files", Query: q, NotRepeatable: true}, nil)
}
