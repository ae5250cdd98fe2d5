// SPDX-License-Identifier: Apache-2.0

// Package filesystem is the capability to change files with patches and to look at pictures: the tools apply_patch and
// view_image.
package filesystem

import (
	"path"

	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/tool"
	"github.com/berth-dev/berth/sdk/driver"
)

// Config configures the capability.
type Config struct {
	Spec *spec.FilesystemCapability // nil = both tools
	Dir  string                     // where relative paths start; empty = the workspace root
	User string                     // whose rights count; empty = the sandbox's default
}

// Filesystem is the capability for one session.
type Filesystem struct {
	files driver.FileSystem
	cfg   Config
}

// New makes the capability.
func New(files driver.FileSystem, cfg Config) *Filesystem {
	if cfg.Spec == nil {
		cfg.Spec = &spec.FilesystemCapability{ApplyPatch: true, ViewImage: true}
	}
	return &Filesystem{files: files, cfg: cfg}
}

// Tools gives the tools, in the form that the provider can take.
func (f *Filesystem) Tools(support model.Support) []tool.Tool {
	var tools []tool.Tool
	if f.cfg.Spec.ApplyPatch {
		kind := model.ToolFunction
		switch {
		case support.CustomTools:
			kind = model.ToolCustom
		case support.BuiltinPatch:
			kind = model.ToolPatch
		}
		tools = append(tools, patchTool{f, kind})
	}
	if f.cfg.Spec.ViewImage {
		tools = append(tools, imageTool{f, support.ImageToolOutput})
	}
	return tools
}

// Instructions tell the model how to use the tools.
func (f *Filesystem) Instructions() string {
	if !f.cfg.Spec.ApplyPatch {
		return ""
	}
	return `Change text files with apply_patch. A patch is applied to all its files or to none. Give a few unchanged lines around
each change, exactly as they are in the file; when the same lines stand in several places, put an "@@ " line with the
function's first line before the hunk. When a patch is refused, the answer says which hunk and what the file has there.`
}

// path makes ".." lexical, as models mean it: no directory is made on the way to a path that leads back out of it.
func (f *Filesystem) path(p string) string {
	if f.cfg.Dir == "" || path.IsAbs(p) {
		return path.Clean(p)
	}
	return path.Join(f.cfg.Dir, p)
}
