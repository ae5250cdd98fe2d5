// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"fmt"
	"maps"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Source is a storage as a file describes it, without the credentials' values.
type Source struct {
	Kind   string
	Fields map[string]any // strings, and maps of strings; what is not set is absent or empty
	Creds  []string       // names of the credentials that are given
	// Ambient uses what identity the host's environment has.
	Ambient bool
}

// Finding is something that is wrong with a source.
type Finding struct {
	Field string // empty = the storage as a whole
	Text  string
	Hint  string
}

func (s *Source) text(name string) string {
	t, _ := s.Fields[name].(string)
	return t
}

// What names look like. Most programs that link this never need one, so each is compiled when it is.
const (
	bucketName    = `^[A-Za-z0-9][A-Za-z0-9._-]{0,254}$`
	accountName   = `^[a-z0-9][a-z0-9-]{1,62}$`
	containerName = `^(\$root|\$web|[a-z0-9]([a-z0-9-]{1,61}[a-z0-9]))$`
	regionName    = `^[A-Za-z0-9-]{1,64}$`
	fileSystemID  = `^(fs-[0-9a-f]+|arn:[^,\s]+)$`
	backendName   = `^[a-z0-9]{1,32}$`
	ipAddress     = `^[0-9a-fA-F.:]{2,45}$`
	digits        = `^[0-9]{1,20}$`
	safeOption    = `^[a-z0-9_]{1,64}$`
)

// Check finds what is wrong with a source before anything is asked of the storage.
func Check(s *Source) []Finding {
	c := &checker{s: s}
	for _, name := range slices.Sorted(maps.Keys(s.Fields)) {
		c.plain(name, s.Fields[name])
	}
	c.inside("prefix")
	c.inside("subpath")
	switch s.Kind {
	case S3, GCS, R2:
		c.match("bucket", bucketName, "letters, digits, dots, dashes and underscores")
		c.match("region", regionName, "letters, digits and dashes")
		c.address("endpoint_url")
	}
	switch s.Kind {
	case R2:
		c.match("account_id", `^[0-9A-Za-z]{1,64}$`, "letters and digits")
		c.address("custom_domain")
	case GCS:
		c.one("service_account_file", "service_account_json", "access_token", "access_id")
		c.pair("access_id", "secret_access_key")
	case AzureBlob:
		c.match("account", accountName, "small letters, digits and dashes")
		c.match("container", containerName, "small letters, digits and single dashes, 3 to 63")
		c.address("endpoint")
		if s.text("identity_client_id") != "" && slices.Contains(s.Creds, "account_key") {
			c.add("identity_client_id", "an account key is given too", "leave out one of them")
		}
	case Box:
		c.inside("path")
		c.match("root_folder_id", digits, "digits")
		c.match("impersonate", digits, "digits")
		c.one("access_token", "token", "config_file", "config_json")
		c.pair("client_id", "client_secret")
		if !slices.ContainsFunc(s.Creds, func(n string) bool {
			return slices.Contains([]string{"access_token", "token", "config_file", "config_json"}, n)
		}) {
			c.add("", "Box has no public storage", "give access_token, token, config_json or config_file in credentials")
		}
	case S3Files:
		c.match("file_system_id", fileSystemID, "fs-… or an ARN")
		c.match("mount_target_ip", ipAddress, "an address")
		c.match("region", regionName, "letters, digits and dashes")
		for _, name := range []string{"access_point", "subpath"} {
			if strings.ContainsRune(s.text(name), ',') {
				c.add(name, "a comma would begin another mount option", "leave it out")
			}
		}
	case Rclone:
		c.match("backend", backendName, "the name of a backend, such as sftp")
		c.options()
	}
	if s.Kind == S3 || s.Kind == R2 {
		c.pair("access_key_id", "secret_access_key")
		if slices.Contains(s.Creds, "session_token") && !slices.Contains(s.Creds, "access_key_id") {
			c.add("", "a session token without the key that it is for", "give access_key_id and secret_access_key too")
		}
	}
	if s.Ambient && len(s.Creds) > 0 {
		c.add("", "ambient = true and credentials of its own", "leave out one of them")
	}
	if s.Ambient && !slices.Contains([]string{S3, R2, GCS, AzureBlob, S3Files}, s.Kind) {
		c.add("", "the host's environment has no identity for "+s.Kind, "give the credentials")
	}
	return c.out
}

