// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"strings"

	"github.com/berth-dev/berth/plugins/docker/internal/engine"
	"github.com/berth-dev/berth/plugins/docker/internal/settings"
	"github.com/berth-dev/berth/sdk/errs"
)

// CreateError types why the engine does not make a container.
func (w *Want) CreateError(err error) error {
	text := engine.Text(err)
	if w.Config.Disk > 0 && (strings.Contains(text, "storage-opt") || strings.Contains(text, "storage option")) {
		return settings.Wrong("disk", errs.New(errs.ConfigInvalid, "disk = %d cannot be held: the engine at %s keeps its containers with %s (%s)",
			w.Config.Disk, w.Engine.Where, w.Engine.Storage(), text).
			WithHint("leave disk out, or give the engine a data directory on XFS that is mounted with pquota, and the storage driver overlay2"))
	}
	for _, k := range []struct{ said, attribute, hint string }{
		{"unknown or invalid runtime", "runtime", "see `docker info` for the runtimes that there are"},
		{"Unknown runtime", "runtime", "see `docker info` for the runtimes that there are"},
		{"nvalid CapAdd", "capabilities", "write names such as \"NET_ADMIN\""},
	} {
		if strings.Contains(text, k.said) {
			return settings.Wrong(k.attribute, errs.New(errs.ConfigInvalid, "%s", text).WithHint("%s", k.hint))
		}
	}
	return engine.Error(errs.CreateFailed, "create the container", err)
}

// StartError types why a container does not start, in words that the first process's absence or the network explain.
func StartError(err error) error {
	text := engine.Text(err)
	if strings.Contains(text, "network") && strings.Contains(text, "not found") {
		return settings.Wrong("network", errs.New(errs.ConfigInvalid, "%s", text).WithHint("make it with `docker network create`, or use \"bridge\" or \"none\""))
	}
	return engine.Error(errs.StartFailed, "start the container", err)
}
