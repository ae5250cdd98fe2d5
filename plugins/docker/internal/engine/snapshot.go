// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"

	"github.com/moby/moby/client"
	"github.com/oklog/ulid/v2"
)

const (
	snapshotRepository = "berth-snapshot"
	releasedRepository = "berth-snapshot-released" // of images that only containers need
)

func tag(repository string) string { return repository + ":" + strings.ToLower(ulid.Make().String()) }

// SnapshotTag is a new one for the image of a snapshot.
func SnapshotTag() string { return tag(snapshotRepository) }

// Released says whether an image is no snapshot any more, and only needed by containers.
func Released(tags []string) bool {
	return len(tags) > 0 && !slices.ContainsFunc(tags, func(t string) bool { return !released(t) })
}

func released(tag string) bool {
	name, _, _ := strings.Cut(tag, ":")
	return path.Base(name) == releasedRepository // Podman puts a host before it
}

// Release removes the image of a snapshot, or leaves it to the containers that were made from it.
func (e *Engine) Release(ctx context.Context, id string, tags []string) error {
	if len(tags) == 0 {
		tags = []string{id}
	}
	for _, t := range tags {
		if released(t) {
			continue
		}
		_, err := e.ImageRemove(ctx, t, client.ImageRemoveOptions{PruneChildren: true})
		if Conflict(err) && t != id {
			if _, err = e.ImageTag(ctx, client.ImageTagOptions{Source: id, Target: tag(releasedRepository)}); err == nil {
				_, err = e.ImageRemove(ctx, t, client.ImageRemoveOptions{PruneChildren: true})
			}
		}
		if err != nil && !NotFound(err) && !Conflict(err) {
			return err
		}
	}
	return nil
}

// DropReleased removes the image of a container that is gone, when it was a snapshot, was released, and no other needs it.
func (e *Engine) DropReleased(ctx context.Context, id string) error {
	if id == "" {
		return nil
	}
	img, err := e.ImageInspect(ctx, id)
	if NotFound(err) || err == nil && !Released(img.RepoTags) {
		return nil
	}
	all := err
	for _, t := range img.RepoTags {
		if _, err := e.ImageRemove(ctx, t, client.ImageRemoveOptions{PruneChildren: true}); !Conflict(err) && !NotFound(err) {
			all = errors.Join(all, err)
		}
	}
	return all
}
