// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"maps"
	"slices"
	"strings"
)

// passed are the variables of the core that every driver gets. BERTH_GUEST lets a developer try a guest that is not
// built in.
var passed = []string{
	"PATH", "HOME", "TMPDIR", "LANG", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY",
	"http_proxy", "https_proxy", "no_proxy", "BERTH_GUEST",
}

// Environ makes a driver's environment: from host ("NAME=value") what every driver gets and what more names, then
// extra, which wins. Nothing else of the host is passed.
func Environ(host, more []string, extra map[string]string) []string {
	chosen := map[string]string{}
	for _, kv := range host {
		name, value, ok := strings.Cut(kv, "=")
		if ok && (slices.Contains(passed, name) || strings.HasPrefix(name, "LC_") || slices.Contains(more, name)) {
			chosen[name] = value
		}
	}
	maps.Copy(chosen, extra)
	out := make([]string, 0, len(chosen))
	for name, value := range chosen {
		out = append(out, name+"="+value)
	}
	slices.Sort(out)
	return out
}
