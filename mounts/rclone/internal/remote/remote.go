// SPDX-License-Identifier: Apache-2.0

// Package remote opens storage with rclone's backends: from what a message says, in memory, without a configuration file
// and without anything of the environment. Errors that leave it hold no credential.
package remote

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rclone/rclone/fs"
	"github.com/rclone/rclone/fs/config"
	"github.com/rclone/rclone/fs/config/configmap"
	"github.com/rclone/rclone/fs/config/obscure"
	"github.com/rclone/rclone/lib/atexit"

	"github.com/berth-dev/berth/mounts/spec"
	"github.com/berth-dev/berth/sdk/errs"
	pb "github.com/berth-dev/berth/sdk/proto/berth/storage/v1"
)

// Init makes rclone keep to itself: no configuration file, no signals, and its cache below dir.
func Init(dir string) error {
	atexit.IgnoreSignals()
	return errors.Join(config.SetConfigPath(""), config.SetCacheDir(dir))
}

// buffer is how much a reader reads ahead in memory.
const buffer = 4 << 20

// Remote is a storage that was opened.
type Remote struct {
	Fs     fs.Fs
	Ctx    context.Context //nolint:containedctx // it carries rclone's settings of this remote, and never ends
	Limits *pb.Limits

	kind string

	mu      sync.Mutex
	secrets []string         // guarded by mu
	options configmap.Simple // guarded by mu
}

// Open opens a storage. It asks nothing of it, but for a Box account of an application, which has to log in.
func Open(ctx context.Context, p *pb.Remote, write bool) (*Remote, error) {
	src := &spec.Source{Kind: p.GetKind(), Ambient: p.GetAmbient()}
	if err := fields(p.GetFields(), src); err != nil {
		return nil, err
	}
	how, err := spec.Backend(src, p.GetCredentials(), write)
	if err != nil {
		return nil, errs.Wrap(errs.MountConfigInvalid, "reach the storage", err)
	}
	info, err := fs.Find(how.Backend)
	if err != nil {
		return nil, errs.New(errs.MountConfigInvalid, "there is no backend %q in this build", how.Backend).
			WithHint("it has: %s", strings.Join(names(), ", "))
	}
	r := &Remote{Limits: p.GetLimits(), kind: p.GetKind(), options: configmap.Simple{}}
	r.learn(p.GetCredentials())
	for k, v := range how.Options {
		o := info.Options.Get(k)
		if o == nil {
			return nil, errs.New(errs.MountConfigInvalid, "backend %q has no option %q", how.Backend, k)
		}
		if o.IsPassword && v != "" {
			if v, err = obscure.Obscure(v); err != nil {
				return nil, errs.Wrap(errs.Internal, "keep a password", err)
			}
		}
		r.options[k] = v
	}
	r.Ctx = settings(p.GetLimits(), how.SlowTimes)
	m := r.mapper(info)
	if how.Backend == "box" && info.Config != nil && (r.options["config_credentials"] != "" || r.options["box_config_file"] != "") {
		// An application's login is exchanged for a token that the backend then renews.
		if _, err := info.Config(ctx, p.GetName(), m, fs.ConfigIn{}); err != nil {
			return nil, r.Error("log in", err)
		}
	}
	r.Fs, err = info.NewFs(r.Ctx, p.GetName(), how.Root, m)
	if errors.Is(err, fs.ErrorIsFile) {
		return nil, errs.New(errs.MountConfigInvalid, "%s is a file: only a directory can be mounted", how.Root)
	}
	if err != nil {
		return nil, r.Error("open the storage", err)
	}
	return r, nil
}

// fields reads the fields of a source.
func fields(b []byte, src *spec.Source) error {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(b, &raw); err != nil {
		return errs.Wrap(errs.Internal, "read the fields of the storage", err)
	}
	src.Fields = map[string]any{}
	for k, v := range raw {
		var text string
		var many map[string]string
		switch {
		case json.Unmarshal(v, &text) == nil:
			src.Fields[k] = text
		case json.Unmarshal(v, &many) == nil:
			src.Fields[k] = many
		}
	}
	return nil
}

func names() []string {
	var out []string
	for _, i := range fs.Registry {
		out = append(out, i.Name)
	}
	slices.Sort(out)
	return out
}

// settings are rclone's own, for one remote. Its defaults wait for minutes, ten times over: a command that reads a file
// of a storage that is gone could not even be killed for as long.
func settings(l *pb.Limits, slowTimes bool) context.Context {
	ctx, ci := fs.AddConfig(context.Background())
	ci.Timeout = fs.Duration(millis(l.GetIoTimeoutMs(), 10*time.Second))
	ci.ConnectTimeout = fs.Duration(millis(l.GetConnectTimeoutMs(), 5*time.Second))
	ci.ExpectContinueTimeout = fs.Duration(time.Second)
	ci.LowLevelRetries = int(l.GetRetries()) + 1
	ci.Retries = 1
	ci.BufferSize = buffer
	ci.UseServerModTime = slowTimes
	ci.UserAgent = "berth"
	return ctx
}

