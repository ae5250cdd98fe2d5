// SPDX-License-Identifier: Apache-2.0

package stream_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/runner/stream"
)

// The consumer looks at one batch while the next one is queued: they must not share memory.
func TestEventsComeWholeWhileOthersAreSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []event.Event
		step := make(chan struct{})
		s, err := stream.New(stream.Config{RunID: "r", Now: time.Now, Emit: func(ev event.Event) {
			<-step
			got = append(got, ev)
		}})
		if err != nil {
			t.Fatal(err)
		}
		const rounds, each = 4, 3
		for range rounds {
			s.Send(event.TurnStarted{})
			synctest.Wait() // the consumer holds it
			for range each {
				s.Send(event.TurnStarted{})
			}
			for range each + 1 {
				step <- struct{}{}
				s.Send(event.Warning{Message: "more"})
				synctest.Wait()
			}
			for range each + 1 {
				step <- struct{}{}
			}
			synctest.Wait() // it has seen an empty queue
		}
		s.End()
		if want := rounds * (each + 1) * 2; len(got) != want {
			t.Errorf("got %d events, want %d", len(got), want)
		}
		for i, ev := range got {
			if ev.Seq != uint64(i+1) || ev.Data == nil {
				t.Fatalf("event %d is %+v", i+1, ev)
			}
		}
	})
}

func TestDeltasAreJoinedAndNotLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []event.Event
		gate := make(chan struct{})
		s, err := stream.New(stream.Config{RunID: "r", Now: time.Now, Emit: func(ev event.Event) {
			<-gate
			got = append(got, ev)
		}})
		if err != nil {
			t.Fatal(err)
		}
		s.At("main", 3)
		s.Send(event.TurnStarted{})
		synctest.Wait() // the consumer has the first event, and is slow
		for _, text := range []string{"a", "b", "c"} {
			s.Send(event.ModelDelta{Text: text})
		}
		s.Send(event.ToolOutput{CallID: "1", Text: "x"})
		s.Send(event.ToolOutput{CallID: "1", Text: "y"})
		s.Send(event.ToolOutput{CallID: "2", Text: "z"})
		close(gate)
		s.End()
		var texts []string
		for _, ev := range got {
			raw, err := json.Marshal(ev.Data)
			if err != nil {
				t.Fatal(err)
			}
			texts = append(texts, fmt.Sprint(ev.Seq, " ", ev.Agent, " ", ev.Turn, " ", string(raw)))
		}
		want := []string{
			`1 main 3 {}`, `4 main 3 {"text":"abc"}`, `6 main 3 {"call_id":"1","text":"xy"}`, `7 main 3 {"call_id":"2","text":"z"}`,
		}
		if strings.Join(texts, "\n") != strings.Join(want, "\n") {
			t.Errorf("the consumer got\n%s", strings.Join(texts, "\n"))
		}
		entries, err := s.Take(nil)
		if err != nil || len(entries) != 1 || !strings.Contains(string(entries[0].Data), `"type":"turn.started"`) {
			t.Errorf("for the log: %v, %v", entries, err)
		}
		if again, _ := s.Take(nil); len(again) != 0 {
			t.Errorf("taken twice: %v", again)
		}
		s.Send(event.TurnStarted{})
		if late, _ := s.Take(nil); len(late) != 0 {
			t.Errorf("an ended stream took %v", late)
		}
	})
}

func TestNumbersGoOnAfterAResume(t *testing.T) {
	s, err := stream.New(stream.Config{RunID: "r", Now: time.Now, After: []byte(`{"seq":41,"type":"model.done"}`)})
	if err != nil {
		t.Fatal(err)
	}
	s.Send(event.TurnStarted{})
	entries, err := s.Take(nil)
	var ev struct{ Seq uint64 }
	if err != nil || json.Unmarshal(entries[0].Data, &ev) != nil || ev.Seq != 1_000_042 {
		t.Errorf("the next event has number %d: %v", ev.Seq, err)
	}
	if _, err := stream.New(stream.Config{After: []byte(`x`)}); err == nil {
		t.Error("a broken entry was taken")
	}
}

func TestManySenders(t *testing.T) {
	var mu sync.Mutex
	last, n := uint64(0), 0
	s, err := stream.New(stream.Config{RunID: "r", Now: time.Now, Emit: func(ev event.Event) {
		mu.Lock()
		defer mu.Unlock()
		if ev.Seq <= last {
			t.Errorf("event %d follows %d", ev.Seq, last)
		}
		last = ev.Seq
		n++
	}})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				s.Send(event.Warning{Message: "x"})
			}
		})
	}
	wg.Wait()
	s.End()
	mu.Lock()
	defer mu.Unlock()
	if n != 1600 || last != 1600 {
		t.Errorf("%d events, the last is %d", n, last)
	}
}
