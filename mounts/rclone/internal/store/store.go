// SPDX-License-Identifier: Apache-2.0

// Package store keeps immutable, named objects on any storage that rclone reaches, encrypted by its crypt where a key is
// given. An object is complete under its name or is not there: where a storage shows what is being written, it is written
// beside its name first.
package store

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/rclone/rclone/fs"
	"github.com/rclone/rclone/fs/cache"
	"github.com/rclone/rclone/fs/config/configmap"
	"github.com/rclone/rclone/fs/config/obscure"
	"github.com/rclone/rclone/fs/object"
	"github.com/rclone/rclone/fs/walk"

	"github.com/berth-dev/berth/mounts/rclone/internal/remote"
	"github.com/berth-dev/berth/sdk/errs"
	pb "github.com/berth-dev/berth/sdk/proto/berth/storage/v1"
	"github.com/berth-dev/berth/sdk/wire"
)

// Server is the service.
type Server struct {
	pb.UnimplementedObjectsServer

	mu     sync.Mutex
	stores map[string]*store // guarded by mu
}

// store is one storage.
type store struct {
	r  *remote.Remote
	fs fs.Fs // of r, or what encrypts for it
}

const (
	// piece is how much of an object is sent in one message, and page how many names.
	piece = 1 << 20
	page  = 1000
	// partial marks what is being written. Names of objects have no such character.
	partial = "~"
)

// OpenStore opens a storage and looks whether it answers.
func (s *Server) OpenStore(ctx context.Context, req *pb.OpenStoreRequest) (*pb.OpenStoreResponse, error) {
	r, f, err := open(ctx, req)
	if err != nil {
		return nil, wire.StatusError(err, nil)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stores == nil {
		s.stores = map[string]*store{}
	}
	s.stores[req.GetId()] = &store{r, f}
	return &pb.OpenStoreResponse{Where: req.GetRemote().GetKind() + ":" + r.Fs.Root()}, nil
}

func open(ctx context.Context, req *pb.OpenStoreRequest) (*remote.Remote, fs.Fs, error) {
	if err := remote.Init(""); err != nil {
		return nil, nil, errs.Wrap(errs.Internal, "set up rclone", err)
	}
	r, err := remote.Open(ctx, req.GetRemote(), false)
	if err != nil {
		return nil, nil, err
	}
	if err := r.Probe(ctx); err != nil && !strings.Contains(err.Error(), fs.ErrorDirNotFound.Error()) {
		return nil, nil, err // a directory that is not there yet is made
	}
	if req.GetKey() == "" {
		return r, r.Fs, nil
	}
	password, err := obscure.Obscure(req.GetKey())
	if err != nil {
		return nil, nil, errs.Wrap(errs.Internal, "keep the key", err)
	}
	info, err := fs.Find("crypt")
	if err != nil {
		return nil, nil, errs.Wrap(errs.Internal, "encrypt", err)
	}
	at := fs.ConfigString(r.Fs)
	cache.Put(at, r.Fs)
	m := configmap.New()
	m.AddGetter(configmap.Simple{"remote": at, "password": password}, configmap.PriorityNormal)
	m.AddGetter(remote.Defaults(info), configmap.PriorityDefault)
	f, err := info.NewFs(r.Ctx, req.GetRemote().GetName()+"-crypt", "", m)
	return r, f, r.Error("encrypt", err)
}

// with finds a store, and calls f with a context that has its settings.
func (s *Server) with(ctx context.Context, id, op string, f func(context.Context, fs.Fs) error) error {
	s.mu.Lock()
	st := s.stores[id]
	s.mu.Unlock()
	if st == nil {
		return wire.StatusError(errs.New(errs.Internal, "there is no store %q", id), nil)
	}
	err := f(fs.CopyConfig(ctx, st.r.Ctx), st.fs)
	if errors.Is(err, fs.ErrorObjectNotFound) || errors.Is(err, fs.ErrorDirNotFound) {
		return wire.StatusError(errs.New(errs.FileNotFound, "there is no such object"), nil)
	}
	return wire.StatusError(st.r.Error(op, err), nil)
}

// Put stores an object, unless there is one of that name.
func (s *Server) Put(ctx context.Context, req *pb.PutRequest) (*pb.PutResponse, error) {
	resp := &pb.PutResponse{}
	err := s.with(ctx, req.GetStore(), "store "+req.GetName(), func(ctx context.Context, f fs.Fs) error {
		_, err := f.NewObject(ctx, req.GetName())
		if err == nil {
			return nil
		}
		if !errors.Is(err, fs.ErrorObjectNotFound) && !errors.Is(err, fs.ErrorDirNotFound) {
			return err
		}
		resp.Created = true
		move := f.Features().Move
		if !f.Features().PartialUploads || move == nil {
			_, err = put(ctx, f, req.GetName(), req.GetData())
			return err
		}
		o, err := put(ctx, f, req.GetName()+partial+strings.ToLower(rand.Text()[:8]), req.GetData())
		if err != nil {
			return err
		}
		if _, err = move(ctx, o, req.GetName()); err != nil {
			return errors.Join(err, o.Remove(ctx))
		}
		return nil
	})
	return resp, err
}

func put(ctx context.Context, f fs.Fs, name string, data []byte) (fs.Object, error) {
	return f.Put(ctx, bytes.NewReader(data), object.NewStaticObjectInfo(name, time.Now(), int64(len(data)), true, nil, f))
}

// Get sends a part of an object.
func (s *Server) Get(req *pb.GetRequest, to pb.Objects_GetServer) error {
	return s.with(to.Context(), req.GetStore(), "read "+req.GetName(), func(ctx context.Context, f fs.Fs) (err error) {
		o, err := f.NewObject(ctx, req.GetName())
		if err != nil {
			return err
		}
		from, to2 := req.GetOffset(), o.Size()
		if n := req.GetLength(); n >= 0 && from+n < to2 {
			to2 = from + n
		}
		if from >= to2 {
			return nil
		}
		r, err := o.Open(ctx, &fs.RangeOption{Start: from, End: to2 - 1})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, r.Close()) }()
		b := make([]byte, piece)
		for left := to2 - from; left > 0; {
			n, err := io.ReadFull(r, b[:min(left, piece)])
			left -= int64(n)
			if err != nil {
				return err
			}
			if err := to.Send(&pb.GetResponse{Data: b[:n]}); err != nil {
				return err
			}
		}
		return nil
	})
}

