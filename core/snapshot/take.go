// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/berth-dev/berth/core/snapshot/chunks"
	"github.com/berth-dev/berth/core/snapshot/index"
	"github.com/berth-dev/berth/core/snapshot/tarball"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// TakeOptions are for [Repo.Take].
type TakeOptions struct {
	Path    string   // of the workspace; empty = the source's top
	Exclude []string // patterns in the manner of gitignore
	// Versions says that the source's listings have versions which an archive's [driver.PAXVersion] can be held against. Then
	// only what changed since Parent is read.
	Versions bool

	Series, Session, Run, Driver string
	Manifest                     string
	Labels                       map[string]string
	Native                       *Native
}

// Take saves a workspace. It is read as it is at that time; a file that is written meanwhile is one of its states.
func (r *Repo) Take(ctx context.Context, src Source, o TakeOptions) (*Record, *Index, error) {
	unlock, err := r.share(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer unlock()
	rec, x, err := r.take(ctx, src, o)
	if err != nil {
		return nil, nil, persist(err)
	}
	return rec, x, nil
}

func persist(err error) error {
	if errors.Is(err, errs.SnapshotPersist) {
		return err
	}
	return &errs.Error{Code: errs.SnapshotPersist, Message: "the workspace could not be saved", Err: err}
}

func (r *Repo) take(ctx context.Context, src Source, o TakeOptions) (*Record, *Index, error) {
	parent, err := r.parent(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	if err := r.chunks.Load(ctx); err != nil {
		return nil, nil, err
	}
	w := r.chunks.NewWriter(ctx, chunks.WriterOptions{Plain: r.opts.Plain})
	x, err := r.scan(ctx, w, src, o, parent)
	if err != nil {
		w.Abort()
		return nil, nil, err
	}
	rec := &Record{
		Created: r.opts.Now().UTC(), Series: o.Series, Session: o.Session, Run: o.Run, Driver: o.Driver, Manifest: o.Manifest,
		Labels: o.Labels, Exclude: o.Exclude, Native: o.Native,
	}
	if parent != nil {
		rec.Parent = parent.ID
	}
	return rec, x, r.finish(ctx, w, x, rec)
}

// parent is the snapshot before this one: the last of the session, for most of it holds, else of the series.
func (r *Repo) parent(ctx context.Context, o TakeOptions) (*Record, error) {
	recs, err := r.List(ctx)
	if err != nil && len(recs) == 0 {
		return nil, err
	}
	// A damaged record of another snapshot does not keep this one from being taken.
	same := func(rec *Record) bool { return o.Session != "" && rec.Session == o.Session }
	i := slices.IndexFunc(recs, same)
	if i < 0 {
		i = slices.IndexFunc(recs, func(rec *Record) bool { return rec.Series == o.Series })
	}
	if i < 0 {
		return nil, nil
	}
	return recs[i], nil
}

// scan makes the index of a workspace, and stores its content on the way.
func (r *Repo) scan(ctx context.Context, w *chunks.Writer, src Source, o TakeOptions, parent *Record) (*Index, error) {
	if o.Path == "" {
		o.Path = "."
	}
	if o.Versions && parent != nil && parent.Session == o.Session && o.Session != "" {
		x, err := r.changed(ctx, w, src, o, parent)
		if x != nil || err != nil {
			return x, err
		}
	}
	g := tarball.NewReader(w, driver.TreeLimits{})
	if err := export(ctx, src, driver.ExportOptions{Path: o.Path, Exclude: o.Exclude}, g); err != nil {
		return nil, err
	}
	if err := w.Barrier(); err != nil {
		return nil, err
	}
	return g.Index(), g.Index().Order()
}

// export streams an archive into g.
func export(ctx context.Context, src Source, opts driver.ExportOptions, g *tarball.Reader) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	pr, pw := io.Pipe()
	sent := make(chan error, 1)
	go func() {
		err := src.Export(ctx, opts, pw)
		sent <- err
		_ = pw.CloseWithError(err) // nil is the end of the archive
	}()
	err := g.Read(ctx, pr)
	if err != nil {
		cancel(err)
	}
	_ = pr.CloseWithError(errors.Join(errStopped, err)) // lets the export end when nobody reads on
	if serr := <-sent; serr != nil && !errors.Is(serr, errStopped) {
		if err == nil || errors.Is(err, serr) || errors.Is(serr, context.Canceled) && ctx.Err() == nil {
			return serr
		}
	}
	return err
}

var errStopped = errors.New("the archive is not read any more")

// finish writes the index and, last of all, the record.
func (r *Repo) finish(ctx context.Context, w *chunks.Writer, x *Index, rec *Record) error {
	err := r.write(ctx, w, x, rec)
	if err != nil {
		w.Abort()
		return err
	}
	stats, err := w.Close()
	if err != nil {
		return err
	}
	rec.New, rec.Stored = stats.NewBytes, stats.Stored
	return r.put(ctx, rec)
}

func (r *Repo) write(ctx context.Context, w *chunks.Writer, x *Index, rec *Record) error {
	root := &index.Root{Left: x.Left, Entries: int64(len(x.Entries))}
	count := 0
	enc := index.Encoder{Page: func(b []byte) error {
		hashes, err := w.WriteAll(b)
		root.Pages = append(root.Pages, index.Page{Entries: count, Chunks: hashes})
		count = 0
		return err
	}}
	for i := range x.Entries {
		if i%1024 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		count++
		root.Bytes += x.Entries[i].Size
		if err := enc.Add(&x.Entries[i]); err != nil {
			return &errs.Error{Code: errs.ArchiveInvalid, Message: "the workspace cannot be told apart", Err: err}
		}
	}
	if err := enc.Close(); err != nil {
		return err
	}
	if err := w.Barrier(); err != nil {
		return err
	}
	hashes, err := w.WriteAll(root.Append(nil))
	if err != nil {
		return err
	}
	if err := w.Barrier(); err != nil {
		return err
	}
	rec.Root, rec.Entries, rec.Bytes, rec.Left = hashes, root.Entries, root.Bytes, len(x.Left)
	return nil
}

// maxPatterns bounds the work of finding the files that changed: each name in a directory that holds one is held against
// each pattern.
const maxPatterns = 256

// changed makes the index from the parent's and what a listing shows to be different. It gives nil when it is better to
// read everything.
func (r *Repo) changed(ctx context.Context, w *chunks.Writer, src Source, o TakeOptions, parent *Record) (*Index, error) {
	old, err := r.Load(ctx, parent)
	if err != nil {
		var c *chunks.Corrupt
		var m *chunks.Missing
		if errors.As(err, &c) || errors.As(err, &m) {
			return nil, nil // what is damaged is written again from the workspace
		}
		return nil, err
	}
	d := delta{old: make(map[string]*index.Entry, len(old.Entries)), wanted: map[string]bool{}, groups: map[string][]string{}}
	for i := range old.Entries {
		d.old[old.Entries[i].Path] = &old.Entries[i]
	}
	for fi, err := range src.List(ctx, o.Path, driver.ListOptions{Recursive: true, Exclude: o.Exclude}) {
		if err != nil {
			return nil, err
		}
		if !d.entry(&fi) {
			return nil, nil
		}
	}
	for _, l := range old.Left { // what could not be read is tried again, and told again
		if d.dirs[l.Path] {
			d.wanted[l.Path] = true
		}
	}
	kept := map[string]bool{}
	for i := range d.x.Entries {
		kept[d.x.Entries[i].Path] = true
	}
	for i := range d.x.Entries {
		if e := &d.x.Entries[i]; e.Kind == index.HardLink && !kept[e.Target] {
			d.again = true // other patterns leave out what held the file
		}
	}
	if d.again {
		for _, paths := range d.groups {
			for _, p := range paths {
				d.wanted[p] = true
			}
		}
	}
	patterns := d.patterns()
	if len(patterns) > maxPatterns {
		return nil, nil
	}
	g := tarball.NewReader(w, driver.TreeLimits{})
	if err := export(ctx, src, driver.ExportOptions{Path: o.Path, Exclude: patterns}, g); err != nil {
		return nil, err
	}
	if err := w.Barrier(); err != nil {
		return nil, err
	}
	x := g.Index()
	// What the archive says is newer than what the listing said.
	for _, e := range d.x.Entries {
		if !g.Holds(e.Path) && !d.wanted[e.Path] {
			x.Entries = append(x.Entries, e)
		}
	}
	x.Left = append(x.Left, d.x.Left...)
	return x, x.Order()
}

// delta is what a listing shows against an older index.
type delta struct {
	old    map[string]*index.Entry
	x      Index               // what is known without reading
	wanted map[string]bool     // what has to be read
	dirs   map[string]bool     // that were listed
	groups map[string][]string // names of files with several, by version
	again  bool                // one of them has to be read, and so all of them: what belongs together shows in one archive
}

// entry takes a line of the listing; false when it cannot be worked with.
func (d *delta) entry(fi *driver.FileInfo) bool {
	path := strings.TrimPrefix(fi.Path, "./")
	if fi.Version == "" || index.CheckPath(path) != nil {
		return false
	}
	e := index.Entry{
		Path: path, Mode: fi.Mode & 0o7777, UID: fi.UID, GID: fi.GID, User: named(fi.User, fi.UID), Group: named(fi.Group, fi.GID), ModTime: fi.ModTime,
	}
	old := d.old[path]
	if fi.Type != driver.TypeDirectory && fi.Nlink > 1 {
		d.groups[fi.Version] = append(d.groups[fi.Version], path)
	}
	switch fi.Type {
	case driver.TypeDirectory:
		if d.dirs == nil {
			d.dirs = map[string]bool{}
		}
		d.dirs[path] = true
		e.Kind = index.Dir
		d.x.Entries = append(d.x.Entries, e)
	case driver.TypeSymlink:
		if fi.Nlink > 1 {
			d.wanted[path], d.again = true, true
			return true
		}
		if e.Kind, e.Target = index.Symlink, fi.Target; e.Target == "" {
			d.wanted[path] = true
			return true
		}
		d.x.Entries = append(d.x.Entries, e)
	case driver.TypeRegular:
		first := old
		if old != nil && old.Kind == index.HardLink {
			first = d.old[old.Target]
		}
		if first == nil || first.Kind != index.File || first.Seen == 0 || first.Seen != tarball.Seen(fi.Version) {
			d.wanted[path] = true
			d.again = d.again || fi.Nlink > 1
			return true
		}
		d.x.Entries = append(d.x.Entries, *old)
	case driver.TypeFIFO, driver.TypeSocket, driver.TypeDevice, driver.TypeUnknown:
		kind := map[driver.FileType]string{driver.TypeFIFO: "FIFO", driver.TypeSocket: "socket", driver.TypeDevice: "device"}[fi.Type]
		if kind == "" {
			return false
		}
		d.x.Left = append(d.x.Left, index.Left{Path: path, Reason: kind + ": only regular files, directories and links are saved"})
	}
	return true
}

// named drops a name that is only the number.
func named(name string, id uint32) string {
	if name == fmt.Sprint(id) {
		return ""
	}
	return name
}

// patterns leave out everything but what is wanted and the directories above it.
func (d *delta) patterns() []string {
	out := []string{"*"}
	have := map[string]bool{}
	for p := range d.wanted {
		for i := range p {
			if p[i] == '/' && !have[p[:i]] {
				have[p[:i]] = true
				out = append(out, "!"+Pattern(p[:i])+"/")
			}
		}
		if !have[p] {
			have[p] = true
			out = append(out, "!"+Pattern(p))
		}
		if len(out) > maxPatterns {
			break
		}
	}
	return out
}

// Pattern leaves out the path and what is below it.
func Pattern(path string) string { return "/" + escape(path) }

// escape makes a pattern that matches only the path; a byte that no request can carry becomes one that matches any.
func escape(path string) string {
	var b strings.Builder
	for i := 0; i < len(path); {
		r, n := utf8.DecodeRuneInString(path[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			b.WriteByte('?')
		case strings.ContainsRune(`\*?[]!#`, r):
			b.WriteByte('\\')
			b.WriteRune(r)
		default:
			b.WriteString(path[i : i+n])
		}
		i += n
	}
	return b.String()
}
