// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
	"github.com/berth-dev/berth/sdk/guest/api"
)

func TestText(t *testing.T) {
	for _, want := range []api.Text{"", "plain", "ümlaut\n\x00", "\xff\xfe/bin", "{\"base64\":1}"} {
		b, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got api.Text
		if err := json.Unmarshal(b, &got); err != nil || got != want {
			t.Errorf("%q came back as %q (%s, %v)", want, got, b, err)
		}
	}
}

func TestErrorTravels(t *testing.T) {
	cause := errs.New(errs.FileNotFound, "no such file").With("path", "a\xff").WithHint("make it")
	sent := errs.Wrap(errs.Internal, "files.read", fmt.Errorf("open: %w", cause))
	var r api.Result
	if err := json.Unmarshal(api.NewResult(nil, sent), &r); err != nil {
		t.Fatal(err)
	}
	got := r.Error.Err()
	var e *errs.Error
	if !errors.Is(got, errs.FileNotFound) || !errors.As(got, &e) {
		t.Fatal(got)
	}
	if e.Context["path"] != "a\xff" || e.Hint != "make it" || e.Op != "files.read" || got.Error() != sent.Error() {
		t.Errorf("got %#v (%v)", e, got)
	}
}

func TestEntry(t *testing.T) {
	when := time.Unix(-5, 17)
	want := []driver.StatResult{
		{Info: driver.FileInfo{
			Path: "dir/\xff", Type: driver.TypeSymlink, Size: 1 << 40, Mode: 0o4755, User: "u", Group: "g", UID: 1, GID: 1 << 31,
			Nlink: 2, ModTime: when, Target: "../x", Version: "v1",
		}},
		{},
		{Err: errs.New(errs.PathEscapes, "out")},
	}
	var b []byte
	for _, r := range want {
		b = api.AppendEntry(b, r)
	}
	var got []driver.StatResult
	for len(b) > 0 {
		r, rest, err := api.ReadEntry(b)
		if err != nil {
			t.Fatal(err)
		}
		got, b = append(got, r), rest
	}
	if d := cmp.Diff(want, got, cmp.Comparer(func(a, b error) bool { return errs.CodeOf(a) == errs.CodeOf(b) })); d != "" {
		t.Error(d)
	}
}

func FuzzEntry(f *testing.F) {
	f.Add(api.AppendEntry(nil, driver.StatResult{Info: driver.FileInfo{Path: "a", ModTime: time.Unix(1, 2)}}))
	f.Add(api.AppendEntry(nil, driver.StatResult{Err: errs.New(errs.NoSpace, "full")}))
	f.Add([]byte{1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, rest, err := api.ReadEntry(b)
		if err != nil {
			return
		}
		if len(rest) >= len(b) {
			t.Fatal("nothing was taken")
		}
		again, _, err := api.ReadEntry(api.AppendEntry(nil, r))
		if err != nil {
			t.Fatal(err)
		}
		if r.Err == nil && !cmp.Equal(r.Info, again.Info) {
			t.Fatal(cmp.Diff(r.Info, again.Info))
		}
	})
}
