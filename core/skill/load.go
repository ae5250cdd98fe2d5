// SPDX-License-Identifier: Apache-2.0

package skill

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/berth-dev/berth/core/manifest"
	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/tool"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// Sandbox is what loading needs of a session.
type Sandbox interface {
	Stat(ctx context.Context, paths []string, opts driver.StatOptions) ([]driver.StatResult, error)
	Import(ctx context.Context, opts driver.ImportOptions, r io.Reader) (driver.ImportResult, error)
	Root() string
}

// Tools gives load_skill where a skill is not in the workspace from the start. What is loaded belongs to user; empty =
// the workspace's.
func (s *Set) Tools(box Sandbox, user string) []tool.Tool {
	if s == nil || !slices.ContainsFunc(s.Skills, func(sk Skill) bool { return sk.Lazy }) {
		return nil
	}
	return []tool.Tool{loader{s, box, user}}
}

const loadSchema = `{"type":"object","properties":{"skill_name":{"type":"string","description":"Name of the skill."}},"required":["skill_name"],"additionalProperties":false}`

type loader struct {
	*Set
	box  Sandbox
	user string
}

// Recovers: to load a skill twice does no harm.
func (loader) Recovers() {}

func (loader) Spec() model.ToolSpec {
	return model.ToolSpec{
		Kind: model.ToolFunction, Name: "load_skill", Parameters: json.RawMessage(loadSchema), Strict: true,
		Description: "Puts a skill into the workspace and gives its instructions.",
	}
}

// loaded is the result.
type loaded struct {
	Status       string   `json:"status"` // loaded, already_loaded
	Name         string   `json:"skill_name"`
	Path         string   `json:"path"`
	Files        []string `json:"files"`
	Instructions string   `json:"instructions"`
}

// maxFiles is how many files of a skill are listed.
const maxFiles = 100

func (l loader) Call(ctx context.Context, call tool.Call) (tool.Result, error) {
	var a struct {
		Name string `json:"skill_name"`
	}
	if bad := tool.DecodeArguments(call.Arguments, &a); bad != nil {
		return tool.Result{Error: bad}, nil
	}
	found := l.find(a.Name)
	switch len(found) {
	case 0:
		names := make([]string, len(l.Skills))
		for i, sk := range l.Skills {
			names[i] = sk.Name
		}
		return tool.Result{Error: &tool.Error{
			Code: "skill_not_found", Message: fmt.Sprintf("there is no skill %q", a.Name), Retryable: true, Hint: "the skills are " + strings.Join(names, ", "),
		}}, nil
	case 1:
	default:
		return tool.Result{Error: &tool.Error{
			Code: "skill_ambiguous", Message: fmt.Sprintf("%d skills are called %q: %s and %s", len(found), a.Name, found[0].Path, found[1].Path),
			Hint: "somebody must give one of them another name",
		}}, nil
	}
	res, err := l.load(ctx, found[0])
	if err != nil {
		if ctx.Err() != nil {
			return tool.Result{}, context.Cause(ctx)
		}
		return tool.Failed(err), nil
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(res); err != nil {
		return tool.Result{}, err
	}
	return tool.Result{Text: strings.TrimSpace(b.String()), Summary: res.Status + " " + res.Path}, nil
}

func (l loader) load(ctx context.Context, sk Skill) (*loaded, error) {
	out := &loaded{Status: "loaded", Name: sk.Name, Path: sk.Path}
	part := &manifest.Contents{Manifest: l.contents.Manifest}
	for _, m := range l.contents.Members {
		inside := m.Path == sk.Path || strings.HasPrefix(m.Path, sk.Path+"/")
		if !inside {
			continue
		}
		part.Members = append(part.Members, m)
		if rel := strings.TrimPrefix(m.Path, sk.Path+"/"); m.Type == driver.TypeRegular && len(out.Files) < maxFiles {
			out.Files = append(out.Files, rel)
			if rel == skillFile {
				text, err := content(&m)
				if err != nil {
					return nil, err
				}
				out.Instructions = text
			}
		}
	}
	missing, err := l.missing(ctx, l.box, []Skill{sk})
	if err != nil {
		return nil, err
	}
	if len(missing) == 0 {
		out.Status = "already_loaded"
		return out, nil
	}
	return out, put(ctx, l.box, l.user, part)
}

// missing are the skills that are not in the workspace.
func (s *Set) missing(ctx context.Context, box Sandbox, skills []Skill) ([]Skill, error) {
	paths := make([]string, len(skills))
	for i, sk := range skills {
		paths[i] = path.Join(box.Root(), sk.Path, skillFile)
	}
	found, err := box.Stat(ctx, paths, driver.StatOptions{})
	if err != nil {
		return nil, err
	}
	var out []Skill
	for i, sk := range skills {
		if i >= len(found) || found[i].Err != nil {
			out = append(out, sk)
		}
	}
	return out, nil
}

// Place puts the skills that should be there from the start into the workspace, but for those that are there already.
func (s *Set) Place(ctx context.Context, box Sandbox, user string) error {
	eager := slices.DeleteFunc(slices.Clone(s.Skills), func(sk Skill) bool { return sk.Lazy })
	if len(eager) == 0 {
		return nil
	}
	missing, err := s.missing(ctx, box, eager)
	if err != nil || len(missing) == 0 {
		return err
	}
	part := &manifest.Contents{Manifest: s.contents.Manifest}
	for _, m := range s.contents.Members {
		if slices.ContainsFunc(missing, func(sk Skill) bool { return m.Path == sk.Path || strings.HasPrefix(m.Path, sk.Path+"/") }) {
			part.Members = append(part.Members, m)
		}
	}
	return put(ctx, box, user, part)
}

// put writes files into the workspace as one stream.
func put(ctx context.Context, box Sandbox, user string, part *manifest.Contents) error {
	r, w := io.Pipe()
	made := make(chan error, 1)
	go func() {
		err := part.Archive(ctx, w, manifest.ArchiveOptions{Now: time.Now()})
		made <- err
		_ = w.CloseWithError(err) // nil is the end of the archive
	}()
	_, err := box.Import(ctx, driver.ImportOptions{Path: box.Root(), Owner: user}, r)
	_ = r.CloseWithError(io.ErrClosedPipe) // lets the archive end when the driver took no more
	if aerr := <-made; aerr != nil && !errors.Is(aerr, io.ErrClosedPipe) {
		err = errors.Join(aerr, err)
	}
	if err != nil {
		return errs.New(errs.CodeOf(err), "put skills into the workspace: %v", err)
	}
	return nil
}
