// SPDX-License-Identifier: Apache-2.0

package patch_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/core/patch"
)

// memTree is a tree in memory that can fail at its n-th change.
type memTree struct {
	files   map[string]string
	failAt  int // 1 = the first change; 0 = never
	changes int
}

var errDisk = errors.New("disk is on fire")

func (m *memTree) change() error {
	m.changes++
	if m.changes == m.failAt {
		return errDisk
	}
	return nil
}

func (m *memTree) Read(_ context.Context, path string) (*patch.File, error) {
	c, ok := m.files[path]
	if !ok {
		return nil, patch.ErrNotExist
	}
	return &patch.File{Content: []byte(c), Version: c}, nil
}

func (m *memTree) Write(_ context.Context, path string, content []byte, old *patch.File) (string, error) {
	if err := m.change(); err != nil {
		return "", err
	}
	now, ok := m.files[path]
	switch {
	case old == nil && ok:
		return "", errors.New("exists")
	case old != nil && old.Version != "" && old.Version != now:
		return "", patch.ErrChanged
	}
	m.files[path] = string(content)
	return string(content), nil
}

func (m *memTree) Move(_ context.Context, from, to string) error {
	if err := m.change(); err != nil {
		return err
	}
	if _, ok := m.files[to]; ok {
		return errors.New("exists")
	}
	m.files[to] = m.files[from]
	delete(m.files, from)
	return nil
}

func (m *memTree) Remove(_ context.Context, path, version string) error {
	if err := m.change(); err != nil {
		return err
	}
	if m.files[path] != version {
		return patch.ErrChanged
	}
	delete(m.files, path)
	return nil
}

func wrap(body string) string { return "*** Begin Patch\n" + body + "\n*** End Patch\n" }

const everyOp = `*** Add File: new/n
+one
+two
*** Update File: a
@@
-a1
+A1
 a2
*** Update File: b
*** Move to: sub/b
-b1
+B1
*** Update File: c
*** Move to: moved
*** Delete File: d
*** Update File: a
-a2
+A2`

func before() map[string]string {
	return map[string]string{"a": "a1\na2\n", "b": "b1\n", "c": "c\n", "d": "d\n", "other": "x"}
}

func TestApply(t *testing.T) {
	p, err := patch.Parse(wrap(everyOp))
	if err != nil {
		t.Fatal(err)
	}
	tree := &memTree{files: before()}
	res, err := patch.Apply(t.Context(), tree, p)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"new/n": "one\ntwo\n", "a": "A1\nA2\n", "sub/b": "B1\n", "moved": "c\n", "other": "x"}
	if d := cmp.Diff(want, tree.files); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	if len(res.Changes) != 6 || res.Changes[0].Added != 2 || res.Changes[2].MoveTo != "sub/b" {
		t.Errorf("%+v", res.Changes)
	}
}

// Whichever write fails, the tree is as before.
func TestApplyIsAtomic(t *testing.T) {
	p, err := patch.Parse(wrap(everyOp))
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; ; n++ {
		tree := &memTree{files: before(), failAt: n}
		_, err := patch.Apply(t.Context(), tree, p)
		if err == nil {
			if n < 5 {
				t.Fatalf("only %d changes were made", n)
			}
			return
		}
		if !errors.Is(err, errDisk) {
			t.Fatalf("failure at %d: %v", n, err)
		}
		if d := cmp.Diff(before(), tree.files); d != "" {
			t.Fatalf("after a failure at change %d (-want +got)\n%s\n%v", n, d, err)
		}
	}
}

