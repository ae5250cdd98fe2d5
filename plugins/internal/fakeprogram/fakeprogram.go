// SPDX-License-Identifier: Apache-2.0

// Package fakeprogram makes a program of a fake vendor, for benchmarks and tests that use drivers from outside.
package fakeprogram

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// Settings are what a driver block and a sandbox block say to use the fake.
type Settings struct {
	Process map[string]any `json:"process"`
	Sandbox map[string]any `json:"sandbox"`
}

// Main starts a vendor, prints its settings as one line of JSON and serves until standard input ends. It does not return.
func Main(start func() (Settings, func() error, error)) {
	err := serve(start)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func serve(start func() (Settings, func() error, error)) error {
	s, stop, err := start()
	if err != nil {
		return err
	}
	if err = json.NewEncoder(os.Stdout).Encode(s); err == nil {
		_, err = io.Copy(io.Discard, os.Stdin)
	}
	return errors.Join(err, stop())
}