// List sends the names that begin with a prefix.
func (s *Server) List(req *pb.ListRequest, to pb.Objects_ListServer) error {
	return s.with(to.Context(), req.GetStore(), "list", func(ctx context.Context, f fs.Fs) error {
		dir := ""
		if i := strings.LastIndexByte(req.GetPrefix(), '/'); i >= 0 {
			dir = path.Clean(req.GetPrefix()[:i])
		}
		resp := &pb.ListResponse{}
		var mu sync.Mutex // a listing comes in from several sides
		err := walk.ListR(ctx, f, dir, true, -1, walk.ListObjects, func(all fs.DirEntries) error {
			mu.Lock()
			defer mu.Unlock()
			for _, e := range all {
				if !strings.HasPrefix(e.Remote(), req.GetPrefix()) || strings.Contains(e.Remote(), partial) {
					continue
				}
				resp.Objects = append(resp.Objects, &pb.Object{Name: e.Remote(), Size: e.Size()})
				if len(resp.Objects) == page {
					if err := to.Send(resp); err != nil {
						return err
					}
					resp = &pb.ListResponse{}
				}
			}
			return nil
		})
		if err != nil && !errors.Is(err, fs.ErrorDirNotFound) {
			return err
		}
		return to.Send(resp)
	})
}

// Delete removes an object. One that is not there is no error.
func (s *Server) Delete(ctx context.Context, req *pb.DeleteRequest) (*pb.DeleteResponse, error) {
	return &pb.DeleteResponse{}, s.with(ctx, req.GetStore(), "remove "+req.GetName(), func(ctx context.Context, f fs.Fs) error {
		o, err := f.NewObject(ctx, req.GetName())
		if errors.Is(err, fs.ErrorObjectNotFound) || errors.Is(err, fs.ErrorDirNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		return o.Remove(ctx)
	})
}
