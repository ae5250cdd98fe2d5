// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/berth-dev/berth/core/snapshot/objects"
	"github.com/berth-dev/berth/sdk/errs"
)

// A name is an object "names/NAME@WHEN" that holds an id; of several the one that was made last counts. So a name can be
// moved in a store whose objects do not change.
const namePrefix = "names/"

var goodName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`) })

// CheckName refuses what cannot be a snapshot's name.
func CheckName(name string) error {
	bad := func(why string) error {
		return errs.New(errs.InvalidArgument, "a snapshot cannot have the name %q: %s", name, why)
	}
	switch {
	case !goodName().MatchString(name):
		return bad("a name is 1 to 63 small letters, digits, dots, dashes and underscores, and begins with a letter or digit")
	case name == "latest" || name == "never":
		return bad("the word has a meaning of its own")
	case strings.Trim(name, "0123456789abcdef") == "":
		return bad("it could be the beginning of an id")
	}
	return nil
}

// nameObjects gives, for each name, its objects with their ids' objects' names; the last counts.
func (r *Repo) nameObjects(ctx context.Context) (map[string][]string, error) {
	out := map[string][]string{}
	for info, err := range r.objs.List(ctx, namePrefix) {
		if err != nil {
			return nil, err
		}
		name, _, ok := strings.Cut(strings.TrimPrefix(info.Name, namePrefix), "@")
		if !ok {
			continue
		}
		all := out[name]
		if n := len(all); n > 0 && all[n-1] > info.Name {
			all = append([]string{info.Name}, all...) // only the last has to be at its place
		} else {
			all = append(all, info.Name)
		}
		out[name] = all
	}
	return out, nil
}

// Names gives the ids by name.
func (r *Repo) Names(ctx context.Context) (map[string]string, error) {
	found, err := r.nameObjects(ctx)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for name, all := range found {
		b, err := objects.Read(ctx, r.objs, all[len(all)-1], 0, -1, 1<<10)
		if err != nil {
			return nil, err
		}
		out[name] = string(b)
	}
	return out, nil
}

// Name gives a snapshot a name, which it takes away from another one.
func (r *Repo) Name(ctx context.Context, id, name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	unlock, err := r.share(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	before, err := r.nameObjects(ctx)
	if err != nil {
		return err
	}
	var random [4]byte
	_, _ = rand.Read(random[:]) // never fails
	object := fmt.Sprintf("%s%s@%016x%s", namePrefix, name, r.opts.Now().UnixNano(), hex.EncodeToString(random[:]))
	if all := before[name]; len(all) > 0 && all[len(all)-1] >= object {
		return errs.New(errs.InvalidArgument, "the name %q was given at a later time than this machine's clock shows", name).WithHint("set the clock, or remove the name first")
	}
	if _, err := r.objs.Put(ctx, object, []byte(id)); err != nil {
		return err
	}
	return r.deleteAll(ctx, before[name])
}

// Unname takes a name away.
func (r *Repo) Unname(ctx context.Context, name string) error {
	unlock, err := r.share(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	found, err := r.nameObjects(ctx)
	if err != nil {
		return err
	}
	if len(found[name]) == 0 {
		return errs.New(errs.InvalidArgument, "there is no snapshot with the name %q in %s", name, r.Where())
	}
	return r.deleteAll(ctx, found[name])
}

func (r *Repo) deleteAll(ctx context.Context, names []string) error {
	for _, n := range names {
		if err := r.objs.Delete(ctx, n); err != nil {
			return err
		}
	}
	return nil
}
