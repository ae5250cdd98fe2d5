// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
)

// maxName is the longest name of a tool that providers take.
const maxName = 64

var unfit = regexp.MustCompile(`[^A-Za-z0-9_-]+`)

// fit makes a name that providers take. Two names that differ stay different.
func fit(name string) string {
	out := unfit.ReplaceAllString(name, "_")
	if out == name && len(out) <= maxName && out != "" {
		return out
	}
	return marked(strings.Trim(out, "_-"), name)
}

// prefixed is a tool's name with its server's before it.
func prefixed(server, name string) string {
	clean := func(s string) string { return strings.Trim(unfit.ReplaceAllString(s, "_"), "_-") }
	out := "mcp_" + clean(server) + "__" + clean(name)
	if clean(server) == server && clean(name) == name && len(out) <= maxName {
		return out
	}
	return marked(out, server+"\x00"+name)
}

// marked makes a name unique by a part of the hash of what it stands for.
func marked(name, of string) string {
	sum := sha256.Sum256([]byte(of))
	mark := "_" + hex.EncodeToString(sum[:4])
	return name[:min(len(name), maxName-len(mark))] + mark
}
