// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/modal-labs/modal-client/go"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// bucketSource is what a mount says of its storage.
type bucketSource struct {
	Bucket       string `json:"bucket"`
	Prefix       string `json:"prefix"`
	Region       string `json:"region"`
	EndpointURL  string `json:"endpoint_url"`
	AccountID    string `json:"account_id"`
	CustomDomain string `json:"custom_domain"`
}

// bucketStrategy is what the strategy "native" takes.
type bucketStrategy struct {
	SecretName    string `json:"secret_name"` // a named secret of the workspace, instead of credentials
	OIDCRole      string `json:"oidc_auth_role_arn"`
	RequesterPays bool   `json:"requester_pays"`
}

// keyNames are the variables that Modal wants a bucket's credentials in, by what a mount calls them.
var keyNames = map[string]map[string]string{
	"s3":  {"access_key_id": "AWS_ACCESS_KEY_ID", "secret_access_key": "AWS_SECRET_ACCESS_KEY", "session_token": "AWS_SESSION_TOKEN"},
	"r2":  {"access_key_id": "AWS_ACCESS_KEY_ID", "secret_access_key": "AWS_SECRET_ACCESS_KEY"},
	"gcs": {"access_id": "GOOGLE_ACCESS_KEY_ID", "secret_access_key": "GOOGLE_ACCESS_KEY_SECRET"},
}

// buckets are Modal's own mounts of buckets. They are made with the sandbox and cannot be changed.
func (m *maker) buckets(ctx context.Context, specs []driver.MountSpec) (map[string]*modal.CloudBucketMount, error) {
	if len(specs) == 0 {
		return nil, nil
	}
	out := map[string]*modal.CloudBucketMount{}
	for i := range specs {
		b, err := m.bucket(ctx, &specs[i])
		if err != nil {
			return nil, err
		}
		at := specs[i].Path
		if !path.IsAbs(at) {
			at = path.Join(m.record.Root, at)
		}
		out[at] = b
	}
	return out, nil
}

func (m *maker) bucket(ctx context.Context, spec *driver.MountSpec) (*modal.CloudBucketMount, error) {
	bad := func(format string, args ...any) *errs.Error {
		return errs.New(errs.MountConfigInvalid, format, args...).With("mount", spec.ID)
	}
	names := keyNames[spec.Kind]
	if names == nil || spec.Strategy != "native" && spec.Strategy != "auto" {
		return nil, errs.New(errs.Unsupported, "Modal does not mount %s by %q", spec.Kind, spec.Strategy).With("mount", spec.ID).
			WithHint("it mounts s3, r2 and gcs by \"native\"")
	}
	var src bucketSource
	var how bucketStrategy
	for _, x := range []struct {
		from  []byte
		to    any
		known bool // only what Modal takes may be in it
	}{{spec.Source.JSON, &src, false}, {spec.StrategyConfig.JSON, &how, true}} {
		if len(x.from) == 0 {
			continue
		}
		dec := json.NewDecoder(bytes.NewReader(x.from))
		if x.known {
			dec.DisallowUnknownFields()
		}
		if err := dec.Decode(x.to); err != nil {
			return nil, bad("the mount at %s cannot be read: %v", spec.Path, err)
		}
	}
	if src.Bucket == "" {
		return nil, bad("the mount at %s names no bucket", spec.Path)
	}
	p := &modal.CloudBucketMountParams{ReadOnly: spec.ReadOnly, RequesterPays: how.RequesterPays}
	if at := src.endpoint(spec.Kind); at != "" {
		p.BucketEndpointURL = &at
	}
	if src.Prefix != "" {
		prefix := strings.TrimSuffix(src.Prefix, "/") + "/" // Modal puts it before all paths
		p.KeyPrefix = &prefix
	}
	if how.OIDCRole != "" {
		p.OidcAuthRoleArn = &how.OIDCRole
	}
	if how.SecretName != "" && len(spec.Credentials) > 0 {
		return nil, bad("the mount at %s has credentials and secret_name", spec.Path).WithHint("leave one out")
	}
	var err error
	switch {
	case how.SecretName != "":
		if p.Secret, err = m.secret(ctx, "secret_name", how.SecretName); err != nil {
			return nil, err
		}
	case len(spec.Credentials) > 0:
		keys := map[string]string{}
		for _, name := range slices.Sorted(maps.Keys(spec.Credentials)) {
			if names[name] == "" {
				return nil, bad("Modal does not take %s for a mount of %s", name, spec.Kind)
			}
			keys[names[name]] = spec.Credentials[name]
		}
		if src.Region != "" && spec.Kind == "s3" {
			keys["AWS_REGION"] = src.Region
		}
		if p.Secret, err = m.d.c.Secrets.FromMap(ctx, keys, nil); err != nil {
			return nil, bad("the credentials of the mount at %s cannot be used", spec.Path)
		}
	}
	b, err := m.d.c.CloudBucketMounts.New(src.Bucket, p)
	if err != nil {
		return nil, bad("the mount at %s: %v", spec.Path, err)
	}
	return b, nil
}

// endpoint is where the bucket is; empty = Amazon's.
func (s *bucketSource) endpoint(kind string) string {
	switch {
	case kind == "r2" && s.CustomDomain != "":
		return s.CustomDomain
	case kind == "r2":
		return "https://" + s.AccountID + ".r2.cloudflarestorage.com"
	case kind == "gcs" && s.EndpointURL == "":
		return "https://storage.googleapis.com"
	}
	return s.EndpointURL
}
