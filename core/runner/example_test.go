// SPDX-License-Identifier: Apache-2.0

package runner_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/berth-dev/berth/core/model"
	"github.com/berth-dev/berth/core/runlog"
	"github.com/berth-dev/berth/core/runner"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/tool"
)

// A run with one tool. The model is a script here; core/model/openai has real ones.
func Example() {
	base, err := os.MkdirTemp("", "runs")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(base)

	id := runlog.NewID(time.Now())
	log, err := runlog.Create(filepath.Join(base, id))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer log.Close()

	clock := &fakeTool{name: "clock", f: func(context.Context, tool.Call) (tool.Result, error) {
		return tool.Result{Text: "it is noon"}, nil
	}}
	res, err := runner.Run(context.Background(), runner.Config{
		RunID: id,
		Run:   &spec.Run{Agent: &spec.Agent{Label: "helper"}, Input: "what time is it?"},
		Log:   log,
		Member: runner.Member{
			Model: &fakeModel{answer: script(
				[]model.Item{model.CallItem(model.ToolCall{CallID: "1", Kind: model.ToolFunction, Name: "clock", Arguments: "{}"})},
				[]model.Item{model.Assistant("Noon.")},
			)},
			ModelName: "script",
			Tools:     func(runner.Session) ([]tool.Tool, error) { return []tool.Tool{clock}, nil },
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(res.Status, res.Turns, res.Output)
	// Output: completed 2 Noon.
}