// One bad section, and no file is touched; every fault is told at once.
func TestApplyChecksFirst(t *testing.T) {
	tree := &memTree{files: before()}
	p, err := patch.Parse(wrap("*** Update File: a\n-a1\n+x\n*** Update File: b\n-nope\n+x\n*** Delete File: gone\n*** Add File: d\n+x"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = patch.Apply(t.Context(), tree, p)
	for _, want := range []string{"b, hunk 1", "gone", "no such file", "exists already"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v lacks %q", err, want)
		}
	}
	if d := cmp.Diff(before(), tree.files); d != "" || tree.changes != 0 {
		t.Errorf("%d changes, %s", tree.changes, d)
	}
}

type racyTree struct{ *memTree }

func (r racyTree) Read(ctx context.Context, path string) (*patch.File, error) {
	f, err := r.memTree.Read(ctx, path)
	if path == "b" {
		r.files["a"] = "changed by a command meanwhile"
	}
	return f, err
}

func TestApplySeesAForeignChange(t *testing.T) {
	tree := &memTree{files: before()}
	p, err := patch.Parse(wrap("*** Update File: a\n-a1\n+x\n*** Update File: b\n-b1\n+x"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = patch.Apply(t.Context(), racyTree{tree}, p)
	if patch.KindOf(err) != patch.Changed {
		t.Fatalf("got %v", err)
	}
	want := before()
	want["a"] = "changed by a command meanwhile"
	if !maps.Equal(want, tree.files) {
		t.Errorf("%v", tree.files)
	}
}

func TestParseErrors(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"", `starts with "*** Begin Patch"`},
		{"*** Begin Patch\n", `ends with "*** End Patch"`},
		{wrap("*** Frobnicate File: x"), "(patch line 2): a file section is expected"},
		{wrap("*** Add File: "), "needs a path"},
		{wrap("*** Add File: x\nhello"), `(patch line 3): each line of the added file x starts with "+"`},
		{wrap("*** Delete File: x\n-a"), "a delete section has no lines"},
		{wrap("*** Update File: x"), "changes nothing"},
		{wrap("*** Update File: x\n@@\n a"), "the hunk changes nothing"},
		{wrap("*** Update File: x\n-a\nb"), `(patch line 4): each line of a hunk starts with`},
		{wrap("*** Update File: x\n*** Move to: \n-a"), "needs a path"},
		{"*** Begin Patch\n*** End Patch", "changes no file"},
	} {
		_, err := patch.Parse(tt.text)
		if err == nil || !strings.Contains(err.Error(), tt.want) || patch.KindOf(err) != patch.Syntax {
			t.Errorf("%q: got %v, want %q", tt.text, err, tt.want)
		}
	}
}

func TestParseIsLenientWhereTheMeaningIsClear(t *testing.T) {
	body := "*** Begin Patch\n*** Add File: x\n+a\n*** End Patch"
	for _, text := range []string{
		body, "\n  \n" + body + "\n\n", strings.ReplaceAll(body, "\n", "\r\n"),
		"```diff\n" + body + "\n```", "apply_patch <<'EOF'\n" + body + "\nEOF\n",
		"*** Begin Patch\n*** Add File: x  \n+a\n*** End Patch  ",
	} {
		p, err := patch.Parse(text)
		if err != nil || len(p.Sections) != 1 || p.Sections[0].Path != "x" || p.Sections[0].Lines[0] != "a" {
			t.Errorf("%q: %+v, %v", text, p, err)
		}
	}
	// Marks behind a "+" are content.
	p, err := patch.Parse(wrap("*** Add File: x\n+*** End Patch\n+*** Add File: y"))
	if err != nil || len(p.Sections) != 1 || len(p.Sections[0].Lines) != 2 {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestParseJSON(t *testing.T) {
	for _, text := range []string{
		`{"patch": "*** Begin Patch\n*** Update File: a\n-x\n+y\n*** End Patch"}`,
		`{"command": ["apply_patch", "*** Begin Patch\n*** Update File: a\n-x\n+y\n*** End Patch"]}`,
		`{"type": "update_file", "path": "a", "diff": "@@\n-x\n+y\n"}`,
		`{"operation": {"type": "update_file", "path": "a", "diff": "-x\n+y"}}`,
		`{"operations": [{"type": "update_file", "path": "a", "diff": "-x\n+y"}]}`,
		`[{"type": "update_file", "path": "a", "diff": "-x\n+y"}]`,
	} {
		p, err := patch.ParseJSON(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		tree := &memTree{files: map[string]string{"a": "x\n"}}
		if _, err := patch.Apply(t.Context(), tree, p); err != nil || tree.files["a"] != "y\n" {
			t.Errorf("%s: %v, %v", text, tree.files, err)
		}
	}
	for diff, want := range map[string]string{"+a\n+b\n": "a\nb\n", "+a\n+b": "a\nb\n", "": "", "+\n": "\n"} {
		p, err := patch.ParseJSON(fmt.Sprintf(`{"type": "create_file", "path": "n", "diff": %q}`, diff))
		if err != nil {
			t.Fatal(err)
		}
		tree := &memTree{files: map[string]string{}}
		if _, err := patch.Apply(t.Context(), tree, p); err != nil || tree.files["n"] != want {
			t.Errorf("%q: %q, %v", diff, tree.files["n"], err)
		}
	}
	for text, want := range map[string]string{
		`{`: "not valid JSON", `{}`: "no operation", `{"type": "update_file"}`: "path", `{"type": "x", "path": "a"}`: "create_file",
		`{"type": "create_file", "path": "a", "diff": "x"}`: "line 1", `{"type": "update_file", "path": "a"}`: "changes nothing",
	} {
		if _, err := patch.ParseJSON(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}
