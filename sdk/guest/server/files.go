// SPDX-License-Identifier: Apache-2.0

//go:build linux

package server

import (
	"os"

	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/guest/api"
	"github.com/berth-dev/berth/sdk/guest/link"
)

// entryBatch is how many bytes of entries are gathered for one message.
const entryBatch = 32 << 10

// entries sends entries, many in one message.
type entries struct {
	st  *link.Stream
	buf []byte
}

func (e *entries) add(r driver.StatResult) error {
	e.buf = api.AppendEntry(e.buf, r)
	if len(e.buf) < entryBatch {
		return nil
	}
	return e.flush()
}

func (e *entries) flush() error {
	for len(e.buf) > 0 {
		// An entry is no longer than two paths: a batch is well below a chunk.
		n := min(len(e.buf), link.Chunk)
		if err := e.st.Send(e.st.Context(), api.SubEntries, e.buf[:n]); err != nil {
			return err
		}
		e.buf = e.buf[n:]
	}
	e.buf = nil
	return nil
}

func (s *server) stat(st *link.Stream, args *api.Stat) (any, error) {
	rs, err := s.cfg.Files.Stat(st.Context(), api.Strings(args.Paths), args.StatOptions)
	if err != nil {
		return nil, err
	}
	e := entries{st: st}
	for _, r := range rs {
		if err := e.add(r); err != nil {
			return nil, err
		}
	}
	return nil, e.flush()
}

func (s *server) list(st *link.Stream, args *api.List) (any, error) {
	args.ListOptions.Exclude = api.Strings(args.Exclude)
	e := entries{st: st}
	for info, err := range s.cfg.Files.List(st.Context(), string(args.Path), args.ListOptions) {
		if err := e.add(driver.StatResult{Info: info, Err: err}); err != nil {
			return nil, err
		}
	}
	return nil, e.flush()
}

func (s *server) open(st *link.Stream, args *api.Open) (any, error) {
	info, r, err := s.cfg.Files.Open(st.Context(), string(args.Path), args.ReadOptions)
	if err != nil {
		return nil, err
	}
	entry := api.AppendEntry(nil, driver.StatResult{Info: info})
	if file, ok := r.(*os.File); ok && args.Pass && info.Size >= args.Offset+api.PassSize && st.PassesFiles() {
		_, err := st.SendFile(st.Context(), api.SubFile, entry, file)
		return nil, err
	}
	defer r.Close()
	if err := st.SendControl(st.Context(), api.SubReady, entry); err != nil {
		return nil, err
	}
	w := &writer{st: st, sub: api.SubContent}
	_, err = w.ReadFrom(r)
	return nil, err
}

func (s *server) write(st *link.Stream, args *api.Write) (any, error) {
	r := &placer{reader: reader{st: st}}
	res, err := s.cfg.Files.Write(st.Context(), string(args.Path), args.WriteOptions, r)
	if err != nil {
		return nil, err
	}
	out := api.WriteResult{Entry: api.AppendEntry(nil, driver.StatResult{Info: res.Info})}
	if !r.placed {
		out.SHA256 = res.SHA256[:]
	}
	return out, nil
}

func (s *server) mkdir(st *link.Stream, args *api.Mkdir) (any, error) {
	return nil, s.cfg.Files.Mkdir(st.Context(), string(args.Path), args.Mode, args.Parents, args.User)
}

func (s *server) remove(st *link.Stream, args *api.Remove) (any, error) {
	return nil, s.cfg.Files.Remove(st.Context(), string(args.Path), args.Recursive, args.User)
}

func (s *server) move(st *link.Stream, args *api.Move) (any, error) {
	return nil, s.cfg.Files.Move(st.Context(), string(args.From), string(args.To), args.Replace, args.User)
}

func (s *server) setMeta(st *link.Stream, args *api.SetMeta) (any, error) {
	return nil, s.cfg.Files.SetMeta(st.Context(), string(args.Path), args.MetaChange)
}

func (s *server) export(st *link.Stream, args *api.Export) (any, error) {
	args.ExportOptions.Path, args.ExportOptions.Exclude = string(args.Path), api.Strings(args.Exclude)
	return nil, s.cfg.Files.Export(st.Context(), args.ExportOptions, &writer{st: st, sub: api.SubContent})
}

// maxSkipped bounds the members that an import's answer names.
const maxSkipped = 500

func (s *server) importTree(st *link.Stream, args *api.Import) (any, error) {
	args.ImportOptions.Path = string(args.Path)
	res, err := s.cfg.Files.Import(st.Context(), args.ImportOptions, &reader{st: st})
	if err != nil {
		return nil, err
	}
	out := api.ImportResult{Members: res.Members, Bytes: res.Bytes}
	for i, k := range res.Skipped {
		if i == maxSkipped {
			out.More = len(res.Skipped) - i
			break
		}
		out.Skipped = append(out.Skipped, api.Skipped{Path: api.Text(k.Path), Reason: api.Text(k.Reason)})
	}
	return out, nil
}
