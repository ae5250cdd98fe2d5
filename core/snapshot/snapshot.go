// SPDX-License-Identifier: Apache-2.0

// Package snapshot saves workspaces and brings them back.
//
// A [Repo] is what an object store holds: the chunks of all snapshots, each once, and for each snapshot a record that
// names its index. The catalogue, which is the records and the names that people gave them, is in the store too, so that
// whoever shares the store shares it. A record is written last: a snapshot is whole or it is not there.
//
// A snapshot is read from a driver as one tar stream, or as the few files that changed since the one before; it is
// restored as one. Everything that is read from the store is checked on the way, and a restore that meets something
// damaged gives the driver an archive without an end, which no driver puts in the place of what it has.
//
// The package knows drivers only by two of their methods, see [Source] and [Target], and no configuration.
package snapshot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/berth-dev/berth/core/snapshot/chunks"
	"github.com/berth-dev/berth/core/snapshot/index"
	"github.com/berth-dev/berth/core/snapshot/objects"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/errs"
)

// Source is a workspace to be saved.
type Source interface {
	Export(ctx context.Context, opts driver.ExportOptions, w io.Writer) error
	List(ctx context.Context, path string, opts driver.ListOptions) iter.Seq2[driver.FileInfo, error]
}

// Target is a workspace to be filled.
type Target interface {
	Import(ctx context.Context, opts driver.ImportOptions, r io.Reader) (driver.ImportResult, error)
}

// Record describes a snapshot. It does not change.
type Record struct {
	ID       string            `json:"-"` // from the record's hash
	Format   int               `json:"format"`
	Created  time.Time         `json:"created"`
	Parent   string            `json:"parent,omitempty"` // what was there before, in the same series
	Series   string            `json:"series,omitempty"` // snapshots of one workspace over time
	Session  string            `json:"session,omitempty"`
	Run      string            `json:"run,omitempty"`
	Driver   string            `json:"driver,omitempty"`
	Manifest string            `json:"manifest,omitempty"` // digest of what the workspace was filled with at first
	Labels   map[string]string `json:"labels,omitempty"`
	Exclude  []string          `json:"exclude,omitempty"`
	Native   *Native           `json:"native,omitempty"`

	Entries int64 `json:"entries"`
	Bytes   int64 `json:"bytes"`    // of all files, holes included
	New     int64 `json:"new"`      // bytes that the store did not have
	Stored  int64 `json:"stored"`   // bytes by which the store grew
	Left    int   `json:"left_out"` // how much is not in it, see [Repo.Load]

	Root []chunks.Hash `json:"root"`
}

// Native is a snapshot that the driver took with its own means, beside this one.
type Native struct {
	Driver string `json:"driver"`
	ID     string `json:"id"`
	// Made is a keyed hash of what the sandbox was made with, and Salt its key: only one that is made with the same begins
	// with it.
	Made string `json:"made,omitempty"`
	Salt []byte `json:"salt,omitempty"`
}

// Index is what is in a snapshot.
type Index = index.Index

const (
	recordFormat = 1
	recordPrefix = "snapshots/"
	formatName   = "format"
	formatText   = "berth snapshots 1\n"
	idBytes      = 16
	maxRecord    = 4 << 20
	maxRoot      = 256 << 20
)

// Options are for [Open].
type Options struct {
	Now   func() time.Time // nil = time.Now
	Plain bool             // do not compress
}

// Repo is the snapshots in a store.
type Repo struct {
	objs   objects.Store
	chunks *chunks.Store
	opts   Options
	native func(context.Context, Native) // nil = nobody
}

// Open gives the snapshots in a store. An empty store is one without snapshots; what is no store of snapshots is an error.
func Open(ctx context.Context, objs objects.Store, opts Options) (*Repo, error) {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	r := &Repo{objs: objs, chunks: chunks.Open(objs), opts: opts}
	b, err := objects.Read(ctx, objs, formatName, 0, -1, 1<<10)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return r, nil
	case err != nil:
		return nil, err
	case string(b) != formatText:
		return nil, errs.New(errs.SnapshotUnusable, "%s is not a store of snapshots that this version of berth knows: its format is %q", objs.Where(), b).
			WithHint("use the berth that wrote it, or another directory")
	}
	return r, nil
}

// OnRemove sets who removes the driver's own snapshot beside one that is removed. It must be set before the repo is used.
func (r *Repo) OnRemove(f func(context.Context, Native)) { r.native = f }

// Where says for people where the snapshots are.
func (r *Repo) Where() string { return r.objs.Where() }

// share keeps a sweep away until the returned function is called.
func (r *Repo) share(ctx context.Context) (func(), error) {
	if l, ok := r.objs.(objects.Locker); ok {
		return l.Lock(ctx, false)
	}
	return func() {}, nil
}

// put stores a record and gives it its id.
func (r *Repo) put(ctx context.Context, rec *Record) error {
	rec.Format = recordFormat
	b, err := json.MarshalIndent(rec, "", " ")
	if err != nil {
		return err
	}
	if _, err := r.objs.Put(ctx, formatName, []byte(formatText)); err != nil {
		return err
	}
	rec.ID = recordID(b)
	_, err = r.objs.Put(ctx, recordPrefix+rec.ID, b)
	return err
}

func recordID(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:idBytes])
}

