// SPDX-License-Identifier: Apache-2.0

// Package calling is all that happens about one tool call, as far as it needs no run: which tool is meant, what is wrong
// with the call, the call itself within its time limit, and the item that tells the model how it ended. It keeps nothing.
package calling
