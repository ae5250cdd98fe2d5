// SPDX-License-Identifier: Apache-2.0

// Package mcp offers the tools of servers of the Model Context Protocol to an agent: programs that speak it over their
// standard input and output, in the sandbox or on the host, and servers that are reached over HTTP.
//
// What a server says is the text of somebody else: names are made fit, outputs are bounded, and secrets that the project
// gives to a server are taken out of what comes back. A server that goes away is reached again for the next call. A call
// is only repeated when the project says so, since nobody can know whether it was made.
package mcp

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berth-dev/berth/core/spec"
	"github.com/berth-dev/berth/core/tool"
	"github.com/berth-dev/berth/sdk/driver"
)

// Runner runs programs: a sandbox, or the host.
type Runner interface {
	Run(ctx context.Context, cmd *driver.Command, streams driver.Streams) (driver.Exit, error)
}

// Config says which servers are wanted.
type Config struct {
	Servers []*spec.MCPServer
	Sandbox Runner // nil = there is none
	Host    Runner // for run_in "host"
	Dir     string // in the sandbox, where relative directories start; empty = the workspace root
	User    string // in the sandbox; empty = its default
	// Taken are names of tools that the agent has from elsewhere.
	Taken []string
	// Warn tells a person what is amiss and does not end the run; nil = nobody looks.
	Warn func(message, hint string)
	// Cache keeps lists of tools between connections of one process; nil = nothing is kept.
	Cache *Cache
}

// Cache keeps the tool lists of servers that say cache_tools. The zero value is ready; it may be used by several
// goroutines.
type Cache struct {
	mu    sync.Mutex
	lists map[*spec.MCPServer][]remoteTool // guarded by mu
}

func (c *Cache) get(s *spec.MCPServer) []remoteTool {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lists[s]
}

func (c *Cache) put(s *spec.MCPServer, list []remoteTool) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lists == nil {
		c.lists = map[*spec.MCPServer][]remoteTool{}
	}
	c.lists[s] = list
}

// Servers are servers that were reached.
type Servers struct {
	servers []*server
	tools   []tool.Tool
}

// Connect reaches all servers at once. When one that is required cannot be reached, none is left open.
func Connect(ctx context.Context, cfg Config) (*Servers, error) {
	warn, mu := cfg.Warn, &sync.Mutex{}
	cfg.Warn = func(message, hint string) {
		mu.Lock()
		defer mu.Unlock()
		if warn != nil {
			warn(message, hint)
		}
	}
	all := make([]*server, len(cfg.Servers))
	lists := make([][]remoteTool, len(cfg.Servers))
	g, gctx := errgroup.WithContext(ctx)
	for i, sp := range cfg.Servers {
		s := newServer(sp, &cfg)
		all[i] = s
		g.Go(func() error {
			list, err := s.list(gctx)
			switch {
			case err == nil:
				lists[i] = list
			case s.opts.required || ctx.Err() != nil:
				return err
			default:
				cfg.Warn(err.Error(), "the run goes on without this server; required = true makes it an error")
			}
			return nil
		})
	}
	out := &Servers{servers: all}
	if err := g.Wait(); err != nil {
		return nil, errors.Join(err, out.Close(context.WithoutCancel(ctx)))
	}
	out.name(lists, cfg.Taken)
	return out, nil
}

// Tools gives the tools of all servers.
func (s *Servers) Tools() []tool.Tool {
	if s == nil {
		return nil
	}
	return s.tools
}

// Close ends all connections, and the programs behind them.
func (s *Servers) Close(ctx context.Context) error {
	if s == nil {
		return nil
	}
	var wg sync.WaitGroup
	faults := make([]error, len(s.servers))
	for i, srv := range s.servers {
		wg.Go(func() { faults[i] = srv.close(ctx) })
	}
	wg.Wait()
	return errors.Join(faults...)
}

// name gives each tool its name. Names that two servers have, or that the agent has from elsewhere, get the server's
// before them where the file leaves it open.
func (s *Servers) name(lists [][]remoteTool, taken []string) {
	count := map[string]int{}
	for _, t := range taken {
		count[t]++
	}
	for _, list := range lists {
		for _, t := range list {
			count[fit(t.name)]++
		}
	}
	for i, list := range lists {
		srv := s.servers[i]
		for _, t := range list {
			name := fit(t.name)
			if srv.opts.prefix == "always" || srv.opts.prefix == "auto" && count[name] > 1 {
				name = prefixed(srv.Label, t.name)
			}
			s.tools = append(s.tools, newTool(srv, t, name))
		}
	}
}

// options are what a block says beside where the server is.
type options struct {
	cache, structured, strict, required bool
	session, connect                    time.Duration
	request, silence                    time.Duration // of HTTP
	terminate                           bool
	prefix, pin                         string
	allow, block                        []string
	require, never                      []string
	attempts                            int
	base, most                          time.Duration
}

// Bounds of servers whose blocks say nothing.
const (
	defaultSession = time.Minute
	defaultConnect = 10 * time.Second
	defaultRequest = 5 * time.Second
	defaultSilence = 5 * time.Minute
)

func readOptions(sp *spec.MCPServer) options {
	o := sp.Options
	retry, filter, approval := nested(o, "retry"), nested(o, "tool_filter"), nested(o, "approval")
	out := options{
		cache: get(o, "cache_tools", false), structured: get(o, "use_structured_content", false), strict: get(o, "strict_schemas", false),
		required: get(o, "required", true), session: get(o, "session_timeout", defaultSession), connect: get(o, "connect_timeout", defaultConnect),
		request: get(o, "timeout", defaultRequest), silence: get(o, "read_timeout", defaultSilence), terminate: get(o, "terminate_on_close", true),
		prefix: get(o, "prefix_tools", "auto"), pin: get(o, "pin", ""),
		allow: get[[]string](filter, "allow", nil), block: get[[]string](filter, "block", nil),
		require: get[[]string](approval, "require", nil), never: get[[]string](approval, "never", nil),
		attempts: int(get(retry, "max_attempts", 0.0)), base: get(retry, "backoff_base", time.Second), most: get(retry, "backoff_max", time.Duration(0)),
	}
	return out
}

func nested(m map[string]any, name string) map[string]any {
	n, _ := m[name].(map[string]any)
	return n
}

func get[T any](m map[string]any, name string, without T) T {
	if v, ok := m[name].(T); ok {
		return v
	}
	return without
}

// matches reports whether one of the globs fits a name.
func matches(globs []string, name string) bool {
	return slices.ContainsFunc(globs, func(g string) bool { ok, err := path.Match(g, name); return err == nil && ok })
}

// offered reports whether the filter lets a tool through.
func (o *options) offered(name string) bool {
	return (len(o.allow) == 0 || matches(o.allow, name)) && !matches(o.block, name)
}

// useless are globs of the block that fit no tool, which mostly is a slip.
func (o *options) useless(names []string) []string {
	var out []string
	for _, g := range slices.Concat(o.allow, o.block, o.require, o.never) {
		if !slices.ContainsFunc(names, func(n string) bool { return matches([]string{g}, n) }) {
			out = append(out, fmt.Sprintf("%q", g))
		}
	}
	return out
}

// full is a server's name in the files.
func full(sp *spec.MCPServer) string {
	return "mcp_server." + strings.Join([]string{sp.Kind, sp.Label}, ".")
}
