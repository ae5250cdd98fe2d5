// SPDX-License-Identifier: Apache-2.0

package repotest

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	module = "github.com/berth-dev/berth"

	maxFileLines    = 500
	maxPackageLines = 1500

	// A file or package past the limit says why in its head comment, with this mark.
	sizeNote = "Size:"
)

// root is the repository's root, from this package's directory.
const root = "../.."

func sources(t *testing.T) []string {
	t.Helper()
	out, err := exec.Command("git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		t.Skipf("not a git checkout: %v", err)
	}
	var files []string
	for f := range strings.Lines(string(out)) {
		f = strings.TrimSpace(f)
		if _, err := os.Stat(filepath.Join(root, f)); err == nil {
			files = append(files, f)
		}
	}
	return files
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func goFiles(t *testing.T) []string {
	t.Helper()
	return slices.DeleteFunc(sources(t), func(f string) bool {
		return !strings.HasSuffix(f, ".go") || strings.HasSuffix(f, ".pb.go") || strings.Contains(f, "/testdata/")
	})
}

func TestLicenceHeader(t *testing.T) {
	for _, f := range sources(t) {
		switch ext := filepath.Ext(f); {
		case strings.HasSuffix(f, ".pb.go"), strings.Contains(f, "testdata/"):
		case ext == ".go", ext == ".proto", ext == ".sh", filepath.Base(f) == "Makefile":
			head, _, _ := bytes.Cut(read(t, f), []byte("\n\n"))
			if !bytes.Contains(head, []byte("SPDX-License-Identifier: Apache-2.0")) {
				t.Errorf("%s: no SPDX line at the top", f)
			}
		}
	}
}

func TestPackageComment(t *testing.T) {
	have := map[string]int{}
	for _, f := range goFiles(t) {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		dir := filepath.Dir(f)
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, f), nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		have[dir] += 0
		if file.Doc != nil {
			have[dir]++
		}
	}
	for dir, n := range have {
		if n != 1 && !strings.HasPrefix(dir, "sdk/proto") {
			t.Errorf("%s: %d package comments, want exactly one", dir, n)
		}
	}
}

func TestSizes(t *testing.T) {
	lines := map[string]int{}
	argued := map[string]bool{}
	for _, f := range goFiles(t) {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		b := read(t, f)
		n := bytes.Count(b, []byte("\n"))
		head, _, _ := bytes.Cut(b, []byte("\npackage "))
		noted := bytes.Contains(head, []byte(sizeNote))
		if n > maxFileLines && !noted {
			t.Errorf("%s: %d lines, more than %d; split it, or say why in its head comment (%q)", f, n, maxFileLines, sizeNote)
		}
		lines[filepath.Dir(f)] += n
		argued[filepath.Dir(f)] = argued[filepath.Dir(f)] || noted
	}
	for dir, n := range lines {
		if n > maxPackageLines && !argued[dir] {
			t.Errorf("%s: %d lines, more than %d; split it, or say why in the package comment (%q)", dir, n, maxPackageLines, sizeNote)
		}
	}
}

func TestNoReplace(t *testing.T) {
	if regexp.MustCompile(`(?m)^replace`).Match(read(t, "go.mod")) {
		t.Error("go.mod has a replace line: nobody who imports the sdk would get it")
	}
}

// rule forbids what a part of the tree may depend on, also indirectly.
type rule struct{ from, deny, why string }

