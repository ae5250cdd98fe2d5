// SPDX-License-Identifier: Apache-2.0

package inside

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"

	"github.com/moby/moby/client"

	"github.com/berth-dev/berth/plugins/docker/internal/engine"
	"github.com/berth-dev/berth/sdk/errs"
)

// LastWords is the end of what a guest printed as errors. It may be used from several goroutines.
type LastWords struct {
	mu sync.Mutex
	b  string // guarded by mu
}

const lastWordsMax = 1 << 10

// Add takes more.
func (l *LastWords) Add(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b += text
	l.b = l.b[max(0, len(l.b)-lastWordsMax):]
}

// Text is what there was, in brackets; empty when there was nothing.
func (l *LastWords) Text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if text := strings.TrimSpace(l.b); text != "" {
		return " (" + text + ")"
	}
	return ""
}

// OwnRoot gives the workspace of a container that is yet to start to its user, who could not take it.
func OwnRoot(ctx context.Context, e *engine.Engine, id, root, user string) error {
	uid, gid, ok := numbers(user)
	if !ok {
		return errs.New(errs.ConfigInvalid, "without the capabilities SETUID and SETGID the user has to be a number, and is %q", user).
			WithHint("write user = \"UID:GID\"")
	}
	dir, base := splitRoot(root)
	if base == "" {
		return nil
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	err := w.WriteHeader(&tar.Header{Name: base + "/", Typeflag: tar.TypeDir, Mode: 0o755, Uid: uid, Gid: gid})
	if err = errors.Join(err, w.Close()); err != nil {
		return errs.Wrap(errs.Internal, "prepare the workspace", err)
	}
	_, err = e.CopyToContainer(ctx, id, client.CopyToContainerOptions{DestinationPath: dir, Content: &archive})
	return engine.Error(errs.CreateFailed, "prepare the workspace", err)
}

func splitRoot(root string) (dir, base string) {
	i := strings.LastIndexByte(root, '/')
	return root[:i+1], root[i+1:]
}

// numbers reads UID or UID:GID.
func numbers(user string) (uid, gid int, ok bool) {
	u, g, grouped := strings.Cut(user, ":")
	uid, err := strconv.Atoi(u)
	if err != nil {
		return 0, 0, false
	}
	if !grouped {
		return uid, uid, true
	}
	gid, err = strconv.Atoi(g)
	return uid, gid, err == nil
}
