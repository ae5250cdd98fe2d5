// SPDX-License-Identifier: Apache-2.0

// Package conversation lets a run go on with what was said in earlier runs. A conversation has a key of the user's own and
// belongs to a project; each run that completes in it adds one turn, from its input to its answer. The turns are in the
// state store, what they are made of is in the log of the run; this package does not perform runs.
//
// A turn is opened before its run starts and saved, once, when the run has completed. When the process ends in between,
// the turn is saved when the conversation is next read, from the run's log. A run that has not completed is no part of the
// conversation until it is resumed to its end.
package conversation

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/run"
	"github.com/berth-dev/berth/core/runlog"
	"github.com/berth-dev/berth/core/runner/history"
	"github.com/berth-dev/berth/core/state"
	"github.com/berth-dev/berth/sdk/errs"
)

// Keeper reads and writes the conversations of a project.
type Keeper struct {
	Store   state.Conversations
	RunsDir string // where the logs of runs are
	Project string // directory; empty = none
}

// Opened is a conversation as a run gets it.
type Opened struct {
	Items []model.Item // what was said before
	// Warnings are what a person should know.
	Warnings []event.Warning
}

// maxKey bounds a key.
const maxKey = 512

// CheckKey says what is wrong with a key. Everything that is text goes: addresses, paths, spaces.
func CheckKey(key string) error {
	switch {
	case strings.TrimSpace(key) == "":
		return errs.New(errs.InvalidArgument, "the key of the conversation is empty")
	case len(key) > maxKey:
		return errs.New(errs.InvalidArgument, "the key of the conversation has %d bytes, at most %d are allowed", len(key), maxKey)
	case !utf8.ValidString(key) || strings.ContainsRune(key, 0):
		return errs.New(errs.InvalidArgument, "the key of the conversation %q is no text", key)
	}
	return nil
}

// Open gives what was said, and says that a run will add to it. With a limit, it is the newest items: from the first
// message of the user among them on, so that no call is without its output.
func (k *Keeper) Open(ctx context.Context, key, runID string, limit int) (*Opened, error) {
	if err := CheckKey(key); err != nil {
		return nil, err
	}
	turns, err := k.turns(ctx, key)
	if err != nil {
		return nil, err
	}
	o := &Opened{}
	var last int64
	for _, t := range turns {
		if t.Seq == 0 {
			if message, hint := k.missing(t); message != "" {
				o.Warnings = append(o.Warnings, event.Warning{Message: message, Hint: hint})
			}
			continue
		}
		items, err := Items(t)
		if err != nil {
			return nil, err
		}
		if t.Whole {
			o.Items = nil
		}
		o.Items, last = append(o.Items, items...), t.Seq
	}
	o.Items = said(o.Items)
	if limit > 0 {
		o.Items = newest(o.Items, limit)
	}
	return o, k.Store.OpenTurn(ctx, &state.ConversationTurn{
		Project: k.Project, Conversation: key, Run: runID, Follows: last, Skip: len(o.Items),
	})
}

// missing says why a turn is no part of its conversation, and what to do; nothing when its run did not even begin.
func (k *Keeper) missing(t *state.ConversationTurn) (message, hint string) {
	dir, err := runlog.Dir(k.RunsDir, t.Run)
	if err != nil {
		return "", ""
	}
	live, err := runlog.Live(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Sprintf("run %s was in conversation %q and is not on this machine: it is no part of it", t.Run, t.Conversation), ""
	case live:
		return fmt.Sprintf("run %s works in conversation %q now, and what it says is not known yet", t.Run, t.Conversation), ""
	}
	log, err := runlog.OpenView(dir)
	if err != nil {
		return fmt.Sprintf("run %s of conversation %q cannot be read: %s", t.Run, t.Conversation, err), ""
	}
	defer log.Close() // it was only read
	if begun, err := history.Begun(log); err == nil && !begun {
		return "", ""
	}
	return fmt.Sprintf("run %s is not complete, and no part of conversation %q", t.Run, t.Conversation), "berth resume " + t.Run + " completes it"
}

// turns reads a conversation, after it has saved the turns that should have been.
func (k *Keeper) turns(ctx context.Context, key string) ([]*state.ConversationTurn, error) {
	turns, err := k.Store.Turns(ctx, k.Project, key)
	if err != nil {
		return nil, err
	}
	late := false
	for _, t := range turns {
		if t.Seq > 0 {
			continue
		}
		saved, err := k.save(ctx, t)
		if err != nil {
			return nil, err
		}
		late = late || saved
	}
	if late {
		turns, err = k.Store.Turns(ctx, k.Project, key)
	}
	return turns, err
}

