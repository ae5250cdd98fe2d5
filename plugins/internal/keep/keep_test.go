// SPDX-License-Identifier: Apache-2.0

package keep_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/plugins/internal/keep"
	"github.com/berth-dev/berth/sdk/driver"
)

// Processes that start at the same time have one secret, and what is no secret is not taken for one.
func TestSecret(t *testing.T) {
	dir := t.TempDir()
	var all [8][]byte
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() {
			b, err := keep.Secret(dir)
			if err != nil {
				t.Error(err)
			}
			all[i] = b
		})
	}
	wg.Wait()
	for _, b := range all {
		if !bytes.Equal(b, all[0]) || len(b) < 32 {
			t.Fatalf("%x", all)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("left: %v, %v", left, err)
	}
	if st, err := left[0].Info(); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	if err := os.WriteFile(filepath.Join(dir, "secret"), []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err := keep.Secret(dir); err == nil || !strings.Contains(err.Error(), "holds no secret") {
		t.Errorf("%x, %v", b, err)
	}
}

// What is said of a snapshot is there for another process, whatever its id is, and goes with it.
func TestSnapshots(t *testing.T) {
	dir := t.TempDir()
	at := func() keep.Snapshots { return keep.Snapshots(filepath.Join(dir, "snapshots")) }
	ids := []string{"name:tag", "team/name:tag", "../../etc", strings.Repeat("x", 5000), "ä\x00"}
	made := time.Now().UTC().Round(0)
	for _, id := range ids {
		if err := at().Put(driver.NativeSnapshot{ID: id, SandboxID: "01", Created: made, Labels: map[string]string{"of": id}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range ids {
		want := driver.NativeSnapshot{ID: id, SandboxID: "01", Created: made, Labels: map[string]string{"of": id}}
		got := at().Of(id)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if !keep.Has(got, nil) || !keep.Has(got, want.Labels) || keep.Has(got, map[string]string{"of": id, "more": ""}) {
			t.Errorf("labels of %q", id)
		}
		if err := errors.Join(at().Forget(id), at().Forget(id)); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(driver.NativeSnapshot{ID: id}, at().Of(id)); diff != "" {
			t.Error(diff)
		}
	}
}

func TestAllSnapshots(t *testing.T) {
	d := keep.Snapshots(filepath.Join(t.TempDir(), "snapshots"))
	if all, err := d.All(); err != nil || len(all) > 0 {
		t.Errorf("before the first: %v, %v", all, err)
	}
	for _, id := range []string{"one", "two/with:odd letters"} {
		if err := d.Put(driver.NativeSnapshot{ID: id, Labels: map[string]string{"a": id}}); err != nil {
			t.Fatal(err)
		}
	}
	all, err := d.All()
	if err != nil || len(all) != 2 || all[0].ID == all[1].ID || all[0].Labels["a"] != all[0].ID {
		t.Errorf("%+v, %v", all, err)
	}
	if err := os.WriteFile(filepath.Join(string(d), "broken.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := d.All(); err == nil || !strings.Contains(err.Error(), "broken.json") {
		t.Errorf("with a file that cannot be read: %v", err)
	}
}
