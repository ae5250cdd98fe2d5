// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"testing"

	"github.com/berth-dev/berth/core/model"
)

func TestWindow(t *testing.T) {
	for name, want := range map[string]int64{
		"gpt-5.6": 1_047_576, "openai/GPT-5.4-pro": 1_047_576, "gpt-5.4-mini": 400_000, "gpt-5": 400_000, "gpt-5.2-chat-latest": 128_000,
		"gpt-4o-mini-2024-07-18": 128_000, "o3-pro": 200_000, "gpt-4.1-nano": 1_047_576, "llama-3": 0, "": 0,
	} {
		if got := model.Window(name); got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
}
