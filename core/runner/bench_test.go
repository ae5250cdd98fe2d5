// SPDX-License-Identifier: Apache-2.0

package runner_test

import (
	"context"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/run"
	"github.com/berth-dev/berth/core/runner"
)

// turnsModel calls a tool for a number of turns and then ends. It costs next to nothing.
func turnsModel(turns int) *trivialModel { return &trivialModel{turns: turns} }

type trivialModel struct {
	fakeModel
	turns, at int
}

func (m *trivialModel) Stream(context.Context, *model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		m.at++
		resp := &model.Response{ID: "resp", Usage: model.Usage{Requests: 1, InputTokens: 1000, OutputTokens: 50, TotalTokens: 1050}}
		if m.at > m.turns {
			resp.Items = say("fine")
		} else {
			resp.Items = calls(call(fmt.Sprintf("call_%08d", m.at), "exec_command", `{"cmd":"go test ./..."}`))
		}
		if yield(model.TextDelta{Text: "a"}, nil) {
			yield(model.Done{Response: resp}, nil)
		}
	}
}

// BenchmarkTurn is what the harness costs beyond model and tool, for runs of several lengths. It must be flat.
func BenchmarkTurn(b *testing.B) {
	for _, turns := range []int{100, 1_000, 10_000} {
		b.Run(fmt.Sprint(turns), func(b *testing.B) {
			best := time.Duration(1 << 62)
			var logBytes, itemBytes int64
			for b.Loop() {
				b.StopTimer()
				cfg, dir := newConfig(b, turnsModel(turns), &fakeTool{name: "exec_command"})
				cfg.Emit = func(event.Event) {}
				begin := time.Now()
				b.StartTimer()
				res, err := runner.Run(b.Context(), cfg)
				best = min(best, time.Since(begin))
				if err != nil || res.Status != run.Completed || res.Turns != turns+1 {
					b.Fatalf("result %+v, error %v", res, err)
				}
				logBytes, itemBytes = fileSize(b, dir, "log.jsonl"), fileSize(b, dir, "items.jsonl")
			}
			n := float64(turns)
			b.ReportMetric(float64(best.Microseconds())/n, "best-µs/turn")
			b.ReportMetric(float64(logBytes)/n, "log-B/turn")
			b.ReportMetric(float64(itemBytes)/n, "item-B/turn")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkResume is what a resume of a long run costs before its first effect.
func BenchmarkResume(b *testing.B) {
	for _, turns := range []int{100, 1_000, 10_000} {
		b.Run(fmt.Sprint(turns), func(b *testing.B) {
			limit := turns
			cfg, _ := newConfig(b, turnsModel(turns+1), &fakeTool{name: "exec_command"})
			cfg.Run.MaxTurns = &limit
			if res, err := runner.Run(b.Context(), cfg); err != nil || res.Status != run.MaxTurns {
				b.Fatalf("result %+v, error %v", res, err)
			}
			b.ResetTimer()
			for b.Loop() { // the limit ends it again at once
				if res, err := runner.Resume(b.Context(), cfg); err != nil || res.Status != run.MaxTurns {
					b.Fatalf("result %+v, error %v", res, err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(turns)/float64(b.N), "µs/turn")
		})
	}
}

func fileSize(tb testing.TB, dir, name string) int64 {
	tb.Helper()
	info, err := os.Stat(filepath.Join(dir, name))
	if err != nil {
		tb.Fatal(err)
	}
	return info.Size()
}

// The cost of a turn does not grow with the run, and a turn writes no more than its own items and a few records.
func TestRunIsLinear(t *testing.T) {
	if testing.Short() {
		t.Skip("it measures a run of 2,000 turns")
	}
	// What is allocated is what is worked on, and no other program's business.
	measure := func(turns int) (allocated uint64, logBytes int64) {
		cfg, dir := newConfig(t, turnsModel(turns), &fakeTool{name: "exec_command"})
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if res, err := runner.Run(t.Context(), cfg); err != nil || res.Turns != turns+1 {
			t.Fatalf("result %+v, error %v", res, err)
		}
		runtime.ReadMemStats(&after)
		return (after.TotalAlloc - before.TotalAlloc) / uint64(turns), fileSize(t, dir, "log.jsonl") / int64(turns)
	}
	short, shortBytes := measure(100)
	long, longBytes := measure(2_000)
	t.Logf("a turn costs %d bytes of memory in 100 turns, %d in 2,000; %d and %d bytes of log", short, long, shortBytes, longBytes)
	if long > short+short/2 {
		t.Errorf("a turn allocates %d bytes in a run of 100 turns and %d in one of 2,000", short, long)
	}
	if longBytes > shortBytes+100 {
		t.Errorf("a turn writes %d bytes in a run of 100 turns and %d in one of 2,000", shortBytes, longBytes)
	}
}
