// SPDX-License-Identifier: Apache-2.0

// Package workspace reads manifests and their entries from a checked tree, and checks their paths, users, groups,
// sources and mounts.
package workspace

import (
	"encoding/base64"
	"maps"
	"os"
	"path"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/berth-dev/berth/core/config/eval"
	"github.com/berth-dev/berth/core/config/mark"
	"github.com/berth-dev/berth/core/config/read"
	"github.com/berth-dev/berth/core/config/tree"
	"github.com/berth-dev/berth/core/diag"
	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/value"
	"github.com/berth-dev/berth/core/value/redact"
	mounts "github.com/berth-dev/berth/mounts/spec"
)

// Reader reads manifests and collects what is wrong.
type Reader struct {
	Redact *redact.Set
	Diags  diag.Diagnostics
}

func (d *Reader) add(x *diag.Diagnostic) { d.Diags = append(d.Diags, x) }

// Manifest reads a manifest block. Users are those that agents of the manifest run as: they are made when the manifest
// does not have them.
func (d *Reader) Manifest(v *spec.Manifest, r read.Reader, l string, runAs []string) {
	*v = spec.Manifest{
		Label: l, Root: r.String("root"), OwnByRunAs: r.Bool("own_by_run_as"),
		MountCommands: r.Strings("remote_mount_command_allowlist"), Pos: r.Pos(),
	}
	if a := r.Node().Attr("root"); a != nil && !a.Bad {
		if why := badRoot(v.Root); why != "" {
			d.add(diag.Errorf(diag.PathNotAllowed, a.Expr.Range(), "%q cannot be the workspace root", v.Root).Labelf("%s", why))
		}
	}
	if v.Root == "" {
		v.Root = spec.DefaultRoot
	}
	d.environment(v, r)
	for _, u := range r.Blocks("user") {
		v.Users = append(v.Users, u.Node().Name())
		d.account(u)
	}
	for _, g := range r.Blocks("group") {
		v.Groups = append(v.Groups, spec.Group{Name: g.Node().Name(), Users: g.Strings("users"), Pos: g.Pos()})
		d.account(g)
	}
	granted := map[string]*tree.Node{}
	for _, g := range r.Blocks("path_grant") {
		if old := granted[g.Node().Name()]; old != nil {
			d.add(diag.Errorf(diag.DuplicatePath, g.Node().Header, "%q is granted twice", g.Node().Name()).Relate(old.Header, "first here"))
		}
		granted[g.Node().Name()] = g.Node()
		v.Grants = append(v.Grants, d.grant(g))
	}
	e := &entryReader{Reader: d, seen: map[string]*tree.Node{}}
	e.entries(r.Node(), "")
	v.Entries = e.out
	e.above()
	sort.SliceStable(v.Entries, func(i, j int) bool { return v.Entries[i].Path < v.Entries[j].Path })
	d.accounts(v, r, runAs)
}

func badRoot(root string) string {
	switch {
	case !strings.HasPrefix(root, "/"):
		return "it must be absolute"
	case strings.ContainsRune(root, 0):
		return "it holds a NUL character"
	case path.Clean(root) != root:
		return "write " + path.Clean(root)
	case root == "/":
		return "the root of the file system is not allowed"
	}
	return ""
}

func (d *Reader) account(r read.Reader) {
	n := r.Node()
	if !accountName(n.Name()) {
		d.add(diag.Errorf(diag.PatternMismatch, n.Header, "%q is not a name for a %s", n.Name(), n.Type).
			Labelf("names have small letters, digits, - and _, start with a letter or _, and are at most 32 long"))
	}
}

func accountName(s string) bool {
	if s == "" || len(s) > 32 {
		return false
	}
	for i, c := range s {
		letter := c >= 'a' && c <= 'z' || c == '_'
		if !letter && (i == 0 || !(c >= '0' && c <= '9' || c == '-')) {
			return false
		}
	}
	return true
}

func (d *Reader) environment(v *spec.Manifest, r read.Reader) {
	plain := r.StringMap("environment")
	names := make([]string, 0, len(plain))
	for n := range plain {
		names = append(names, n)
	}
	sort.Strings(names)
	for _, n := range names {
		v.Environment = append(v.Environment, spec.EnvVar{Name: n, Value: spec.Text{Literal: plain[n]}, Pos: eval.Pos(r.Node().Attr("environment").Expr.Range())})
	}
	for _, e := range r.Blocks("env") {
		n := e.Node()
		name := n.Name()
		if _, twice := plain[name]; twice {
			d.add(diag.Errorf(diag.Conflicting, n.Header, "variable %q is in environment too", name).
				Labelf("say it once").Relate(r.Node().Attr("environment").NameRange, "environment is here"))
		}
		x := spec.EnvVar{Name: name, Ephemeral: e.Bool("ephemeral"), Description: e.String("description"), Pos: e.Pos()}
		switch a := n.Attr("value"); {
		case a == nil || a.Bad:
		case a.Secret:
			x.Secret = e.Secret("value")
			x.Ephemeral = x.Ephemeral || mark.IsEphemeral(a.Value)
		case e.Bool("sensitive") && !a.Later:
			text := e.String("value")
			d.Redact.Add(text)
			x.Secret = value.PlainSecret(text)
		default:
			x.Value = e.Text("value")
		}
		v.Environment = append(v.Environment, x)
	}
}

