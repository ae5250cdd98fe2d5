// SPDX-License-Identifier: Apache-2.0

package mount_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/berth-dev/berth/core/mount"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/value"
	"github.com/berth-dev/berth/core/value/redact"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// What the vendor mounts is given to it with the sandbox, and no process is wanted for it.
func TestNative(t *testing.T) {
	words := &redact.Set{}
	h := &mount.Host{Redact: words}
	entry := func(change func(*spec.MountEntry)) spec.Entry {
		m := &spec.MountEntry{
			Kind: "s3", ReadOnly: true, Strategy: "native", Fields: map[string]any{"bucket": "inputs"}, Options: map[string]any{"requester_pays": true},
			Credentials: map[string]value.Secret{"access_key_id": value.PlainSecret("AKIDEXAMPLE"), "secret_access_key": value.PlainSecret("bucket-canary")},
			Settings:    map[string]any{"on_failure": "fail", "flush": "turn"},
		}
		change(m)
		return spec.Entry{Kind: spec.EntryMount, Path: "data", Mount: m}
	}
	session := func(change func(*spec.MountEntry)) mount.Session {
		return mount.Session{
			Driver: "acme", Entries: mount.Of([]spec.Entry{entry(change)}), Mounts: []driver.MountSupport{{Kind: "s3", Strategies: []string{"native"}}},
		}
	}
	got, err := h.Native(t.Context(), session(func(m *spec.MountEntry) { m.MountPath = "/srv/in" }))
	if err != nil || len(got) != 1 {
		t.Fatalf("%v, %v", got, err)
	}
	m := got[0]
	if m.Kind != "s3" || m.Path != "/srv/in" || !m.ReadOnly || m.Strategy != "native" || string(m.Source.JSON) != `{"bucket":"inputs"}` ||
		string(m.StrategyConfig.JSON) != `{"requester_pays":true}` || m.Credentials["secret_access_key"] != "bucket-canary" {
		t.Errorf("%+v", m)
	}
	if out := words.String("bucket-canary"); strings.Contains(out, "canary") {
		t.Error("the credential may be shown")
	}

	auto := session(func(m *spec.MountEntry) {
		m.Strategy, m.Options = "auto", map[string]any{"allow": []string{"host_rclone", "native"}}
	})
	if got, err := h.Native(t.Context(), auto); err != nil || len(got) != 1 || got[0].Strategy != "native" || got[0].StrategyConfig.JSON != nil {
		t.Errorf("auto: %v, %v", got, err)
	}
	set, err := (&mount.Host{}).Attach(t.Context(), auto)
	if err != nil {
		t.Fatal(err)
	}
	set.Turn()
	if err := errors.Join(set.Drain(t.Context()), set.Close(t.Context())); err != nil {
		t.Error(err)
	}
	auto.Mounts[0].Strategies = []string{"host_rclone", "native"}
	if got, err := h.Native(t.Context(), auto); err != nil || len(got) != 0 {
		t.Errorf("with a better strategy: %v, %v", got, err)
	}

	for name, change := range map[string]func(*spec.MountEntry){
		"a cache":                 func(m *spec.MountEntry) { m.Settings["cache"] = map[string]any{"mode": "full"} },
		"this machine's keys":     func(m *spec.MountEntry) { m.Settings["ambient"] = true },
		"another kind":            func(m *spec.MountEntry) { m.Kind = "box" },
		"a secret in the open":    func(m *spec.MountEntry) { m.Options["secret_name"] = value.PlainSecret("x") },
		"a skip that nobody does": func(m *spec.MountEntry) { m.Settings["on_failure"] = "skip" },
	} {
		if got, err := h.Native(t.Context(), session(change)); errs.CodeOf(err) != errs.Unsupported && errs.CodeOf(err) != errs.MountConfigInvalid {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}