func millis(ms int64, usual time.Duration) time.Duration {
	if ms <= 0 {
		return usual
	}
	return time.Duration(ms) * time.Millisecond
}

// mapper gives a backend its options. What it changes by itself, such as a token that it renewed, is kept in memory.
func (r *Remote) mapper(info *fs.RegInfo) *configmap.Map {
	m := configmap.New()
	m.AddGetter(values{r}, configmap.PriorityNormal)
	m.AddGetter(defaults{info.Options}, configmap.PriorityDefault)
	m.AddSetter(values{r})
	return m
}

type values struct{ r *Remote }

// Get gives an option that was set.
func (v values) Get(key string) (string, bool) {
	v.r.mu.Lock()
	defer v.r.mu.Unlock()
	s, ok := v.r.options[key]
	return s, ok
}

// Set keeps an option.
func (v values) Set(key, value string) {
	v.r.mu.Lock()
	v.r.options[key] = value
	v.r.mu.Unlock()
	if strings.Contains(key, "token") {
		v.r.learn(map[string]string{key: value})
	}
}

type defaults struct{ options fs.Options }

// Get gives the default of an option.
func (d defaults) Get(key string) (string, bool) {
	o := d.options.Get(key)
	if o == nil {
		return "", false
	}
	return fmt.Sprint(o.Default), true
}

// learn takes secrets that no error may hold.
func (r *Remote) learn(creds map[string]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, v := range creds {
		if len(v) < 4 {
			continue // it would take every text apart
		}
		r.secrets = append(r.secrets, v, url.QueryEscape(v), url.PathEscape(v), base64.StdEncoding.EncodeToString([]byte(v)))
		var many map[string]any
		if json.Unmarshal([]byte(v), &many) == nil {
			for _, inner := range many {
				if s, ok := inner.(string); ok && len(s) > 8 {
					r.secrets = append(r.secrets, s)
				}
			}
		}
	}
}

// Scrub takes the secrets out of a text.
func (r *Remote) Scrub(text string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.secrets {
		text = strings.ReplaceAll(text, s, "(sensitive value)")
	}
	return text
}

// Error says why a storage could not be used, with what to do about it.
func (r *Remote) Error(op string, err error) error {
	if err == nil {
		return nil
	}
	text := r.Scrub(err.Error())
	e := &errs.Error{Code: errs.MountFailed, Op: op, Message: text}
	low := strings.ToLower(text)
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(low, w) })
	}
	switch {
	case has("accessdenied", "access denied", "403", "forbidden", "signaturedoesnotmatch", "invalidaccesskeyid", "401", "unauthorized",
		"invalid_grant", "invalid_client", "authenticationfailed", "authorizationfailure", "unable to authenticate"):
		return e.WithHint("the storage refuses the credentials, or they may not do this there")
	case errors.Is(err, fs.ErrorDirNotFound), has("nosuchbucket", "containernotfound", "directory not found", "404"):
		return e.WithHint("there is no such bucket, container or directory; its name, region and address have to be right")
	case has("requesttimetooskewed", "clock"):
		return e.WithHint("set this machine's clock")
	case errors.Is(err, context.DeadlineExceeded), has("timeout", "deadline exceeded", "connection refused", "no such host", "connection reset"):
		return e.WithHint("the storage does not answer at its address")
	}
	return e
}

// errEnough ends a listing.
var errEnough = errors.New("one page is enough")

// Probe looks at the first page of the root, within the time of the limits.
func (r *Remote) Probe(ctx context.Context) error {
	limit := millis(r.Limits.GetProbeTimeoutMs(), 10*time.Second)
	ctx, cancel := context.WithTimeoutCause(fs.CopyConfig(ctx, r.Ctx), limit, fmt.Errorf("timeout: no answer within %s", limit))
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- r.first(ctx) }()
	select {
	case err := <-done:
		return r.Error("look at the storage", err)
	case <-ctx.Done():
		return r.Error("look at the storage", context.Cause(ctx))
	}
}

func (r *Remote) first(ctx context.Context) error {
	if list := r.Fs.Features().ListP; list != nil {
		err := list(ctx, "", func(fs.DirEntries) error { return errEnough })
		if errors.Is(err, errEnough) {
			return nil
		}
		return err
	}
	_, err := r.Fs.List(ctx, "")
	return err
}

// Refresh gives the storage other credentials while it is in use.
func (r *Remote) Refresh(ctx context.Context, creds map[string]string) error {
	set := r.Fs.Features().Command
	src := &spec.Source{Kind: r.kind}
	how, err := spec.Backend(src, creds, false)
	if err != nil || set == nil || how.Backend != "s3" {
		return errs.New(errs.Unsupported, "storage of the kind %q takes no other credentials while it is mounted", r.kind)
	}
	r.learn(creds)
	options := map[string]string{}
	for _, k := range []string{"access_key_id", "secret_access_key", "session_token"} {
		options[k] = how.Options[k]
	}
	if _, err := set(ctx, "set", nil, options); err != nil {
		return r.Error("change the credentials", err)
	}
	r.mu.Lock()
	maps.Copy(r.options, options)
	r.mu.Unlock()
	return nil
}