type checker struct {
	s   *Source
	out []Finding
}

func (c *checker) add(field, text, hint string) {
	c.out = append(c.out, Finding{Field: field, Text: text, Hint: hint})
}

// plain refuses what would end a line of some configuration.
func (c *checker) plain(name string, v any) {
	switch v := v.(type) {
	case string:
		if strings.ContainsAny(v, "\r\n\x00") {
			c.add(name, "it holds a line break or a NUL character", "values are one line of text")
		}
	case map[string]string:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			c.plain(name, k)
			c.plain(name, v[k])
		}
	}
}

func matches(pattern, s string) bool { return regexp.MustCompile(pattern).MatchString(s) }

func (c *checker) match(name, pattern, want string) {
	if v := c.s.text(name); v != "" && !matches(pattern, v) {
		c.add(name, fmt.Sprintf("%q cannot be one", v), "it is "+want)
	}
}

// inside refuses paths that lead out of where they begin.
func (c *checker) inside(name string) {
	if slices.Contains(strings.Split(c.s.text(name), "/"), "..") {
		c.add(name, "it leads out of where it begins", "leave out the dots")
	}
}

// address refuses what is no address, and addresses that hold a secret.
func (c *checker) address(name string) {
	v := c.s.text(name)
	if v == "" {
		return
	}
	u, err := url.Parse(v)
	switch {
	case err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "":
		c.add(name, "it is no address", "write it as https://HOST")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		c.add(name, "an address with a user, a query or a fragment may hold a secret, and is shown", "give keys in credentials")
	}
}

// one refuses several sources of an identity.
func (c *checker) one(names ...string) {
	have := slices.DeleteFunc(names, func(n string) bool { return !slices.Contains(c.s.Creds, n) })
	if len(have) > 1 {
		c.add("", "more than one way to be known: "+strings.Join(have, ", "), "leave all but one out")
	}
}

func (c *checker) pair(id, key string) {
	if a, b := slices.Contains(c.s.Creds, id), slices.Contains(c.s.Creds, key); a != b {
		missing := id
		if a {
			missing = key
		}
		c.add("", "half of a pair of keys", missing+" is needed too")
	}
}

// hostBackends reach what is on the host itself, or elsewhere than they say: a file must not name them.
var hostBackends = []string{"local", "alias", "combine", "crypt", "union", "chunker", "compress", "hasher", "cache", "archive", "memory"}

func (c *checker) options() {
	if b := c.s.text("backend"); slices.Contains(hostBackends, b) {
		c.add("backend", fmt.Sprintf("%q is no storage of its own", b), "name the backend of the storage")
	}
	options, _ := c.s.Fields["options"].(map[string]string)
	for _, k := range slices.Sorted(maps.Keys(options)) {
		switch {
		case !matches(safeOption, k):
			c.add("options", fmt.Sprintf("%q is no option of a backend", k), "options have names of small letters, digits and _")
		case slices.Contains(programs, k):
			c.add("options", fmt.Sprintf("%q starts a program on the host", k), "leave it out")
			return
		}
	}
	if c.s.text("backend") == "sftp" && options["known_hosts_file"] == "" {
		c.add("options", "without known_hosts_file any server that answers is believed", `add known_hosts_file = "/home/you/.ssh/known_hosts" to options`)
	}
}

// programs are options that make rclone start a program.
var programs = []string{"ssh", "server_command", "bearer_token_command", "key_use_agent", "ask_password"}

// Problem says what is wrong with the path of a mount below the workspace; empty = nothing.
func Problem(mountPath string) string {
	switch clean := path.Clean("/" + mountPath); {
	case mountPath == "":
		return ""
	case strings.ContainsAny(mountPath, "\r\n\x00\\"):
		return "it holds a character that paths of mounts cannot have"
	case clean == "/":
		return "the whole file system or workspace cannot be a mount"
	case slices.Contains(strings.Split(mountPath, "/"), ".."):
		return "it leads out of where it begins"
	}
	return ""
}
