// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"slices"
	"strings"
	"testing"
)

// good is a source of each kind that nothing is wrong with.
func good() map[string]*Source {
	return map[string]*Source{
		S3:        {Kind: S3, Fields: map[string]any{"bucket": "acme", "prefix": "a/b", "provider": "AWS"}, Creds: []string{"access_key_id", "secret_access_key", "session_token"}},
		R2:        {Kind: R2, Fields: map[string]any{"bucket": "acme", "account_id": "0123abcd"}},
		GCS:       {Kind: GCS, Fields: map[string]any{"bucket": "acme"}, Creds: []string{"access_token"}},
		AzureBlob: {Kind: AzureBlob, Fields: map[string]any{"account": "acme", "container": "in-puts"}, Creds: []string{"account_key"}},
		Box:       {Kind: Box, Fields: map[string]any{"path": "/Team", "sub_type": "user"}, Creds: []string{"token"}},
		S3Files:   {Kind: S3Files, Fields: map[string]any{"file_system_id": "fs-12ab"}, Ambient: true},
		Rclone:    {Kind: Rclone, Fields: map[string]any{"backend": "sftp", "options": map[string]string{"host": "h", "known_hosts_file": "/k"}}, Creds: []string{"pass"}},
	}
}

func TestCheckTakesWhatIsRight(t *testing.T) {
	sources := good()
	for _, k := range Kinds() {
		if sources[k] == nil {
			t.Fatalf("no source of kind %s", k)
		}
		if f := Check(sources[k]); len(f) > 0 {
			t.Errorf("%s: %+v", k, f)
		}
	}
}

func TestCheckFindsWhatIsWrong(t *testing.T) {
	for _, tc := range []struct {
		kind, field string
		change      func(*Source)
		want        string
	}{
		{S3, "bucket", func(s *Source) { s.Fields["bucket"] = "a/b" }, "cannot be one"},
		{S3, "prefix", func(s *Source) { s.Fields["prefix"] = "x/../../y" }, "leads out"},
		{S3, "region", func(s *Source) { s.Fields["region"] = "eu west" }, "cannot be one"},
		{S3, "prefix", func(s *Source) { s.Fields["prefix"] = "a\ntype = local" }, "line break"},
		{S3, "endpoint_url", func(s *Source) { s.Fields["endpoint_url"] = "https://u:p@h" }, "may hold a secret"},
		{S3, "endpoint_url", func(s *Source) { s.Fields["endpoint_url"] = "https://h?sig=x" }, "may hold a secret"},
		{S3, "endpoint_url", func(s *Source) { s.Fields["endpoint_url"] = "localhost:9000" }, "no address"},
		{S3, "", func(s *Source) { s.Creds = []string{"secret_access_key"} }, "half of a pair"},
		{S3, "", func(s *Source) { s.Creds = []string{"session_token"} }, "session token"},
		{S3, "", func(s *Source) { s.Ambient = true }, "ambient"},
		{R2, "account_id", func(s *Source) { s.Fields["account_id"] = "a.b" }, "cannot be one"},
		{GCS, "", func(s *Source) { s.Creds = []string{"access_token", "service_account_json"} }, "more than one"},
		{GCS, "", func(s *Source) { s.Creds = []string{"access_id"} }, "half of a pair"},
		{AzureBlob, "container", func(s *Source) { s.Fields["container"] = "In_puts" }, "cannot be one"},
		{AzureBlob, "identity_client_id", func(s *Source) { s.Fields["identity_client_id"] = "x" }, "account key"},
		{Box, "", func(s *Source) { s.Creds = nil }, "no public storage"},
		{Box, "", func(s *Source) { s.Creds = []string{"token", "client_id"} }, "half of a pair"},
		{Box, "", func(s *Source) { s.Creds, s.Ambient = nil, true }, "no identity"},
		{S3Files, "access_point", func(s *Source) { s.Fields["access_point"] = "fsap-1,ro" }, "comma"},
		{S3Files, "file_system_id", func(s *Source) { s.Fields["file_system_id"] = "x" }, "cannot be one"},
		{Rclone, "backend", func(s *Source) { s.Fields["backend"] = "local" }, "no storage of its own"},
		{Rclone, "options", func(s *Source) { s.Fields["options"] = map[string]string{"known_hosts_file": "/k", "ssh": "sh"} }, "starts a program"},
		{Rclone, "options", func(s *Source) { s.Fields["options"] = map[string]string{"host": "h"} }, "any server"},
		{Rclone, "options", func(s *Source) { s.Fields["options"] = map[string]string{"known_hosts_file": "/k", "--config": "x"} }, "no option"},
	} {
		s := good()[tc.kind]
		tc.change(s)
		if !slices.ContainsFunc(Check(s), func(f Finding) bool {
			return f.Field == tc.field && strings.Contains(f.Text, tc.want) && f.Hint != ""
		}) {
			t.Errorf("%s: want %q at %q, got %+v", tc.kind, tc.want, tc.field, Check(s))
		}
	}
}