// Save puts a run that has completed into its conversation. The warning, if any, is for a person.
func (k *Keeper) Save(ctx context.Context, key, runID string) (warning string, err error) {
	turns, err := k.Store.Turns(ctx, k.Project, key)
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(turns, func(t *state.ConversationTurn) bool { return t.Run == runID })
	if i < 0 {
		return fmt.Sprintf("conversation %q was cleared while run %s was in it: the run is no part of it", key, runID), nil
	}
	t := turns[i]
	if t.Seq > 0 {
		return "", nil
	}
	follows := t.Follows
	if _, err := k.save(ctx, t); err != nil {
		return "", err
	}
	if t.Seq > follows+1 {
		warning = fmt.Sprintf("%d other turns were added to conversation %q while run %s worked, which knows nothing of them", t.Seq-follows-1, key, runID)
	}
	return warning, nil
}

// save saves an open turn when its run has completed.
func (k *Keeper) save(ctx context.Context, t *state.ConversationTurn) (bool, error) {
	dir, err := runlog.Dir(k.RunsDir, t.Run)
	if err != nil {
		return false, err
	}
	log, err := runlog.OpenView(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // of another machine, or removed
	}
	if err != nil {
		return false, err
	}
	defer log.Close() // it was only read
	if begun, err := history.Begun(log); err != nil || !begun {
		return false, err
	}
	h, err := history.Read(log)
	if err != nil {
		return false, fmt.Errorf("run %s of conversation %q: %w", t.Run, t.Conversation, err)
	}
	if h.State.Status != run.Completed {
		return false, nil
	}
	items, from, err := history.Own(log, t.Skip)
	if err != nil {
		return false, fmt.Errorf("run %s of conversation %q: %w", t.Run, t.Conversation, err)
	}
	var b bytes.Buffer
	for _, it := range items[max(from, 0):] {
		b.Write(it.Raw)
		b.WriteByte('\n')
	}
	t.Whole, t.Items = from >= 0, b.Bytes()
	return k.Store.SaveTurn(ctx, t)
}

// Turns gives a conversation, the open turns last.
func (k *Keeper) Turns(ctx context.Context, key string) ([]*state.ConversationTurn, error) {
	turns, err := k.turns(ctx, key)
	if err == nil && len(turns) == 0 {
		err = errs.New(errs.InvalidArgument, "there is no conversation %q in this project", key).WithHint("berth conversation list shows those that there are")
	}
	return turns, err
}

// maxItem bounds one item of a stored turn.
const maxItem = 256 << 20

// Items gives the items of a saved turn. What cannot be read is an error, never left out.
func Items(t *state.ConversationTurn) ([]model.Item, error) {
	var items []model.Item
	sc := bufio.NewScanner(bytes.NewReader(t.Items))
	sc.Buffer(nil, maxItem)
	for n := 1; sc.Scan(); n++ {
		it, err := model.ParseItem(bytes.Clone(sc.Bytes()))
		if err != nil {
			return nil, errs.New(errs.InvalidArgument, "item %d of turn %d of conversation %q cannot be read: %s", n, t.Seq, t.Conversation, err).
				WithHint("berth conversation pop removes the last turn, berth conversation clear all of it; the log of run %s has what was said", t.Run)
		}
		items = append(items, it)
	}
	return items, sc.Err()
}

// said is what a later run is told: without what models only thought, and without the ids by which one provider knows its
// items, so that another model can go on.
func said(items []model.Item) []model.Item {
	out := make([]model.Item, 0, len(items))
	for _, it := range items {
		if it.Type != model.ItemReasoning {
			out = append(out, it.WithoutID())
		}
	}
	return out
}

// newest is the end of a conversation, of at most so many items.
func newest(items []model.Item, limit int) []model.Item {
	if len(items) <= limit {
		return items
	}
	items = items[len(items)-limit:]
	for _, begins := range []func(model.Item) bool{
		func(it model.Item) bool { return it.Role() == "user" },
		func(it model.Item) bool { return it.Type == model.ItemMessage },
	} {
		if i := slices.IndexFunc(items, begins); i >= 0 {
			return items[i:]
		}
	}
	return nil
}
