// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"cmp"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/berth-dev/berth/sdk/errs"
)

// maxProfiles bounds the configuration file.
const maxProfiles = 1 << 20

// profile is one table of Modal's configuration file.
type profile struct {
	TokenID      string `toml:"token_id"`
	TokenSecret  string `toml:"token_secret"`
	OAuthRefresh string `toml:"oauth_refresh_token"`
	ServerURL    string `toml:"server_url"`
	Environment  string `toml:"environment"`
	ImageBuilder string `toml:"image_builder_version"`
}

// ReadProfile fills what the driver block does not say from a profile of Modal's configuration file, if one is named.
func (p *Process) ReadProfile() error {
	if p.Profile == "" {
		return nil
	}
	if p.TokenID != "" || p.TokenSecret != "" {
		return Wrong("profile", errs.New(errs.ConfigInvalid, "there is a token beside the profile %q", p.Profile).WithHint("leave one of them out"))
	}
	name := p.ConfigFile
	if rest, ok := strings.CutPrefix(name, "~/"); ok {
		home, err := os.UserHomeDir()
		if err != nil {
			return Wrong("config_file", errs.New(errs.ConfigInvalid, "the home directory is not known: %v", err).WithHint("give an absolute path"))
		}
		name = filepath.Join(home, rest)
	}
	all, err := readProfiles(name)
	if err != nil {
		return Wrong("config_file", errs.New(errs.ConfigInvalid, "Modal's configuration file cannot be read: %v", err).
			WithHint("modal token new makes it; or set token_id and token_secret"))
	}
	got, ok := all[p.Profile]
	switch {
	case !ok:
		return Wrong("profile", errs.New(errs.ConfigInvalid, "%s has no profile %q", name, p.Profile).WithHint("modal profile list says which there are"))
	case got.TokenID == "" && got.OAuthRefresh != "":
		return Wrong("profile", errs.New(errs.Unsupported, "profile %q signs in by OAuth, and this driver with tokens", p.Profile).
			WithHint("make a token in Modal's settings"))
	case got.TokenID == "" || got.TokenSecret == "":
		return Wrong("profile", errs.New(errs.ConfigInvalid, "profile %q of %s has no token_id and token_secret", p.Profile, name))
	}
	p.TokenID, p.TokenSecret = got.TokenID, got.TokenSecret
	if p.ServerURL == DefaultServer {
		p.ServerURL = cmp.Or(got.ServerURL, p.ServerURL)
	}
	p.Environment, p.ImageBuilder = cmp.Or(p.Environment, got.Environment), cmp.Or(p.ImageBuilder, got.ImageBuilder)
	return nil
}

// readProfiles reads the file. Errors hold nothing of it: it is full of secrets.
func readProfiles(name string) (map[string]profile, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxProfiles+1))
	if err == nil && len(b) > maxProfiles {
		err = errors.New("it has more than 1 MiB")
	}
	if err != nil {
		return nil, err
	}
	var all map[string]profile
	if err := toml.Unmarshal(b, &all); err != nil {
		return nil, errors.New("it is not the TOML that Modal writes")
	}
	return all, nil
}
