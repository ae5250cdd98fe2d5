// SPDX-License-Identifier: Apache-2.0

package filesystem

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/tool"
	"github.com/berth-dev/berth/sdk/driver"
)

const imageSchema = `{"type":"object","required":["path"],"properties":{
"path":{"type":"string","minLength":1,"description":"PNG, JPEG, GIF or WebP file."},
"detail":{"type":["string","null"],"enum":["low","high","auto",null],"description":"How closely to look."}}}`

// imageTool is view_image.
type imageTool struct {
	*Filesystem
	images bool // the provider takes pictures in results
}

func (imageTool) Spec() model.ToolSpec {
	return model.ToolSpec{
		Kind: model.ToolFunction, Name: "view_image", Parameters: json.RawMessage(imageSchema),
		Description: "Shows you a picture from the sandbox.",
	}
}

// Recovers: it changes nothing.
func (imageTool) Recovers() {}

type imageArgs struct {
	Path   string  `json:"path"`
	Detail *string `json:"detail"`
}

func (t imageTool) About(arguments string) (tool.Subject, error) {
	var a imageArgs
	if e := tool.DecodeArguments(arguments, &a); e != nil {
		return tool.Subject{}, errors.New(e.Message)
	}
	return tool.Subject{Paths: []string{t.path(a.Path)}}, nil
}

func (t imageTool) Call(ctx context.Context, call tool.Call) (tool.Result, error) {
	var a imageArgs
	if e := tool.DecodeArguments(call.Arguments, &a); e != nil {
		return tool.Result{Error: e}, nil
	}
	fail := func(code, hint, format string, args ...any) (tool.Result, error) {
		return tool.Result{Error: &tool.Error{Code: code, Message: fmt.Sprintf(format, args...), Hint: hint}}, nil
	}
	if a.Path == "" {
		return fail(tool.CodeArguments, "", `argument "path" is missing`)
	}
	if !t.images {
		return fail("images_unsupported", "inspect the file with commands instead", "this model cannot be shown pictures")
	}
	info, r, err := t.files.Open(ctx, t.path(a.Path), driver.ReadOptions{User: t.cfg.User})
	if err != nil {
		if ctx.Err() != nil {
			return tool.Result{}, context.Cause(ctx)
		}
		return tool.Failed(err), nil
	}
	defer r.Close() // the content counts, and Read has told
	const shrink = "make a smaller copy with a command and look at that"
	if info.Size > tool.MaxImageBytes {
		return fail("image_too_large", shrink, "%s has %d bytes, more than the %d that can be shown", a.Path, info.Size, tool.MaxImageBytes)
	}
	data, err := io.ReadAll(io.LimitReader(r, tool.MaxImageBytes+1))
	if err != nil {
		return tool.Failed(err), nil
	}
	if len(data) > tool.MaxImageBytes {
		return fail("image_too_large", shrink, "%s has more than the %d bytes that can be shown", a.Path, tool.MaxImageBytes)
	}
	mime := sniff(data)
	if mime == "" {
		return fail("image_unsupported", "convert it to PNG with a command and look at that", "%s is no PNG, JPEG, GIF or WebP file", a.Path)
	}
	detail := ""
	if a.Detail != nil {
		detail = *a.Detail
	}
	return tool.Result{
		Text: fmt.Sprintf("%s (%s, %d bytes)", a.Path, mime, len(data)), Summary: fmt.Sprintf("%s, %d bytes", mime, len(data)),
		Images: []tool.Image{{MIME: mime, Data: data, Detail: detail}},
	}, nil
}

// sniff tells the formats that vision models take; the name of a file says nothing.
func sniff(b []byte) string {
	switch {
	case bytes.HasPrefix(b, []byte("\x89PNG\r\n\x1a\n")):
		return "image/png"
	case bytes.HasPrefix(b, []byte{0xFF, 0xD8, 0xFF}):
		return "image/jpeg"
	case bytes.HasPrefix(b, []byte("GIF87a")), bytes.HasPrefix(b, []byte("GIF89a")):
		return "image/gif"
	case len(b) >= 12 && bytes.HasPrefix(b, []byte("RIFF")) && string(b[8:12]) == "WEBP":
		return "image/webp"
	}
	return ""
}