func (d *Reader) grant(r read.Reader) spec.PathGrant {
	n := r.Node()
	g := spec.PathGrant{Path: n.Name(), HostPath: r.String("host_path"), ReadOnly: r.Bool("read_only"), Description: r.String("description"), Pos: r.Pos()}
	bad := func(p string) string {
		switch {
		case !strings.HasPrefix(p, "/"):
			return "it must be absolute"
		case path.Clean(p) == "/":
			return "the whole file system cannot be granted"
		case path.Clean(p) != p:
			return "write " + path.Clean(p)
		}
		return ""
	}
	if why := bad(g.Path); why != "" {
		d.add(diag.Errorf(diag.PathNotAllowed, n.Header, "%q cannot be granted", g.Path).Labelf("%s", why))
	}
	if a := n.Attr("host_path"); a != nil && !a.Bad {
		if why := bad(g.HostPath); why != "" {
			d.add(diag.Errorf(diag.PathNotAllowed, a.Expr.Range(), "%q cannot be granted", g.HostPath).Labelf("%s", why))
		}
	}
	return g
}

// entryReader reads the entries of a manifest, or of a skill.
type entryReader struct {
	*Reader
	seen map[string]*tree.Node
	out  []spec.Entry
}

// EntryKinds are the types of blocks that are entries.
func EntryKinds() []string {
	return []string{"file", "dir", "local_file", "local_dir", "git_repo", "mount"}
}

// Entries reads the entries of a block that is no manifest.
func (d *Reader) Entries(n *tree.Node) []spec.Entry {
	e := &entryReader{Reader: d, seen: map[string]*tree.Node{}}
	e.entries(n, "")
	e.above()
	return e.out
}

func (e *entryReader) entries(n *tree.Node, under string) {
	for _, b := range n.Blocks {
		if slices.Contains(EntryKinds(), b.Type) {
			e.entry(b, under)
		}
	}
}

func (e *entryReader) entry(n *tree.Node, under string) {
	p, ok := e.entryPath(n, under)
	if !ok {
		return
	}
	r := read.New(n)
	x := spec.Entry{
		Kind: spec.EntryKind(n.Type), Path: p, Description: r.String("description"), Ephemeral: r.Bool("ephemeral"),
		Owner: r.String("owner"), Group: r.String("group"), Mode: mode(r.StringPtr("permissions")), Pos: r.Pos(),
	}
	switch x.Kind {
	case spec.EntryFile:
		x.File = e.file(r)
	case spec.EntryLocalFile:
		x.LocalFile = &spec.LocalFileEntry{Source: e.source(r, false)}
	case spec.EntryLocalDir:
		x.LocalDir = e.LocalDir(r)
	case spec.EntryGitRepo:
		x.GitRepo = e.GitRepo(r)
	case spec.EntryMount:
		x.Mount = e.mount(r, n.Labels[0])
	case spec.EntryDir: // its entries follow it
	}
	e.out = append(e.out, x)
	if x.Kind == spec.EntryDir {
		e.entries(n, p)
	}
}

// entryPath cleans an entry's path and refuses what is not allowed.
func (e *entryReader) entryPath(n *tree.Node, under string) (string, bool) {
	text := n.Name()
	rng := n.Header
	if len(n.LabelRanges) > 0 {
		rng = n.LabelRanges[len(n.LabelRanges)-1]
	}
	bad := func(why string, v ...any) {
		e.add(diag.Errorf(diag.PathNotAllowed, rng, "path %q is not allowed", diag.Printable(text)).Labelf(why, v...))
	}
	clean := path.Clean(text)
	switch {
	case text == "":
		bad("it is empty")
	case strings.ContainsRune(text, 0):
		bad("it holds a NUL character")
	case strings.HasPrefix(text, "/"):
		bad("paths are relative to the workspace root")
	case strings.Contains(text, "\\") && strings.Contains(text, ":"):
		bad("paths in a sandbox have forward slashes and no drive")
	case clean == "." || clean == "..":
		bad("it names the workspace itself or its parent")
	case strings.HasPrefix(clean, "../"):
		bad("it leaves the workspace: %s", clean)
	case len(clean) > 4096:
		bad("it is too long")
	default:
		full := path.Join(under, clean)
		if first := e.seen[full]; first != nil {
			e.add(diag.Errorf(diag.DuplicatePath, rng, "second entry at %q", full).
				Labelf("each path can have one entry").Relate(first.Header, "first one here"))
			return "", false
		}
		e.seen[full] = n
		return full, true
	}
	return "", false
}

