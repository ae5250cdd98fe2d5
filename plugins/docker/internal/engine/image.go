// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/distribution/reference"
	"github.com/moby/moby/api/pkg/authconfig"
	"github.com/moby/moby/api/types/registry"
	"github.com/moby/moby/client"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// The policies of pulling.
const (
	PullMissing = "missing"
	PullAlways  = "always"
	PullNever   = "never"
)

// progressEvery bounds how often progress is reported.
const progressEvery = 100 * time.Millisecond

// ImageRequest says which image is wanted.
type ImageRequest struct {
	Name     string // a reference, or an id
	Pull     string // a policy
	Platform string // os/arch[/variant]; empty = the engine's own
	Progress func(driver.Progress)
}

// Image is an image that the engine has.
type Image struct {
	ID     string
	Digest string // of the registry, by name; empty for an image that was made here
	OS     string
	Arch   string
	Env    []string
	User   string
	Labels map[string]string
}

// Image gives an image, pulled if need be.
func (e *Engine) Image(ctx context.Context, r ImageRequest) (*Image, error) {
	if _, err := reference.ParseAnyReference(r.Name); err != nil {
		return nil, errs.New(errs.ConfigInvalid, "%q is no name of an image: %v", r.Name, err)
	}
	if r.Pull != PullAlways {
		img, err := e.present(ctx, r.Name)
		if err == nil && fits(img, r.Platform) {
			return img, nil
		}
		if err != nil && !NotFound(err) {
			return nil, Error(errs.CreateFailed, "look up image "+r.Name, err)
		}
		if r.Pull == PullNever {
			if err == nil {
				return nil, errs.New(errs.ConfigInvalid, "image %q is there for %s/%s and not for %s", r.Name, img.OS, img.Arch, r.Platform).
					WithHint("pull it for that platform, or set pull = \"missing\"")
			}
			return nil, errs.New(errs.ConfigInvalid, "image %q is not on the engine, and pull = \"never\"", r.Name).With("image", r.Name).
				WithHint("pull or build it, or set pull = \"missing\"")
		}
	}
	if err := e.pull(ctx, r); err != nil {
		return nil, err
	}
	img, err := e.present(ctx, r.Name)
	return img, Error(errs.CreateFailed, "look up image "+r.Name, err)
}

// present looks an image up.
func (e *Engine) present(ctx context.Context, name string) (*Image, error) {
	got, err := e.ImageInspect(ctx, name)
	if err != nil {
		return nil, err
	}
	img := &Image{ID: got.ID, OS: got.Os, Arch: got.Architecture}
	if img.Arch == "" {
		img.Arch = e.Arch()
	}
	if len(got.RepoDigests) > 0 {
		img.Digest = got.RepoDigests[0]
	}
	if c := got.Config; c != nil {
		img.Env, img.User, img.Labels = c.Env, c.User, c.Labels
	}
	return img, nil
}

func fits(img *Image, platform string) bool {
	want := parsePlatform(platform)
	return want == nil || (want.OS == img.OS && want.Architecture == img.Arch)
}

// parsePlatform gives nil for an empty one.
func parsePlatform(s string) *ocispec.Platform {
	if s == "" {
		return nil
	}
	parts := append(strings.SplitN(s, "/", 3), "", "")
	return &ocispec.Platform{OS: parts[0], Architecture: goArch(parts[1]), Variant: parts[2]}
}

// Platform is for creating a container; nil = the engine chooses.
func Platform(s string) *ocispec.Platform { return parsePlatform(s) }

func (e *Engine) pull(ctx context.Context, r ImageRequest) error {
	ref, err := reference.ParseNormalizedNamed(r.Name)
	if err != nil {
		return errs.New(errs.ConfigInvalid, "%q is no name of an image: %v", r.Name, err)
	}
	opts := client.ImagePullOptions{RegistryAuth: e.auth(ref)}
	if p := parsePlatform(r.Platform); p != nil {
		opts.Platforms = []ocispec.Platform{*p}
	}
	r.Progress(driver.Progress{Phase: "pulling", Message: r.Name})
	stream, err := e.ImagePull(ctx, r.Name, opts)
	if err != nil {
		return pullError(r.Name, err)
	}
	defer func() { _ = stream.Close() }() // everything was read, or the error is known
	p := pulling{name: r.Name, report: r.Progress, layers: map[string][2]int64{}}
	for m, err := range stream.JSONMessages(ctx) {
		if err == nil && m.Error != nil {
			err = m.Error
		}
		if err != nil {
			return pullError(r.Name, err)
		}
		if m.Progress != nil {
			p.layer(m.ID, m.Status, m.Progress.Current, m.Progress.Total)
		}
	}
	return nil
}

// auth is what the docker command would show the registry; empty = nothing.
func (e *Engine) auth(ref reference.Named) string {
	c, err := e.files.GetAuthConfig(reference.Domain(ref))
	if err != nil || (c.Username == "" && c.IdentityToken == "" && c.RegistryToken == "" && c.Auth == "") {
		return "" // then the registry says that it wants to know
	}
	s, err := authconfig.Encode(registry.AuthConfig{
		Username: c.Username, Password: c.Password, Auth: c.Auth, ServerAddress: c.ServerAddress,
		IdentityToken: c.IdentityToken, RegistryToken: c.RegistryToken,
	})
	if err != nil {
		return ""
	}
	return s
}

func pullError(name string, err error) error {
	text := Text(err)
	e := &errs.Error{Code: errs.CreateFailed, Op: "pull image " + name, Message: text}
	for _, k := range []struct {
		said string
		code errs.Code
		hint string
	}{
		{"no matching manifest", errs.ConfigInvalid, "the registry has the image for other processors only: set platform, or use another image"},
		{"unauthorized", errs.AuthFailed, "log in with `docker login`"},
		{"access denied", errs.AuthFailed, "the image does not exist, or needs `docker login`"},
		{"not found", errs.ConfigInvalid, "see the image's name and tag"},
		{"manifest unknown", errs.ConfigInvalid, "see the image's name and tag"},
		{"no space left", errs.NoSpace, "`docker system prune` frees what nobody uses"},
	} {
		if strings.Contains(strings.ToLower(text), k.said) {
			e.Code, e.Hint = k.code, k.hint
			return e
		}
	}
	if typed := Error(errs.CreateFailed, e.Op, err); errs.CodeOf(typed) != errs.CreateFailed {
		return typed
	}
	return e.WithHint("see whether the engine reaches the registry, or load the image and set pull = \"never\"")
}

// pulling adds the layers of one pull up.
type pulling struct {
	name   string
	report func(driver.Progress)
	layers map[string][2]int64
	last   time.Time
}

func (p *pulling) layer(id, status string, current, total int64) {
	if status != "Downloading" && status != "Download complete" {
		return
	}
	if total == 0 {
		total = p.layers[id][1]
		current = total
	}
	p.layers[id] = [2]int64{current, total}
	if time.Since(p.last) < progressEvery {
		return
	}
	p.last = time.Now()
	var sum [2]int64
	for _, l := range p.layers {
		sum[0], sum[1] = sum[0]+l[0], sum[1]+l[1]
	}
	p.report(driver.Progress{
		Phase: "pulling", Message: fmt.Sprintf("%s: %d layers", p.name, len(p.layers)), Done: uint64(sum[0]), Total: uint64(sum[1]),
	})
}
