// SPDX-License-Identifier: Apache-2.0

//go:build linux

package fake

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"path"
	"path/filepath"
	"sync"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"github.com/oklog/ulid/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

const (
	maxMessage = 100 << 20
	// tokenLife is how long tokens of the control plane and of the router live.
	tokenLife = 20 * time.Minute
)

// Options say what the vendor knows. TokenID and TokenSecret are those that it takes.
type Options struct {
	TokenID, TokenSecret string
	// Images are the directories that registry images consist of, by tag. No other image can be built.
	Images map[string]string
	// FSTools is the program that sandboxes find as the vendor's file tool, see package fstools.
	FSTools string
	// Listen is where; empty = a free port of 127.0.0.1.
	Listen string
}

// Server is a running fake.
type Server struct {
	opts Options
	dir  string
	grpc *grpc.Server
	at   net.Listener

	faults faults
	record record
	end    context.CancelFunc
	ctx    context.Context //nolint:containedctx // ends with the server

	mu        sync.Mutex
	secret    string               // guarded by mu; the token secret that is taken now
	apps      map[string]string    // guarded by mu; ids by name
	images    map[string]*image    // guarded by mu; by id
	tags      map[string]string    // guarded by mu; image ids by published name
	secrets   map[string]*secret   // guarded by mu; by id
	volumes   map[string]string    // guarded by mu; ids by name
	buckets   map[string]bool      // guarded by mu
	sandboxes map[string]*sandbox  // guarded by mu; by id
	tasks     map[string]*sandbox  // guarded by mu; by task id
	answers   map[string]any       // guarded by mu; of creates, by idempotency key
	jwts      map[string]time.Time // guarded by mu; when they end, by token
}

// Start starts a fake.
func Start(opts Options) (*Server, error) {
	dir, err := os.MkdirTemp("", "berth-fake-modal-")
	if err != nil {
		return nil, err
	}
	if opts.Listen == "" {
		opts.Listen = "127.0.0.1:0"
	}
	at, err := net.Listen("tcp", opts.Listen) //nolint:noctx // at once
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	s := &Server{
		opts: opts, dir: dir, at: at, secret: opts.TokenSecret,
		apps: map[string]string{}, images: map[string]*image{}, tags: map[string]string{}, secrets: map[string]*secret{},
		volumes: map[string]string{}, buckets: map[string]bool{}, sandboxes: map[string]*sandbox{}, tasks: map[string]*sandbox{},
		answers: map[string]any{}, jwts: map[string]time.Time{},
	}
	s.ctx, s.end = context.WithCancel(context.Background())
	s.grpc = grpc.NewServer(
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage),
		grpc.InitialWindowSize(1<<20), grpc.InitialConnWindowSize(1<<20),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
		grpc.UnaryInterceptor(s.unary), grpc.StreamInterceptor(s.stream),
	)
	pb.RegisterModalClientServer(s.grpc, &controlPlane{Server: s})
	pb.RegisterTaskCommandRouterServer(s.grpc, &router{Server: s})
	go func() { _ = s.grpc.Serve(at) }() // ends with Close
	return s, nil
}

// URL is what MODAL_SERVER_URL has to be.
func (s *Server) URL() string { return "http://" + s.at.Addr().String() }

// Close ends every sandbox and removes everything.
func (s *Server) Close() error {
	s.end()
	s.grpc.Stop()
	s.mu.Lock()
	all := s.allLocked()
	s.mu.Unlock()
	for _, b := range all {
		b.finish(pb.GenericResult_GENERIC_STATUS_TERMINATED, "")
		b.cleanUp()
	}
	return os.RemoveAll(s.dir)
}

func (s *Server) allLocked() []*sandbox {
	var all []*sandbox
	for _, b := range s.sandboxes {
		all = append(all, b)
	}
	return all
}

// RotateSecret makes the vendor take another token secret from now on: tokens that were given out are void too.
func (s *Server) RotateSecret(secret string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.secret = secret
	clear(s.jwts)
}

// ExpireTokens makes the tokens void that were given out, as time does.
func (s *Server) ExpireTokens() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.jwts)
}

// token makes a token that clients can read the end of.
func (s *Server) token() string {
	ends := time.Now().Add(tokenLife)
	enc := base64.RawURLEncoding.EncodeToString
	t := enc([]byte(`{"alg":"none"}`)) + "." + enc(fmt.Appendf(nil, `{"exp":%d,"jti":%q}`, ends.Unix(), ulid.Make())) + "." + enc([]byte("signature"))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jwts[t] = ends
	return t
}

func (s *Server) valid(token string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Before(s.jwts[token])
}

// routerService is the service whose calls need a router's token.
const routerService = "/modal.task_command_router.TaskCommandRouter/"

// admit checks who calls.
func (s *Server) admit(ctx context.Context, method string, unary bool) error {
	md, _ := metadata.FromIncomingContext(ctx)
	first := func(k string) string {
		if v := md.Get(k); len(v) > 0 {
			return v[0]
		}
		return ""
	}
	dir, name := path.Split(method)
	if dir == routerService {
		auth := first("authorization")
		if len(auth) < 7 || auth[:7] != "Bearer " || !s.valid(auth[7:]) {
			return status.Error(codes.Unauthenticated, "token is invalid or has expired")
		}
		return nil
	}
	s.mu.Lock()
	good := first("x-modal-token-id") == s.opts.TokenID && first("x-modal-token-secret") == s.secret
	s.mu.Unlock()
	if !good {
		return status.Error(codes.Unauthenticated, "Token ID is malformed or the token was revoked")
	}
	if unary && name != "AuthTokenGet" && !s.valid(first("x-modal-auth-token")) {
		return status.Error(codes.Unauthenticated, "auth token is missing or has expired")
	}
	return nil
}

func (s *Server) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	name := path.Base(info.FullMethod)
	s.record.add(ctx, name, req)
	if err := s.admit(ctx, info.FullMethod, true); err != nil {
		return nil, err
	}
	f := s.faults.take(name)
	if f == nil {
		return handle(ctx, req)
	}
	if err := f.wait(ctx); err != nil {
		return nil, err
	}
	if f.After {
		if _, err := handle(context.WithoutCancel(ctx), req); err != nil {
			return nil, err
		}
	}
	if f.Do != nil {
		f.Do()
	}
	if f.Code == codes.OK {
		return handle(ctx, req)
	}
	return nil, f.err()
}

func (s *Server) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	name := path.Base(info.FullMethod)
	s.record.add(ss.Context(), name, nil)
	if err := s.admit(ss.Context(), info.FullMethod, false); err != nil {
		return err
	}
	f := s.faults.take(name)
	if f == nil {
		return handle(srv, ss)
	}
	if err := f.wait(ss.Context()); err != nil {
		return err
	}
	if f.Do != nil {
		f.Do()
	}
	if f.Messages > 0 {
		err := handle(srv, &cut{ServerStream: ss, left: f.Messages, err: f.err()})
		if err == nil {
			err = f.err()
		}
		return err
	}
	if f.Code == codes.OK {
		return handle(srv, ss)
	}
	return f.err()
}

func (s *Server) path(parts ...string) string {
	return filepath.Join(append([]string{s.dir}, parts...)...)
}
