// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package serve

import "os"

// divertStdout only redirects what Go prints.
func divertStdout() (*os.File, error) {
	stdout := os.Stdout
	os.Stdout = os.Stderr
	return stdout, nil
}
