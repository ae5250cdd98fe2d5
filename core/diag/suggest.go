// SPDX-License-Identifier: Apache-2.0

package diag

import (
	"strings"
	"unicode/utf8"
)

// Suggest finds the name that was probably meant; "" when none is near. A name is near when at most a third of the
// given one has to be edited, case apart, or when both start with the same four or more characters.
func Suggest(given string, names []string) string {
	g := strings.ToLower(given)
	limit := max(1, utf8.RuneCountInString(g)/3)
	best, bestDistance := "", limit+1
	for _, n := range names {
		if n == given {
			continue
		}
		d := distance(g, strings.ToLower(n), limit)
		if d < bestDistance || d == bestDistance && d <= limit && n < best {
			best, bestDistance = n, d
		}
	}
	if best != "" {
		return best
	}
	const least = 4
	longest := least - 1
	for _, n := range names {
		if n == given {
			continue
		}
		c := commonPrefix(g, strings.ToLower(n))
		if c > longest || c == longest && best != "" && n < best {
			best, longest = n, c
		}
	}
	return best
}

func commonPrefix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// distance is the number of insertions, deletions, replacements and swaps of neighbours that turn a into b; any
// number above limit when it is more than that.
func distance(a, b string, limit int) int {
	x, y := []rune(a), []rune(b)
	if len(x)-len(y) > limit || len(y)-len(x) > limit {
		return limit + 1
	}
	var before []int
	prev := make([]int, len(y)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(x); i++ {
		cur := make([]int, len(y)+1)
		cur[0] = i
		least := i
		for j := 1; j <= len(y); j++ {
			cost := 1
			if x[i-1] == y[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				cur[j] = min(cur[j], before[j-2]+1)
			}
			least = min(least, cur[j])
		}
		if least > limit {
			return limit + 1
		}
		before, prev = prev, cur
	}
	return prev[len(y)]
}