// above reports entries that stand below something that is no directory of this manifest's.
func (e *entryReader) above() {
	paths := make([]string, 0, len(e.seen))
	for p := range e.seen {
		paths = append(paths, p)
	}
	sort.Strings(paths)
	for _, p := range paths {
		for dir := path.Dir(p); dir != "."; dir = path.Dir(dir) {
			up := e.seen[dir]
			if up == nil {
				continue
			}
			if up.Type == "file" || up.Type == "local_file" {
				e.add(diag.Errorf(diag.FileAboveEntry, e.seen[p].Header, "entry %q is below a file", p).
					Labelf("%q is a file", dir).Relate(up.Header, "the file"))
			}
			if up.Type == "mount" {
				e.add(diag.Errorf(diag.FileAboveEntry, e.seen[p].Header, "entry %q is inside a mount", p).
					Labelf("what is mounted at %q would hide it", dir).Relate(up.Header, "the mount"))
			}
		}
	}
}

func mode(text *string) *uint32 {
	if text == nil {
		return nil
	}
	m, err := strconv.ParseUint(*text, 8, 32)
	if err != nil {
		return nil
	}
	out := uint32(m)
	return &out
}

func (d *Reader) file(r read.Reader) *spec.FileEntry {
	f := &spec.FileEntry{Executable: r.Bool("executable")}
	if a := r.Node().Attr("content_base64"); a != nil && !a.Bad {
		raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(r.String("content_base64")))
		if err != nil {
			d.add(diag.Errorf(diag.PatternMismatch, a.Expr.Range(), "content_base64 is not base64").Labelf("%v", err))
		}
		f.Content = raw
		return f
	}
	t := r.Text("content")
	f.Content, f.Expr = []byte(t.Literal), t.Expr
	return f
}

// source reads a host path and looks whether it is there.
func (d *Reader) source(r read.Reader, dir bool) string {
	a := r.Node().Attr("source")
	if a == nil || a.Bad {
		return ""
	}
	p := r.Path("source")
	info, err := os.Stat(p)
	var x *diag.Diagnostic
	switch {
	case err != nil:
		x = diag.Errorf(diag.SourceMissing, a.Expr.Range(), "no source %q", r.String("source")).Labelf("there is nothing at %s", p)
	case dir && !info.IsDir():
		x = diag.Errorf(diag.SourceMissing, a.Expr.Range(), "source %q is no directory", r.String("source")).
			Labelf("use local_file for a file")
	case !dir && info.IsDir():
		x = diag.Errorf(diag.SourceMissing, a.Expr.Range(), "source %q is a directory", r.String("source")).
			Labelf("use local_dir for a directory")
	}
	if x != nil {
		x.Helpf("paths are relative to the directory of the configuration")
		d.add(x)
	}
	return p
}

// LocalDir reads the attributes of a local_dir.
func (d *Reader) LocalDir(r read.Reader) *spec.LocalDirEntry {
	return &spec.LocalDirEntry{
		Source: d.source(r, true), Include: r.Strings("include"), Exclude: r.Strings("exclude"), Gitignore: r.Bool("gitignore"),
		Symlinks: r.String("symlinks"), KeepModes: r.Bool("keep_modes"), MaxSize: r.Size("max_size"), MaxFiles: r.Int("max_files"),
	}
}

// GitRepo reads the attributes of a git_repo.
func (d *Reader) GitRepo(r read.Reader) *spec.GitRepoEntry {
	c := r.Block("credentials")
	return &spec.GitRepoEntry{
		Host: r.String("host"), Repo: r.String("repo"), Ref: r.String("ref"), Subpath: r.String("subpath"), Depth: r.Int("depth"),
		Submodules: r.Bool("submodules"), LFS: r.Bool("lfs"), KeepGit: r.Bool("keep_git"),
		Username: c.Secret("username"), Token: c.Secret("token"),
	}
}

var mountCommon = []string{"description", "ephemeral", "owner", "group", "permissions", "mount_path", "read_only", "on_failure", "flush"}

