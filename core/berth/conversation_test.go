// SPDX-License-Identifier: Apache-2.0

//go:build linux

package berth_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/core/berth"
	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/plugin"
	"github.com/berth-dev/berth/core/run"
	"github.com/berth-dev/berth/core/runner"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/state"
)

// spy answers with what is given to it in turn, and keeps what it was asked.
type spy struct {
	mu      sync.Mutex
	answers [][]model.Item // guarded by mu
	asked   [][]string     // guarded by mu; the items of each request, in short
	during  func()         // called before an answer
}

func (*spy) Supports() model.Support { return model.Support{} }

func (s *spy) Stream(_ context.Context, req *model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		if s.during != nil {
			s.during()
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		var items []string
		for _, it := range req.Items {
			items = append(items, strings.TrimPrefix(string(it.Type), "function_")+":"+it.Role()+it.CallID()+":"+it.Text())
		}
		s.asked = append(s.asked, items)
		if len(s.answers) == 0 {
			yield(nil, &model.Error{Kind: model.ErrProtocol, Message: "the test has no answer"})
			return
		}
		resp := &model.Response{ID: "r", Items: s.answers[0]}
		s.answers = s.answers[1:]
		yield(model.Done{Response: resp}, nil)
	}
}

func raw(t *testing.T, text string) model.Item {
	t.Helper()
	it, err := model.ParseItem([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return it
}

// talk is a project of one agent without a sandbox, over stores of its own.
type talk struct {
	*berth.Harness
	t     *testing.T
	store *breaking
	spy   spy
}

// breaking is a store that can fail to save a turn.
type breaking struct {
	state.Store
	fail bool
}

func (b *breaking) SaveTurn(ctx context.Context, t *state.ConversationTurn) (bool, error) {
	if b.fail {
		return false, errors.New("the store is away")
	}
	return b.Store.SaveTurn(ctx, t)
}

func newTalk(t *testing.T) *talk {
	t.Helper()
	dir := t.TempDir()
	m := plugin.NewManager(plugin.Config{})
	t.Cleanup(func() { _ = m.Close(context.Background()) })
	s, err := store(dir)(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	k := &talk{t: t, store: &breaking{Store: s}}
	k.Harness = berth.New(berth.Config{
		Plugins: m, CacheDir: dir + "/cache", RunsDir: dir + "/runs", KeyFile: dir + "/key",
		Store: func(context.Context) (state.Store, error) { return k.store, nil },
	})
	return k
}

func (k *talk) options(input string, edit func(*spec.Run)) (berth.RunOptions, *recorded) {
	r := &spec.Run{Label: "r", Agent: &spec.Agent{Label: "a", Instructions: spec.Text{Literal: "Talk."}}, Input: input}
	r.SessionID = spec.Text{Literal: "ada@example.com / 1"}
	if edit != nil {
		edit(r)
	}
	rec := &recorded{}
	return berth.RunOptions{Project: &spec.Project{Dir: "/p"}, Run: r, Model: &k.spy, Name: "m", Emit: rec.emit}, rec
}

func (k *talk) say(input string, edit func(*spec.Run), answers ...model.Item) (*runner.Result, *recorded) {
	k.t.Helper()
	k.spy.answers = [][]model.Item{answers}
	o, rec := k.options(input, edit)
	res, err := k.Run(k.t.Context(), o)
	if err != nil || res.Status != run.Completed {
		k.t.Fatalf("%+v, %v", res, err)
	}
	return res, rec
}

// heard is what the last request held.
func (k *talk) heard() []string { return k.spy.asked[len(k.spy.asked)-1] }

func TestConversation(t *testing.T) {
	k := newTalk(t)
	k.say("one", nil, raw(t, `{"type":"reasoning","id":"rs_1","summary":[]}`), model.Assistant("1"))
	k.say("two", nil, model.Assistant("2"))
	want := []string{"message:user:one", "message:assistant:1", "message:user:two"}
	if diff := cmp.Diff(want, k.heard()); diff != "" {
		t.Error(diff)
	}
	// Another key, another project, and no key at all know nothing of it.
	k.say("x", func(r *spec.Run) { r.SessionID.Literal = "other" }, model.Assistant("y"))
	if len(k.heard()) != 1 {
		t.Errorf("%q", k.heard())
	}
	k.say("x", func(r *spec.Run) { r.SessionID.Literal = "" }, model.Assistant("y"))
	if len(k.heard()) != 1 {
		t.Errorf("%q", k.heard())
	}
	// The key of the options comes before that of the block, a limit cuts where a user speaks.
	o, _ := k.options("three", func(r *spec.Run) { r.SessionID.Literal, r.SessionLimit = "other", 3 })
	o.Conversation, k.spy.answers = "ada@example.com / 1", [][]model.Item{{model.Assistant("3")}}
	if _, err := k.Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"message:user:two", "message:assistant:2", "message:user:three"}, k.heard()); diff != "" {
		t.Error(diff)
	}
	keeper, err := k.Conversations(t.Context(), o.Project)
	if err != nil {
		t.Fatal(err)
	}
	turns, err := keeper.Turns(t.Context(), "ada@example.com / 1")
	if err != nil || len(turns) != 3 || turns[2].Follows != 2 {
		t.Errorf("%+v, %v", turns, err)
	}
	// A transcript that was shortened stands for what came before; what was said before stays where it was.
	k.say("four", nil, raw(t, `{"type":"compaction","encrypted_content":"x"}`), model.Assistant("4"))
	k.say("five", nil, model.Assistant("5"))
	if diff := cmp.Diff([]string{"compaction::", "message:assistant:4", "message:user:five"}, k.heard()); diff != "" {
		t.Error(diff)
	}
	if turns, err := keeper.Turns(t.Context(), "ada@example.com / 1"); err != nil || len(turns) != 5 {
		t.Errorf("%d turns, %v", len(turns), err)
	}
	if _, err := k.store.PopTurn(t.Context(), "/p", "ada@example.com / 1"); err != nil {
		t.Fatal(err)
	}
	k.say("six", nil, model.Assistant("6"))
	if slices.Contains(k.heard(), "message:user:five") {
		t.Errorf("what was removed is there: %q", k.heard())
	}
}

// A run that completed while the store was away, or whose process ended there, is in the conversation all the same, and
// once.
func TestConversationSavedLate(t *testing.T) {
	k := newTalk(t)
	k.store.fail, k.spy.answers = true, [][]model.Item{{model.Assistant("1")}}
	o, _ := k.options("one", nil)
	res, err := k.Run(t.Context(), o)
	if err == nil || !strings.Contains(err.Error(), "the next run of the conversation puts it there") || res == nil || res.Output != "1" {
		t.Fatalf("%+v, %v", res, err)
	}
	k.store.fail = false
	for _, input := range []string{"two", "three"} {
		k.say(input, nil, model.Assistant("ok"))
	}
	if diff := cmp.Diff([]string{
		"message:user:one", "message:assistant:1", "message:user:two", "message:assistant:ok", "message:user:three",
	}, k.heard()); diff != "" {
		t.Error(diff)
	}
}

// A run that fails is no part of the conversation, which is said; once it is resumed to its end, it is.
func TestConversationOfAFailedRun(t *testing.T) {
	k := newTalk(t)
	o, _ := k.options("one", nil)
	res, err := k.Run(t.Context(), o)
	if err == nil || res == nil || res.Status != run.Failed {
		t.Fatalf("%+v, %v", res, err)
	}
	_, rec := k.say("two", nil, model.Assistant("2"))
	if w, n := find[event.Warning](rec); n != 1 || !strings.Contains(w.Message, res.RunID+" is not complete") || w.Hint != "berth resume "+res.RunID+" completes it" {
		t.Errorf("%+v", w)
	}
	if diff := cmp.Diff([]string{"message:user:two"}, k.heard()); diff != "" {
		t.Error(diff)
	}
	k.spy.answers = [][]model.Item{{model.Assistant("1")}}
	again, _ := k.options("one", nil)
	again.ID = res.RunID
	res, err = k.Resume(t.Context(), again)
	if err != nil || res.Status != run.Completed || !strings.Contains(res.Hint, "1 other turns were added") {
		t.Fatalf("%+v, %v", res, err)
	}
	_, rec = k.say("three", nil, model.Assistant("3"))
	if _, n := find[event.Warning](rec); n != 0 {
		t.Error("there is a warning")
	}
	want := []string{"message:user:two", "message:assistant:2", "message:user:one", "message:assistant:1", "message:user:three"}
	if diff := cmp.Diff(want, k.heard()); diff != "" {
		t.Error(diff)
	}
}

// What cannot be read is an error that says where, and nothing of it is left out.
func TestConversationDamaged(t *testing.T) {
	k := newTalk(t)
	k.say("one", nil, model.Assistant("1"))
	bad := &state.ConversationTurn{Project: "/p", Conversation: "ada@example.com / 1", Run: "01X", Items: []byte("{\"type\":\"message\"}\n{torn\n")}
	if _, err := k.store.SaveTurn(t.Context(), bad); err != nil {
		t.Fatal(err)
	}
	o, _ := k.options("two", nil)
	asked := len(k.spy.asked)
	if _, err := k.Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), `item 2 of turn 2 of conversation "ada@example.com / 1" cannot be read`) {
		t.Errorf("%v", err)
	}
	if len(k.spy.asked) != asked {
		t.Error("the model was asked")
	}
	for _, edit := range []func(*spec.Run){
		func(r *spec.Run) { r.SessionID.Literal, r.SessionLimit = "", 3 },
		func(r *spec.Run) { r.SessionID.Literal = "a\x00b" },
		func(r *spec.Run) { r.SessionID.Literal = strings.Repeat("x", 1000) },
	} {
		o, _ := k.options("x", edit)
		if _, err := k.Run(t.Context(), o); err == nil {
			t.Errorf("a session %+v was taken", o.Run.SessionID)
		}
	}
}