func TestBackend(t *testing.T) {
	for _, tc := range []struct {
		name  string
		s     *Source
		creds map[string]string
		write bool
		want  map[string]string
		root  string
	}{
		{
			"s3", &Source{Kind: S3, Fields: map[string]any{"bucket": "b", "prefix": "/p/q/", "provider": "AWS"}},
			map[string]string{"access_key_id": "i", "secret_access_key": "k"},
			true,
			map[string]string{"": "s3", "provider": "AWS", "endpoint": "", "access_key_id": "i", "env_auth": "false", "directory_markers": "true"},
			"b/p/q",
		},
		{
			"s3 elsewhere", &Source{Kind: S3, Fields: map[string]any{"bucket": "b", "provider": "AWS", "endpoint_url": "http://h:9"}}, nil, false,
			map[string]string{"": "s3", "provider": "Other", "endpoint": "http://h:9", "directory_markers": ""},
			"b",
		},
		{
			"s3 of a region", &Source{Kind: S3, Fields: map[string]any{"bucket": "b", "provider": "AWS", "endpoint_url": "https://s3.eu-west-1.amazonaws.com"}}, nil, false,
			map[string]string{"": "s3", "provider": "AWS"},
			"b",
		},
		{
			"r2", &Source{Kind: R2, Fields: map[string]any{"bucket": "b", "account_id": "acc"}}, nil, false,
			map[string]string{"": "s3", "provider": "Cloudflare", "endpoint": "https://acc.r2.cloudflarestorage.com"},
			"b",
		},
		{
			"gcs hmac", &Source{Kind: GCS, Fields: map[string]any{"bucket": "b"}},
			map[string]string{"access_id": "i", "secret_access_key": "k"},
			false,
			map[string]string{"": "s3", "provider": "GCS", "endpoint": "https://storage.googleapis.com", "access_key_id": "i"},
			"b",
		},
		{
			"gcs", &Source{Kind: GCS, Fields: map[string]any{"bucket": "b", "endpoint_url": "http://h/"}},
			map[string]string{"access_token": "t"},
			false,
			map[string]string{"": "google cloud storage", "access_token": "t", "anonymous": "", "endpoint": "http://h/storage/v1/"},
			"b",
		},
		{
			"gcs public", &Source{Kind: GCS, Fields: map[string]any{"bucket": "b"}}, nil, false,
			map[string]string{"": "google cloud storage", "anonymous": "true"},
			"b",
		},
		{
			"azure", &Source{Kind: AzureBlob, Fields: map[string]any{"account": "a", "container": "c", "prefix": "p"}},
			map[string]string{"account_key": "k"},
			false,
			map[string]string{"": "azureblob", "key": "k", "use_msi": ""},
			"c/p",
		},
		{
			"azure identity", &Source{Kind: AzureBlob, Fields: map[string]any{"account": "a", "container": "c", "identity_client_id": "id"}}, nil, false,
			map[string]string{"use_msi": "true", "msi_client_id": "id"},
			"c",
		},
		{
			"box", &Source{Kind: Box, Fields: map[string]any{"path": "/Team", "sub_type": "enterprise"}},
			map[string]string{"config_json": "{}"},
			false,
			map[string]string{"": "box", "config_credentials": "{}", "box_sub_type": "enterprise"},
			"Team",
		},
		{
			"sftp", &Source{Kind: Rclone, Fields: map[string]any{"backend": "sftp", "path": "/d", "options": map[string]string{"host": "h"}}},
			map[string]string{"pass": "x"},
			true,
			map[string]string{"": "sftp", "host": "h", "pass": "x", "directory_markers": ""},
			"/d",
		},
	} {
		r, err := Backend(tc.s, tc.creds, tc.write)
		if err != nil || r.Root != tc.root {
			t.Errorf("%s: root %q, error %v", tc.name, r.Root, err)
		}
		for k, v := range tc.want {
			if got := r.Options[k]; k == "" && r.Backend != v || k != "" && got != v {
				t.Errorf("%s: %s is %q (%s), want %q", tc.name, k, got, r.Backend, v)
			}
		}
	}
	if _, err := Backend(&Source{Kind: S3Files}, nil, false); err == nil {
		t.Error("S3 Files has no backend")
	}
}

func TestMatrix(t *testing.T) {
	built := map[string]bool{}
	for _, s := range Strategies() {
		built[s.Name] = s.Built
	}
	for _, d := range Drivers() {
		for _, m := range Describe(d) {
			for _, s := range m.Strategies {
				if !built[s] {
					t.Errorf("%s has %s for %s, which is not built", d, s, m.Kind)
				}
			}
		}
	}
	if s, ok := Choose(Auto, nil, []string{InContainer, HostRclone}); !ok || s != HostRclone {
		t.Errorf("auto chose %q", s)
	}
	if s, ok := Choose(Auto, nil, []string{InContainer}); ok {
		t.Errorf("auto let the keys in by %q", s)
	}
	if s, ok := Choose(Auto, []string{Native}, []string{HostRclone}); ok {
		t.Errorf("auto chose %q, which was not allowed", s)
	}
	if _, ok := Choose(Native, nil, []string{HostRclone}); ok {
		t.Error("a strategy that the driver lacks was taken")
	}
	if Exposure(GCS, "service_account_file", "rclone") != Broad || Exposure(S3, "access_key_id", "rclone") != Scoped || Exposure(S3Files, "", "s3files") != Broad {
		t.Error("exposure")
	}
}

func FuzzCheck(f *testing.F) {
	for _, v := range []string{"", "b", "a/../b", "https://u:p@h", "x\ny"} {
		f.Add(v)
	}
	f.Fuzz(func(t *testing.T, v string) {
		for _, k := range Kinds() {
			fields := map[string]any{}
			for _, n := range []string{"bucket", "prefix", "endpoint_url", "account", "container", "path", "file_system_id", "backend"} {
				fields[n] = v
			}
			s := &Source{Kind: k, Fields: fields}
			if len(Check(s)) > 0 || k == S3Files {
				continue
			}
			r, err := Backend(s, nil, true)
			if err != nil {
				t.Fatal(err)
			}
			if strings.ContainsAny(r.Root, "\r\n\x00") || strings.HasPrefix(r.Root, "../") {
				t.Errorf("%s: root %q", k, r.Root)
			}
		}
	})
}