var rules = []rule{
	{"sdk/", module + "/core", "a driver author must not get the harness"},
	{"sdk/", module + "/plugins", "the sdk knows no driver"},
	{"sdk/", module + "/mounts", "the sdk knows no storage"},
	{"sdk/", "github.com/hashicorp/hcl", "the core decodes HCL"},
	{"sdk/", "github.com/rclone", "only mounts/rclone links rclone"},
	{"sdk/", "github.com/openai", "the sdk knows no model"},
	{"sdk/", "github.com/docker", "only plugins/docker links an engine's client"},
	{"sdk/", "github.com/moby", "only plugins/docker links an engine's client"},
	{"sdk/driver", "google.golang.org", "the interfaces mention no wire type"},
	{"sdk/guest", "google.golang.org", "the guest stays small: no gRPC, no protobuf"},
	{"sdk/guest", "github.com/hashicorp", "the guest stays small"},
	{"sdk/guest", "net/http", "the guest stays small"},
	{"core/", module + "/plugins", "the core knows no driver"},
	{"core/", "github.com/docker", "only plugins/docker links an engine's client"},
	{"core/", "github.com/moby", "only plugins/docker links an engine's client"},
	{"core/", "github.com/rclone", "only mounts/rclone links rclone"},
	{"plugins/", module + "/core", "a driver knows only the sdk"},
	{"plugins/", "github.com/rclone", "only mounts/rclone links rclone"},
	{"mounts/", module + "/core", "storage knows nothing of the harness"},
	{"mounts/", module + "/plugins", "storage knows no driver"},
	{"mounts/spec", "github.com/rclone", "what can be mounted is data"},
	{"mounts/spec", "net/http", "what can be mounted is data"},
	{"core/run/", "os/exec", "the run engine is pure"},
	{"core/run/", "net/http", "the run engine is pure"},
}

// directRules look at a package's own imports only.
var directRules = []rule{
	{"core/run", "os", "the run engine is pure"},
	{"core/run", "time/tzdata", "the run engine is pure"},
	{"core/run", "net", "the run engine is pure"},
	{"core/run", "sync", "the run engine has no goroutines"},
	{"core/run", "math/rand", "random bytes arrive in events"},
	{"core/run", "math/rand/v2", "random bytes arrive in events"},
	{"core/run", "crypto/rand", "random bytes arrive in events"},
}

func TestImports(t *testing.T) {
	for _, p := range list(t) {
		rel := strings.TrimPrefix(p.ImportPath, module+"/")
		for _, r := range rules {
			if !strings.HasPrefix(rel+"/", r.from) {
				continue
			}
			for _, d := range p.Deps {
				if d == r.deny || strings.HasPrefix(d, r.deny+"/") {
					t.Errorf("%s depends on %s: %s", rel, d, r.why)
				}
			}
		}
		for _, r := range directRules {
			if rel == r.from && slices.Contains(p.Imports, r.deny) {
				t.Errorf("%s imports %s: %s", rel, r.deny, r.why)
			}
		}
		hcl := slices.ContainsFunc(p.Imports, func(i string) bool { return strings.HasPrefix(i, "github.com/hashicorp/hcl") })
		if hcl && !slices.ContainsFunc([]string{"core/config", "core/diag", "core/catalog"}, func(ok string) bool {
			return rel == ok || strings.HasPrefix(rel, ok+"/")
		}) {
			t.Errorf("%s imports hcl: only the language, its diagnostics and the lock file do", rel)
		}
		if slices.Contains(p.Imports, "os/exec") && strings.HasPrefix(rel, "core/") && !slices.ContainsFunc(mayExec, func(ok string) bool {
			return strings.HasPrefix(rel, ok)
		}) {
			t.Errorf("%s imports os/exec: host processes are started in few places only: %v", rel, mayExec)
		}
	}
}

// mayExec are the packages of the core that start processes on the host.
var mayExec = []string{"core/plugin", "core/catalog", "core/config", "core/manifest", "core/hostproc"}

type pkg struct {
	ImportPath string
	Imports    []string
	Deps       []string
}

func list(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,Deps", "./...")
	cmd.Dir = root
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var ps []pkg
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		var p pkg
		if err := d.Decode(&p); err != nil {
			t.Fatal(err)
		}
		ps = append(ps, p)
	}
	return ps
}

func TestLinksInDocuments(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#\s]+)(#[^)]*)?\)`)
	for _, f := range sources(t) {
		if filepath.Ext(f) != ".md" {
			continue
		}
		for _, m := range link.FindAllSubmatch(read(t, f), -1) {
			to := string(m[1])
			if strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") {
				continue
			}
			if _, err := os.Stat(filepath.Join(root, filepath.Dir(f), to)); errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s links to %s, which does not exist", f, to)
			}
		}
	}
}
