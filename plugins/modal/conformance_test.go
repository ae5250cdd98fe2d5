// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"crypto/tls"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-dev/berth/sdk/conformance"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/schema"
)

// What this driver promises, seen from outside, over the fake vendor.
func TestConformance(t *testing.T) {
	v := newVendor(t)
	var storage []conformance.Storage
	for kind, source := range map[string]string{
		"s3": `{"bucket":"of-s3","region":"eu-west-1","prefix":"p"}`, "r2": `{"bucket":"of-r2","account_id":"0123abcd","prefix":"p"}`, "gcs": `{"bucket":"of-gcs","prefix":"p/"}`,
	} {
		dir, err := v.AddBucket("of-" + kind)
		if err == nil {
			err = os.Mkdir(filepath.Join(dir, "p"), 0o755)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "p/object"), []byte("of "+kind), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		id := "access_key_id"
		if kind == "gcs" {
			id = "access_id"
		}
		storage = append(storage, conformance.Storage{File: "object", Content: "of " + kind, Spec: driver.MountSpec{
			Kind: kind, Strategy: "native", Source: schema.Value{JSON: []byte(source)},
			Credentials: map[string]string{id: "canary-id-of-" + kind, "secret_access_key": "canary-of-" + kind},
		}})
	}
	conformance.Run(t, conformance.Options{
		Binary: "/proc/self/exe", Env: []string{asDriver + "=1"}, Parallel: 4, Repeat: 3, Lives: 5, Faults: true,
		ProcessConfig: values(t, processConfig(v, nil)), SandboxConfig: values(t, map[string]any{"image": imageTag}),
		Secrets: []string{tokenID, tokenSecret}, Storage: storage,
		// As version 0.1.0 made it. Such a line is never changed, only followed by others.
		States: []conformance.SavedState{{SandboxID: "01JE5Z8W9T6N3V2Q1R0P4M7K5H", State: driver.State{Version: 1, Data: []byte(`{"sandbox":"sb-0","app":"berth","root":"/workspace","labels":{"a":"b"},"ports":[8000],"wish":{},"created":"2026-12-01T12:00:00Z","server":"` + v.URL() + `"}`)}}},
		// Nobody has signed the fake's certificate.
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
	})
	if left := v.Running(); len(left) > 0 {
		t.Errorf("sandboxes are left: %v", left)
	}
}
