// SPDX-License-Identifier: Apache-2.0

package rpc_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/rpc"
	"github.com/berth-dev/berth/sdk/serve/adapter"
	"github.com/berth-dev/berth/sdk/serve/servetest"
)

func TestFeaturesAreWhatIsThere(t *testing.T) {
	f := newFake()
	f.wrap = withFiles
	f.desc.Features = []driver.Feature{driver.FilesNative, driver.PortForward, driver.SnapNative, "from.the.future"}
	var log strings.Builder
	conn, s := servetest.Serve(t, adapter.Config{Driver: f, Log: hclog.New(&hclog.LoggerOptions{Output: &log})})
	d := rpc.New(conn, rpc.Config{})
	create(t, d, "sb")
	create(t, d, "two")
	got, err := s.Features("sb")
	if err != nil {
		t.Fatal(err)
	}
	for feature, want := range map[driver.Feature]adapter.Support{
		driver.FilesNative: adapter.Native, driver.TreeNative: adapter.Native, driver.PortForward: adapter.Native,
		driver.ProcAttach: adapter.Unsupported, driver.SnapNative: adapter.Unsupported, driver.LifePause: adapter.Unsupported,
	} {
		if got[feature] != want {
			t.Errorf("%s: %d, want %d", feature, got[feature], want)
		}
	}
	// A claim that is not kept is said once.
	if n := strings.Count(log.String(), "feature=snap.native"); n != 1 || strings.Contains(log.String(), "feature=files.native") {
		t.Errorf("log:\n%s", log.String())
	}
}

func TestEmulatedFiles(t *testing.T) {
	f := newFake()
	conn, s := servetest.Serve(t, adapter.Config{Driver: f, Emulate: func(sb driver.Sandbox, _ []driver.PathGrant) (driver.FileSystem, driver.TreeIO) {
		return fileBox{sb.(*box), new(sync.Map)}, nil
	}})
	sb := create(t, rpc.New(conn, rpc.Config{}), "sb")
	if _, err := sb.Write(t.Context(), "a", driver.WriteOptions{}, strings.NewReader("x")); err != nil {
		t.Error(err)
	}
	if err := sb.Export(t.Context(), driver.ExportOptions{}, &strings.Builder{}); !errors.Is(err, errs.Unsupported) {
		t.Errorf("export: %v", err)
	}
	if got, _ := s.Features("sb"); got[driver.FilesNative] != adapter.Emulated || got[driver.TreeNative] != adapter.Unsupported {
		t.Errorf("%v", got)
	}
}

func TestFalseClaimsOfADriverAreRefused(t *testing.T) {
	f := newFake()
	f.desc.Features = []driver.Feature{driver.LifeList}
	if _, err := adapter.New(adapter.Config{Driver: f}); err == nil || !strings.Contains(err.Error(), "life.list") {
		t.Errorf("got %v", err)
	}
}
