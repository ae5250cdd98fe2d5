// SPDX-License-Identifier: Apache-2.0

package state

import (
	"context"
	"errors"
	"time"
)

// ConversationTurn is what one run adds to a conversation. It is open from before the run starts until it is saved.
type ConversationTurn struct {
	Project      string // directory; empty = none
	Conversation string // its key
	Run          string
	Seq          int64 // in the conversation, from 1; 0 = open
	Follows      int64 // the last turn that the run knows of; 0 = none
	Skip         int   // how many items the run's transcript began with that were there before
	// Whole says that the items stand for everything before them too.
	Whole   bool
	Items   []byte    // one a line; nil = open
	Created time.Time // by the store
	Saved   time.Time // by the store; zero = open
}

// Conversation is what a list tells of one.
type Conversation struct {
	Project string
	Key     string
	Turns   int // that are saved
	Open    int // that are not
	Created time.Time
	Updated time.Time
}

// Conversations is the table of conversations.
type Conversations interface {
	// OpenTurn says that a run will add a turn. One that is there already is left as it is.
	OpenTurn(ctx context.Context, t *ConversationTurn) error
	// SaveTurn puts a turn at the end of its conversation, once: false = it was saved before. It writes Seq into t.
	SaveTurn(ctx context.Context, t *ConversationTurn) (bool, error)
	// Turns reads a conversation: the saved turns in order, then the open ones in the order of their runs.
	Turns(ctx context.Context, project, key string) ([]*ConversationTurn, error)
	// ListConversations reads what there is in a project, that which was used last first.
	ListConversations(ctx context.Context, project string) ([]*Conversation, error)
	// PopTurn removes the last saved turn and gives it; [ErrUnknown] when there is none.
	PopTurn(ctx context.Context, project, key string) (*ConversationTurn, error)
	// ClearConversation removes a conversation and says how many turns it had, open ones too; [ErrUnknown] when there is none.
	ClearConversation(ctx context.Context, project, key string) (int, error)
}

const turnColumns = "project, conversation, run, seq, follows, skip, whole, items, created, saved"

func (d *db) turns(ctx context.Context, on querier, rest string, args ...any) ([]*ConversationTurn, error) {
	var all []*ConversationTurn
	err := d.query(ctx, on, func(scan func(...any) error) error {
		var t ConversationTurn
		var whole, created, saved int64
		err := scan(&t.Project, &t.Conversation, &t.Run, &t.Seq, &t.Follows, &t.Skip, &whole, &t.Items, &created, &saved)
		t.Whole, t.Created, t.Saved = whole != 0, fromMillis(created), fromMillis(saved)
		all = append(all, &t)
		return err
	}, "SELECT "+turnColumns+" FROM conversation_turns "+rest, args...)
	if err != nil {
		return nil, err
	}
	return all, nil
}

func (d *db) OpenTurn(ctx context.Context, t *ConversationTurn) error {
	_, err := d.exec(ctx, d.sql, `INSERT INTO conversation_turns (`+turnColumns+`) VALUES (?, ?, ?, 0, ?, ?, 0, NULL, {now}, 0)
 ON CONFLICT (project, conversation, run) DO NOTHING`, t.Project, t.Conversation, t.Run, t.Follows, t.Skip)
	return err
}

// turnTries is how often a turn is put at the end when others do the same.
const turnTries = 20

func (d *db) SaveTurn(ctx context.Context, t *ConversationTurn) (saved bool, err error) {
	for range turnTries {
		saved, err = d.saveTurn(ctx, t)
		if !errors.Is(err, ErrExists) { // another turn took the number
			break
		}
	}
	return saved, err
}

func (d *db) saveTurn(ctx context.Context, t *ConversationTurn) (saved bool, err error) {
	whole := 0
	if t.Whole {
		whole = 1
	}
	err = d.tx(ctx, func(on querier) error {
		if _, err := d.exec(ctx, on, `INSERT INTO conversation_turns (`+turnColumns+`) VALUES (?, ?, ?, 0, ?, ?, 0, NULL, {now}, 0)
 ON CONFLICT (project, conversation, run) DO NOTHING`, t.Project, t.Conversation, t.Run, t.Follows, t.Skip); err != nil {
			return err
		}
		n, err := d.exec(ctx, on, `UPDATE conversation_turns SET whole = ?, items = ?, saved = {now},
 seq = (SELECT COALESCE(MAX(seq), 0) + 1 FROM conversation_turns WHERE project = ? AND conversation = ?)
 WHERE project = ? AND conversation = ? AND run = ? AND seq = 0`,
			whole, t.Items, t.Project, t.Conversation, t.Project, t.Conversation, t.Run)
		if err != nil {
			return err
		}
		saved = n > 0
		now, err := d.turns(ctx, on, "WHERE project = ? AND conversation = ? AND run = ?", t.Project, t.Conversation, t.Run)
		if err == nil {
			*t = *now[0]
		}
		return err
	})
	return saved, err
}

func (d *db) Turns(ctx context.Context, project, key string) ([]*ConversationTurn, error) {
	return d.turns(ctx, d.sql, "WHERE project = ? AND conversation = ? ORDER BY CASE WHEN seq = 0 THEN 1 ELSE 0 END, seq, created, run", project, key)
}

func (d *db) ListConversations(ctx context.Context, project string) ([]*Conversation, error) {
	var all []*Conversation
	err := d.query(ctx, d.sql, func(scan func(...any) error) error {
		c := Conversation{Project: project}
		var created, updated, saved int64
		err := scan(&c.Key, &c.Turns, &c.Open, &created, &updated, &saved)
		c.Created, c.Updated = fromMillis(created), fromMillis(max(updated, saved))
		all = append(all, &c)
		return err
	}, `SELECT conversation, SUM(CASE WHEN seq > 0 THEN 1 ELSE 0 END), SUM(CASE WHEN seq = 0 THEN 1 ELSE 0 END), MIN(created), MAX(created), MAX(saved)
 FROM conversation_turns WHERE project = ? GROUP BY conversation ORDER BY 6 DESC, 5 DESC, 1`, project)
	if err != nil {
		return nil, err
	}
	return all, nil
}

func (d *db) PopTurn(ctx context.Context, project, key string) (*ConversationTurn, error) {
	var last *ConversationTurn
	err := d.tx(ctx, func(on querier) error {
		all, err := d.turns(ctx, on, "WHERE project = ? AND conversation = ? AND seq > 0 ORDER BY seq DESC LIMIT 1", project, key)
		if err != nil {
			return err
		}
		if len(all) == 0 {
			return ErrUnknown
		}
		last = all[0]
		n, err := d.exec(ctx, on, "DELETE FROM conversation_turns WHERE project = ? AND conversation = ? AND run = ?", project, key, last.Run)
		if err == nil && n == 0 {
			return ErrChanged
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return last, nil
}

func (d *db) ClearConversation(ctx context.Context, project, key string) (int, error) {
	n, err := d.exec(ctx, d.sql, "DELETE FROM conversation_turns WHERE project = ? AND conversation = ?", project, key)
	if err == nil && n == 0 {
		return 0, ErrUnknown
	}
	return int(n), err
}
