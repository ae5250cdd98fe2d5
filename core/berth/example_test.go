// SPDX-License-Identifier: Apache-2.0

package berth_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/berth-dev/berth/core/berth"
	"github.com/berth-dev/berth/core/event"
	"github.com/berth-dev/berth/core/model/replay"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/state"
	"github.com/berth-dev/berth/core/tool"
)

// An agent in Go with a function as a tool, and its events as they come. The model plays a transcript here;
// core/model/openai has real ones. This agent works without a sandbox, so the harness needs a directory and a store only.
func Example() {
	dir, err := os.MkdirTemp("", "berth")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	store, err := state.Open(context.Background(), state.Config{Path: filepath.Join(dir, "state.db")})
	if err != nil {
		panic(err)
	}
	defer store.Close()
	transcript, err := replay.Parse(strings.NewReader(`{"berth_transcript": 1}
{"calls": [{"tool": "clock"}]}
{"expect": ["noon"], "say": "It is noon."}`))
	if err != nil {
		panic(err)
	}
	clock := tool.Func("clock", "Tells the time.", nil, func(context.Context, string) (string, error) { return "noon", nil })
	h := berth.New(berth.Config{RunsDir: dir, Store: func(context.Context) (state.Store, error) { return store, nil }})
	res, err := h.Run(context.Background(), berth.RunOptions{
		Project: &spec.Project{},
		Run:     &spec.Run{Agent: &spec.Agent{Label: "helper", Instructions: spec.Text{Literal: "Be exact."}}, Input: "What time is it?"},
		Model:   replay.New(transcript), Name: "replay", Tools: []tool.Tool{clock},
		Emit: func(ev event.Event) {
			if d, ok := ev.Data.(event.ToolFinished); ok {
				fmt.Println("called", d.Tool)
			}
		},
	})
	if err != nil {
		panic(err)
	}
	fmt.Println(res.Output)
	// Output:
	// called clock
	// It is noon.
}