// Get reads a record by its whole id.
func (r *Repo) Get(ctx context.Context, id string) (*Record, error) {
	name := recordPrefix + id
	b, err := objects.Read(ctx, r.objs, name, 0, -1, maxRecord)
	if err != nil {
		return nil, err
	}
	if got := recordID(b); got != id {
		return nil, &chunks.Corrupt{Object: name, Err: fmt.Errorf("its content has the hash %s", got)}
	}
	rec := &Record{ID: id}
	if err := json.Unmarshal(b, rec); err != nil {
		return nil, &chunks.Corrupt{Object: name, Err: err}
	}
	if rec.Format != recordFormat {
		return nil, errs.New(errs.SnapshotUnusable, "snapshot %s has format %d, which this version of berth does not know", Short(id), rec.Format).
			WithHint("use a newer berth")
	}
	return rec, nil
}

// List gives all snapshots, the newest first. Records that are damaged are given as an error beside the others.
func (r *Repo) List(ctx context.Context) (recs []*Record, err error) {
	var bad []error
	for info, err := range r.objs.List(ctx, recordPrefix) {
		if err != nil {
			return nil, err
		}
		rec, err := r.Get(ctx, strings.TrimPrefix(info.Name, recordPrefix))
		switch {
		case errors.Is(err, fs.ErrNotExist): // removed meanwhile
		case err != nil && ctx.Err() != nil:
			return nil, err
		case err != nil:
			bad = append(bad, err)
		default:
			recs = append(recs, rec)
		}
	}
	slices.SortFunc(recs, func(a, b *Record) int {
		if c := b.Created.Compare(a.Created); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return recs, errors.Join(bad...)
}

// Latest is the newest snapshot of a series; nil when there is none.
func (r *Repo) Latest(ctx context.Context, series string) (*Record, error) {
	return r.newest(ctx, func(rec *Record) bool { return rec.Series == series })
}

// LatestOf is the newest snapshot of a session; nil when there is none.
func (r *Repo) LatestOf(ctx context.Context, session string) (*Record, error) {
	return r.newest(ctx, func(rec *Record) bool { return rec.Session == session })
}

func (r *Repo) newest(ctx context.Context, fits func(*Record) bool) (*Record, error) {
	recs, err := r.List(ctx)
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(recs, fits); i >= 0 {
		return recs[i], nil
	}
	return nil, nil
}

// Short is how people see an id.
func Short(id string) string { return id[:min(12, len(id))] }

// Find gives the snapshot that a person names: by a name, or by an id or its beginning.
func (r *Repo) Find(ctx context.Context, what string) (*Record, error) {
	rec, err := r.find(ctx, what)
	if isDamage(err) {
		return nil, (&errs.Error{Code: errs.SnapshotUnusable, Message: fmt.Sprintf("snapshot %q cannot be read", what), Err: err}).WithHint(damageHint)
	}
	return rec, err
}

func (r *Repo) find(ctx context.Context, what string) (*Record, error) {
	names, err := r.Names(ctx)
	if err != nil {
		return nil, err
	}
	if id, ok := names[what]; ok {
		rec, err := r.Get(ctx, id)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, errs.New(errs.SnapshotUnusable, "the name %q belongs to snapshot %s, which is not in %s", what, Short(id), r.Where())
		}
		return rec, err
	}
	if len(what) >= 4 && strings.Trim(what, "0123456789abcdef") == "" {
		var ids []string
		for info, err := range r.objs.List(ctx, recordPrefix+what) {
			if err != nil {
				return nil, err
			}
			ids = append(ids, strings.TrimPrefix(info.Name, recordPrefix))
		}
		switch {
		case len(ids) == 1:
			return r.Get(ctx, ids[0])
		case len(ids) > 1:
			return nil, errs.New(errs.InvalidArgument, "%d snapshots have an id that begins with %q", len(ids), what).WithHint("give more of it")
		}
	}
	return nil, errs.New(errs.SnapshotUnusable, "there is no snapshot %q in %s", what, r.Where()).
		WithHint("berth snapshot list shows those that there are; an id may be cut short to 4 characters")
}

// Load reads and checks the index of a snapshot.
func (r *Repo) Load(ctx context.Context, rec *Record) (*Index, error) {
	x, err := r.load(ctx, rec)
	if err != nil {
		return nil, fmt.Errorf("snapshot %s: %w", Short(rec.ID), err)
	}
	return x, nil
}

func (r *Repo) load(ctx context.Context, rec *Record) (*Index, error) {
	if err := r.chunks.Load(ctx); err != nil {
		return nil, err
	}
	root, err := r.root(ctx, rec)
	if err != nil {
		return nil, err
	}
	x := &Index{Left: root.Left, Entries: make([]index.Entry, 0, min(root.Entries, 1<<20))}
	var d index.Decoder
	var bytes int64
	for n, p := range root.Pages {
		b, err := r.chunks.ReadAll(ctx, p.Chunks, maxRoot)
		if err != nil {
			return nil, fmt.Errorf("page %d of the index: %w", n+1, err)
		}
		before := len(x.Entries)
		if err := d.Page(b, func(e *index.Entry) error {
			if len(x.Entries)-before >= p.Entries {
				return errors.New("the page has more entries than the index says")
			}
			bytes += e.Size
			x.Entries = append(x.Entries, *e)
			return nil
		}); err != nil {
			return nil, fmt.Errorf("page %d of the index: %w", n+1, err)
		}
	}
	if int64(len(x.Entries)) != rec.Entries || bytes != rec.Bytes || bytes != root.Bytes || len(root.Left) != rec.Left {
		return nil, fmt.Errorf("the index has %d entries with %d bytes, and the record says %d with %d", len(x.Entries), bytes, rec.Entries, rec.Bytes)
	}
	return x, nil
}

func (r *Repo) root(ctx context.Context, rec *Record) (*index.Root, error) {
	b, err := r.chunks.ReadAll(ctx, rec.Root, maxRoot)
	if err != nil {
		return nil, fmt.Errorf("its index: %w", err)
	}
	return index.ParseRoot(b)
}
