// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"fmt"
	"maps"
	"net/url"
	"path"
	"strings"
)

// Remote is what a backend of rclone needs to reach a storage.
type Remote struct {
	Backend string            // rclone's name of it
	Options map[string]string // with the credentials
	Root    string            // path on it
	// SlowTimes says that each file's own time costs a request; the time of its upload comes with the listing.
	SlowTimes bool
}

// Backend says how rclone reaches a source. creds are the credentials' values by name; write asks for what a mount that
// is written to needs.
func Backend(s *Source, creds map[string]string, write bool) (Remote, error) {
	r := Remote{Options: map[string]string{}}
	set := func(option, value string) {
		if value != "" {
			r.Options[option] = value
		}
	}
	bucket := func() { r.Root = path.Join(s.text("bucket"), strings.Trim(s.text("prefix"), "/")) }
	keys := func() {
		r.Backend, r.SlowTimes = "s3", true
		set("access_key_id", creds["access_key_id"])
		set("secret_access_key", creds["secret_access_key"])
		set("session_token", creds["session_token"])
		set("region", s.text("region"))
		// Keys that may only use one bucket may not ask for it, or make it.
		r.Options["no_check_bucket"] = "true"
		r.Options["env_auth"] = fmt.Sprint(s.Ambient)
	}
	switch s.Kind {
	case S3:
		keys()
		bucket()
		provider, endpoint := s.text("provider"), s.text("endpoint_url")
		if provider == "" {
			provider = "AWS"
		}
		if u, err := url.Parse(endpoint); provider == "AWS" && endpoint != "" && (err != nil || !strings.HasSuffix(u.Hostname(), ".amazonaws.com")) {
			provider = "Other" // AWS's way to name buckets works nowhere else
		}
		set("provider", provider)
		set("endpoint", endpoint)
	case R2:
		keys()
		bucket()
		r.Options["provider"], r.Options["acl"] = "Cloudflare", "private"
		endpoint := s.text("custom_domain")
		if endpoint == "" {
			endpoint = "https://" + s.text("account_id") + ".r2.cloudflarestorage.com"
		}
		set("endpoint", endpoint)
		set("region", "auto")
	case GCS:
		bucket()
		if creds["access_id"] != "" {
			keys() // HMAC keys are for its S3 side
			r.Options["provider"] = "GCS"
			set("access_key_id", creds["access_id"])
			endpoint := s.text("endpoint_url")
			if endpoint == "" {
				endpoint = "https://storage.googleapis.com"
			}
			set("endpoint", endpoint)
			break
		}
		r.Backend = "google cloud storage"
		set("service_account_file", creds["service_account_file"])
		set("service_account_credentials", creds["service_account_json"])
		set("access_token", creds["access_token"])
		r.Options["env_auth"] = fmt.Sprint(s.Ambient)
		if len(creds) == 0 && !s.Ambient {
			r.Options["anonymous"] = "true"
		}
		r.Options["bucket_policy_only"], r.Options["no_check_bucket"] = "true", "true"
		if e := s.text("endpoint_url"); e != "" {
			r.Options["endpoint"] = strings.TrimSuffix(e, "/") + "/storage/v1/"
		}
	case AzureBlob:
		r.Backend = "azureblob"
		r.Root = path.Join(s.text("container"), strings.Trim(s.text("prefix"), "/"))
		set("account", s.text("account"))
		set("endpoint", s.text("endpoint"))
		r.Options["no_check_container"] = "true"
		switch id := s.text("identity_client_id"); {
		case creds["account_key"] != "":
			set("key", creds["account_key"])
		case id != "":
			r.Options["use_msi"] = "true"
			set("msi_client_id", id)
		case s.Ambient:
			r.Options["env_auth"] = "true"
		}
	case Box:
		r.Backend, r.Root = "box", strings.Trim(s.text("path"), "/")
		for option, name := range map[string]string{
			"client_id": "client_id", "client_secret": "client_secret", "access_token": "access_token", "token": "token",
			"box_config_file": "config_file", "config_credentials": "config_json",
		} {
			set(option, creds[name])
		}
		if t := s.text("sub_type"); t != "user" {
			set("box_sub_type", t)
		}
		set("root_folder_id", s.text("root_folder_id"))
		set("impersonate", s.text("impersonate"))
		set("owned_by", s.text("owned_by"))
	case Rclone:
		r.Backend, r.Root = s.text("backend"), s.text("path")
		options, _ := s.Fields["options"].(map[string]string)
		for k, v := range options {
			set(k, v)
		}
		maps.Copy(r.Options, creds)
	default:
		return r, fmt.Errorf("a process on the host cannot speak with storage of the kind %q", s.Kind)
	}
	if write && (r.Backend == "s3" || r.Backend == "azureblob" || r.Backend == "google cloud storage") {
		r.Options["directory_markers"] = "true" // an empty directory stays
	}
	return r, nil
}
