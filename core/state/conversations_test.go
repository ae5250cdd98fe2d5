// SPDX-License-Identifier: Apache-2.0

package state

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestConversations(t *testing.T) {
	eachStore(t, func(t *testing.T, cfg Config) {
		d, ctx := openStore(t, cfg), t.Context()
		turn := func(run, items string) *ConversationTurn {
			return &ConversationTurn{Project: "/p", Conversation: "ada@x / 1", Run: run, Follows: 7, Skip: 2, Items: []byte(items)}
		}
		for _, run := range []string{"01B", "01A", "01C"} {
			if err := d.OpenTurn(ctx, turn(run, "")); err != nil {
				t.Fatal(err)
			}
		}
		save := func(c *ConversationTurn, want bool) *ConversationTurn {
			t.Helper()
			if saved, err := d.SaveTurn(ctx, c); err != nil || saved != want {
				t.Fatalf("saved %v, %v", saved, err)
			}
			return c
		}
		second := turn("01B", "b\n")
		second.Whole = true
		save(turn("01A", "a\n"), true)
		save(second, true)
		// A turn that is opened or saved again stays as it is.
		if err := d.OpenTurn(ctx, turn("01A", "")); err != nil {
			t.Fatal(err)
		}
		if again := save(turn("01A", "other\n"), false); again.Seq != 1 || string(again.Items) != "a\n" {
			t.Errorf("%+v", again)
		}
		elsewhere := turn("01A", "x\n")
		elsewhere.Project = "/q"
		save(elsewhere, true) // nobody opened it, and it is kept all the same

		got, err := d.Turns(ctx, "/p", "ada@x / 1")
		if err != nil {
			t.Fatal(err)
		}
		want := []*ConversationTurn{turn("01A", "a\n"), turn("01B", "b\n"), turn("01C", "")}
		want[0].Seq, want[1].Seq, want[1].Whole, want[2].Items = 1, 2, true, nil
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(ConversationTurn{}, "Created", "Saved")); diff != "" {
			t.Error(diff)
		}
		if age := time.Since(got[0].Saved); age < -time.Minute || age > time.Minute || !got[2].Saved.IsZero() {
			t.Errorf("saved %v and %v", got[0].Saved, got[2].Saved)
		}
		list, err := d.ListConversations(ctx, "/p")
		if err != nil || len(list) != 1 || list[0].Key != "ada@x / 1" || list[0].Turns != 2 || list[0].Open != 1 || list[0].Updated.Before(list[0].Created) {
			t.Errorf("%+v, %v", list, err)
		}

		popped, err := d.PopTurn(ctx, "/p", "ada@x / 1")
		if err != nil || popped.Run != "01B" || string(popped.Items) != "b\n" {
			t.Errorf("%+v, %v", popped, err)
		}
		if c := save(turn("01C", "c\n"), true); c.Seq != 2 {
			t.Errorf("the turn after a removed one has number %d", c.Seq)
		}
		if n, err := d.ClearConversation(ctx, "/p", "ada@x / 1"); n != 2 || err != nil {
			t.Errorf("cleared %d, %v", n, err)
		}
		if _, err := d.ClearConversation(ctx, "/p", "ada@x / 1"); !errors.Is(err, ErrUnknown) {
			t.Error(err)
		}
		if _, err := d.PopTurn(ctx, "/p", "ada@x / 1"); !errors.Is(err, ErrUnknown) {
			t.Error(err)
		}
		if left, err := d.Turns(ctx, "/q", "ada@x / 1"); err != nil || len(left) != 1 {
			t.Errorf("of the other project: %v, %v", left, err)
		}
	})
}

// Turns that end at the same time all get a place, each one once.
func TestTurnsAtOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, cfg Config) {
		d, ctx := openStore(t, cfg), t.Context()
		const runs = 8
		var wg sync.WaitGroup
		for i := range 2 * runs { // each twice
			wg.Go(func() {
				turn := &ConversationTurn{Conversation: "c", Run: fmt.Sprint(i % runs), Items: []byte("x\n")}
				if _, err := d.SaveTurn(ctx, turn); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		all, err := d.Turns(ctx, "", "c")
		if err != nil {
			t.Fatal(err)
		}
		var seqs []int64
		for _, turn := range all {
			seqs = append(seqs, turn.Seq)
		}
		if want := []int64{1, 2, 3, 4, 5, 6, 7, 8}; !slices.Equal(seqs, want) {
			t.Errorf("%v", seqs)
		}
	})
}
