// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/moby/moby/client"
)

// debian is an image of what the smallest Debian holds: the required packages, apt, and what they need. They are those of
// this machine, so that nothing is downloaded; what people do not read in a container is left out.
func debian(t testing.TB) string {
	t.Helper()
	e := needEngine(t)
	imagesMu.Lock()
	defer imagesMu.Unlock()
	ref := imageRef("debian")
	if images[ref] {
		return ref
	}
	r, err := os.Open(debianLayer(t))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close() // only read
	res, err := e.ImageImport(t.Context(), client.ImageImportSource{Source: r, SourceName: "-"}, ref, client.ImageImportOptions{
		Changes: []string{"ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
	})
	if err != nil {
		t.Fatal(err)
	}
	said, err := io.ReadAll(res)
	if err = errors.Join(err, res.Close()); err != nil || bytes.Contains(said, []byte("errorDetail")) {
		t.Fatalf("import an image: %v, %s", err, said)
	}
	images[ref] = true
	return ref
}

func debianLayer(t testing.TB) string {
	t.Helper()
	if _, err := exec.LookPath("dpkg-query"); err != nil {
		t.Skip("this machine has no Debian to make an image of")
	}
	run := func(stdin, name string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Stdin = strings.NewReader(stdin)
		var said bytes.Buffer
		cmd.Stderr = &said
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, said.String())
		}
		return string(out)
	}
	chosen := smallest(run("", "dpkg-query", "-W", "-f", "${binary:Package}\t${Essential}\t${Priority}\t${Pre-Depends}, ${Depends}\t${Provides}\n"))
	if !slices.Contains(chosen, "dpkg") || !slices.Contains(chosen, "bash") {
		t.Skipf("this machine's Debian has no dpkg and no bash: %v", chosen)
	}

	files := map[string]bool{"bin": true, "sbin": true, "lib": true, "lib64": true} // links, that no package has
	for path := range strings.Lines(run("", "dpkg-query", append([]string{"-L"}, chosen...)...)) {
		path = strings.TrimSuffix(path, "\n")
		if !strings.HasPrefix(path, "/") || path == "/." || unread.MatchString(path) {
			continue
		}
		dir, err := filepath.EvalSymlinks(filepath.Dir(path))
		if err != nil {
			continue // somebody removed it
		}
		path = filepath.Join(dir, filepath.Base(path))
		if _, err := os.Lstat(path); err == nil {
			files[strings.TrimPrefix(path, "/")] = true
		}
	}
	for _, link := range []string{"bin", "sbin", "lib", "lib64"} {
		if _, err := os.Lstat("/" + link); err != nil {
			delete(files, link)
		}
	}
	layer := filepath.Join(t.TempDir(), "layer.tar")
	run(strings.Join(slices.Sorted(maps.Keys(files)), "\n"), "tar", "-C", "/", "--numeric-owner", "--no-recursion", "-cf", layer, "-T", "-")

	// What the packages made of themselves when they were installed.
	more, names := t.TempDir(), []string{}
	for name, content := range map[string]string{
		"etc/passwd":          run("", "cat", "/usr/share/base-passwd/passwd.master"),
		"etc/group":           run("", "cat", "/usr/share/base-passwd/group.master"),
		"var/lib/dpkg/status": run("", "dpkg-query", append([]string{"-s"}, chosen...)...),
	} {
		path := filepath.Join(more, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	run("", "tar", append([]string{"-C", more, "--owner=0", "--group=0", "-rf", layer}, names...)...)
	return layer
}

var unread = regexp.MustCompile(`^/usr/share/(doc|man|locale|info|lintian|bug)/`)

// smallest chooses from the installed packages, one a line: its name, whether it is essential, how important it is, what it
// needs, and for what else it stands.
func smallest(list string) []string {
	needs, stands, want := map[string]string{}, map[string]string{}, []string{"apt"}
	for line := range strings.Lines(list) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		name, _, _ := strings.Cut(f[0], ":")
		needs[name], stands[name] = f[3], name
		for p := range strings.SplitSeq(f[4], ",") {
			if p = packageName(p); p != "" && stands[p] == "" {
				stands[p] = name
			}
		}
		if f[1] == "yes" || f[2] == "required" {
			want = append(want, name)
		}
	}
	chosen := map[string]bool{}
	for len(want) > 0 {
		name := want[0]
		want = want[1:]
		if chosen[name] || needs[name] == "" {
			continue
		}
		chosen[name] = true
		for one := range strings.SplitSeq(needs[name], ",") {
			for other := range strings.SplitSeq(one, "|") {
				if p := stands[packageName(other)]; p != "" {
					want = append(want, p)
					break
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(chosen))
}

// packageName takes off a version and an architecture.
func packageName(s string) string {
	name, _, _ := strings.Cut(strings.TrimSpace(s), " ")
	name, _, _ = strings.Cut(name, ":")
	return name
}
