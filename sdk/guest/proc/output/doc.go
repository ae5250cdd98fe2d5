// SPDX-License-Identifier: Apache-2.0

// Package output holds what a process has written, for readers that come, go and come back.
package output
