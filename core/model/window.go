// SPDX-License-Identifier: Apache-2.0

package model

import "strings"

// windows are the context windows of models, by the beginning of their normalised names; the longest that fits counts.
var windows = map[string]int64{
	"gpt54": 1_047_576, "gpt55": 1_047_576, "gpt56": 1_047_576, "gpt41": 1_047_576,
	"gpt5": 400_000, "gpt51": 400_000, "gpt52": 400_000, "gpt53": 400_000, "gpt54mini": 400_000, "gpt54nano": 400_000,
	"codexminilatest": 200_000, "o1": 200_000, "o3": 200_000, "o4mini": 200_000,
	"gpt4o": 128_000, "gpt5chat": 128_000, "gpt51chat": 128_000, "gpt52chat": 128_000, "gpt53chat": 128_000,
}

// Window is the context window of a model in tokens; 0 = it is not known. A prefix of a provider, case, dots, dashes and
// what follows a name (a date) do not matter.
func Window(name string) int64 {
	if i := strings.LastIndexByte(name, '/'); i >= 0 {
		name = name[i+1:]
	}
	name = strings.NewReplacer(".", "", "-", "").Replace(strings.ToLower(name))
	best := ""
	for begin := range windows {
		if strings.HasPrefix(name, begin) && len(begin) > len(best) {
			best = begin
		}
	}
	return windows[best]
}
