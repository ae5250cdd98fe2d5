// SPDX-License-Identifier: Apache-2.0

// Package client is Modal's own Go SDK with what it leaves out for programs that keep sandboxes: a server address and
// credentials for each client, why a sandbox ended, what a list knows of each sandbox, errors by kind, and an exec as a
// stream in both directions.
//
// A [Client] is a *modal.Client; everything else is done with the SDK itself.
package client

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/modal-labs/modal-client/go"
	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc"
)

// DefaultServer is Modal's control plane.
const DefaultServer = "https://api.modal.com:443"

// DefaultMaxThrottle is how long a call waits in all when the vendor asks for pauses.
const DefaultMaxThrottle = time.Minute

// Options say who talks to whom. Neither ~/.modal.toml nor the environment's MODAL_… variables are read for any of it.
type Options struct {
	ServerURL            string // empty = DefaultServer
	TokenID, TokenSecret string
	Environment          string        // of Modal; empty = the workspace's default
	ImageBuilder         string        // version of the image builder; empty = the vendor's choice
	MaxThrottle          time.Duration // 0 = DefaultMaxThrottle, negative = never wait
	Log                  *slog.Logger  // nil = nowhere
}

// Client is the SDK's client.
type Client struct{ *modal.Client }

// environment is held while the SDK reads the process's environment: only there it takes a server address.
var environment sync.Mutex

// New makes a client. It does not talk to the vendor yet.
func New(opts Options) (*Client, error) {
	if opts.TokenID == "" || opts.TokenSecret == "" {
		return nil, errors.New("a token id and a token secret are needed")
	}
	if opts.ServerURL == "" {
		opts.ServerURL = DefaultServer
	}
	throttle := opts.MaxThrottle
	switch {
	case throttle == 0:
		throttle = DefaultMaxThrottle
	case throttle < 0:
		throttle = 0
	}
	log := opts.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	environment.Lock()
	defer environment.Unlock()
	restore, err := setenv(map[string]string{
		"MODAL_SERVER_URL": opts.ServerURL, "MODAL_CONFIG_PATH": os.DevNull, "MODAL_PROFILE": "", "MODAL_ENVIRONMENT": opts.Environment,
		"MODAL_IMAGE_BUILDER_VERSION": opts.ImageBuilder, "MODAL_SANDBOX_V2": "1", "MODAL_OAUTH_REFRESH_TOKEN": "", "MODAL_OAUTH_CLIENT_ID": "",
		"MODAL_OAUTH_CLIENT_SECRET": "", "MODAL_OAUTH_JWT_KEY": "", "MODAL_SANDBOX_CHANNEL_IDLE_TIMEOUT": "",
	})
	if err != nil {
		return nil, errors.Join(err, restore())
	}
	c, err := modal.NewClientWithOptions(&modal.ClientParams{
		TokenID: opts.TokenID, TokenSecret: opts.TokenSecret, Environment: opts.Environment, Logger: log, MaxThrottleWait: &throttle,
		GRPCUnaryInterceptors: []grpc.UnaryClientInterceptor{look},
	})
	if err = errors.Join(err, restore()); err != nil {
		return nil, err
	}
	return &Client{c}, nil
}

// setenv sets variables; restore puts back what was there.
func setenv(vars map[string]string) (restore func() error, err error) {
	type old struct {
		value string
		was   bool
	}
	before := map[string]old{}
	for k, v := range vars {
		value, was := os.LookupEnv(k)
		before[k] = old{value, was}
		err = errors.Join(err, os.Setenv(k, v))
	}
	return func() error {
		var err error
		for k, o := range before {
			if o.was {
				err = errors.Join(err, os.Setenv(k, o.value))
			} else {
				err = errors.Join(err, os.Unsetenv(k))
			}
		}
		return err
	}, err
}

type lookKey struct{}

// looker sees the requests and answers of the calls that are made under its context: the SDK does not show everything
// that they hold.
type looker struct {
	before func(request any)
	after  func(answer any)
}

func look(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	l, ok := ctx.Value(lookKey{}).(*looker)
	if ok && l.before != nil {
		l.before(req)
	}
	err := call(ctx, method, req, reply, cc, opts...)
	if ok && err == nil && l.after != nil {
		l.after(reply)
	}
	return err
}

// Extra is what a create can ask for beside modal.SandboxCreateParams.
type Extra struct {
	DiskMiB        uint32 // ephemeral disk; 0 = the vendor's default
	NonPreemptible bool
}

// With makes creates under the context ask for more.
func With(ctx context.Context, x Extra) context.Context {
	edit := func(def *pb.Sandbox) {
		if x.DiskMiB > 0 {
			if def.GetResources() == nil {
				def.SetResources(&pb.Resources{})
			}
			def.GetResources().SetEphemeralDiskMb(x.DiskMiB)
		}
		if x.NonPreemptible {
			if def.GetSchedulerPlacement() == nil {
				def.SetSchedulerPlacement(&pb.SchedulerPlacement{})
			}
			def.GetSchedulerPlacement().SetNonpreemptible(true)
		}
	}
	return context.WithValue(ctx, lookKey{}, &looker{before: func(req any) {
		switch r := req.(type) {
		case *pb.SandboxCreateV2Request:
			edit(r.GetDefinition())
		case *pb.SandboxCreateRequest:
			edit(r.GetDefinition())
		}
	}})
}