func (d *Reader) mount(r read.Reader, kind string) *spec.MountEntry {
	m := &spec.MountEntry{
		Kind: kind, MountPath: r.String("mount_path"), ReadOnly: r.Bool("read_only"), Strategy: "auto",
		Fields: r.Fields(mountCommon...), Credentials: r.Block("credentials").Credentials(),
		Settings: map[string]any{"on_failure": r.String("on_failure"), "flush": r.String("flush")},
	}
	if kind == "host" {
		m.Fields["source"] = d.source(r, true)
	}
	if kind == "plugin" {
		m.Fields["config"] = r.Block("config").Nested()
	}
	for _, b := range []string{"access", "cache", "limits"} {
		if x := r.Block(b); x.OK() {
			m.Settings[b] = x.Nested()
		}
	}
	if c := r.Block("credentials"); c.OK() {
		if c.Bool("ambient") {
			m.Settings["ambient"] = true
		}
		if a := c.Block("assume_role"); a.OK() {
			m.Settings["assume_role"] = a.Nested()
		}
	}
	d.Storage(r, kind, m.Fields, m.Credentials, r.Block("credentials").Bool("ambient"))
	if why := mounts.Problem(m.MountPath); why != "" {
		d.add(diag.Errorf(diag.PathNotAllowed, r.Node().Attr("mount_path").Expr.Range(), "mount_path %q is not allowed", diag.Printable(m.MountPath)).Labelf("%s", why))
	}
	if s := r.Block("strategy"); s.OK() {
		m.Strategy = s.Node().Name()
		m.Options = s.Fields()
		if p := s.Block("pattern"); p.OK() {
			m.Pattern = p.Node().Name()
			m.Options = p.Nested()
			d.pattern(kind, p)
		}
	}
	return m
}

// Storage reports what is wrong with what a mount or a store says of its storage.
func (d *Reader) Storage(r read.Reader, kind string, fields map[string]any, creds map[string]value.Secret, ambient bool) {
	if !slices.Contains(mounts.Kinds(), kind) {
		return
	}
	src := &mounts.Source{Kind: kind, Fields: fields, Creds: slices.Sorted(maps.Keys(creds)), Ambient: ambient}
	for _, f := range mounts.Check(src) {
		rng := r.Node().Header
		if a := r.Node().Attr(f.Field); f.Field != "" && a != nil {
			if a.Bad || a.Later {
				continue
			}
			rng = a.Expr.Range()
		} else if c := r.Block("credentials"); f.Field == "" && c.OK() {
			rng = c.Node().Header
		}
		d.add(diag.Errorf(diag.StorageWrong, rng, "%s storage cannot be reached so", kind).Labelf("%s", f.Text).Helpf("%s", f.Hint))
	}
}

// pattern reports tools that cannot mount a kind of storage.
func (d *Reader) pattern(kind string, p read.Reader) {
	can := mounts.Tools(kind)
	if len(can) > 0 && !slices.Contains(can, p.Node().Name()) {
		d.add(diag.Errorf(diag.StrategyNotSupported, p.Node().Header, "%q cannot mount %s", p.Node().Name(), kind).
			Labelf("use %s", strings.Join(can, " or ")))
	}
}

// accounts reports users and groups that the manifest does not have.
func (d *Reader) accounts(v *spec.Manifest, r read.Reader, runAs []string) {
	users, groups := append([]string{"root"}, v.Users...), []string{"root"}
	for _, g := range v.Groups {
		groups = append(groups, g.Name)
	}
	groups = append(groups, v.Users...) // each user has a group of its own
	users, groups = append(users, runAs...), append(groups, runAs...)
	r.Node().Walk(func(n *tree.Node) {
		if !slices.Contains(EntryKinds(), n.Type) {
			return
		}
		x := read.New(n)
		d.known(x, "owner", "user", users)
		d.known(x, "group", "group", groups)
	})
	for _, g := range r.Blocks("group") {
		for i, u := range g.Strings("users") {
			if !slices.Contains(users, u) {
				d.unknownAccount(read.Item(g.Node().Attr("users").Expr, i), "user", u, users)
			}
		}
	}
}

func (d *Reader) known(r read.Reader, attr, what string, names []string) {
	a := r.Node().Attr(attr)
	if a == nil || a.Bad {
		return
	}
	name := r.String(attr)
	if _, err := strconv.Atoi(name); err == nil || slices.Contains(names, name) {
		return
	}
	d.unknownAccount(a.Expr.Range(), what, name, names)
}

func (d *Reader) unknownAccount(rng hcl.Range, what, name string, names []string) {
	x := diag.Errorf(diag.UnknownAccount, rng, "the manifest has no %s named %q", what, name)
	if near := diag.Suggest(name, names); near != "" {
		x.Labelf("did you mean %q?", near)
	} else {
		x.Labelf("add: %s %q {}", what, name)
	}
	d.add(x)
}
