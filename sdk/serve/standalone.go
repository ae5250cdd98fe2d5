// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/berth-dev/berth/sdk/handshake"
)

// standalone serves cores that come and go, until a signal ends it: what a debugger runs. Standard output gets the one
// line that berth needs to find the driver.
func (p *program) standalone(name string) error {
	// The directory is private; the socket and the key lie in it.
	dir, err := os.MkdirTemp("", "berth-"+name+"-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) // it is in the temporary directory
	if err := os.Setenv(plugin.EnvUnixSocketDir, dir); err != nil {
		return err
	}
	key, keyFile := handshake.NewKey(), filepath.Join(dir, "key")
	if err := os.WriteFile(keyFile, []byte(key.Encode()), 0o600); err != nil {
		return err
	}
	// A driver that berth starts leaves the terminal's signals to berth.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	listening := make(chan *plugin.ReattachConfig, 1)
	served := make(chan struct{})
	go func() {
		defer close(served)
		config := p.serveConfig(key)
		// Without it go-plugin wants to have been started by a core.
		config.Test = &plugin.ServeTestConfig{ReattachConfigCh: listening}
		plugin.Serve(config)
	}()
	select {
	case at := <-listening:
		if err := p.announce(at.Addr.Network(), at.Addr.String(), keyFile); err != nil {
			return err
		}
		go func() { p.shutdown((<-signals).String(), drainTimeout) }()
		<-served
	case <-served:
		return fmt.Errorf("the driver cannot listen below %s; the reason is in the log", dir)
	}
	p.shutdown("the server ended", drainTimeout)
	return nil
}

// announce prints where the driver is. Its source is that of berth's own drivers; who uses another namespace changes it.
func (p *program) announce(network, addr, keyFile string) error {
	line, err := json.Marshal(map[string]handshake.Reattach{"berth/" + p.driver.Describe().Name: {
		Network: network, Addr: addr, Protocol: handshake.ProtocolVersion, KeyFile: keyFile,
	}})
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(p.stdout, "%s\n", line); err != nil {
		return err
	}
	fmt.Fprintf(p.stderr, "Driver process %d serves. Set %s to the line above where berth runs. Ctrl-C ends the driver.\n",
		os.Getpid(), handshake.EnvReattach)
	return nil
}

// serveConfig is what go-plugin serves.
func (p *program) serveConfig(key handshake.Key) *plugin.ServeConfig {
	return &plugin.ServeConfig{
		HandshakeConfig:  handshake.Config(),
		VersionedPlugins: map[int]plugin.PluginSet{handshake.ProtocolVersion: {handshake.PluginName: grpcPlugin{adapter: p.adapter}}},
		Logger:           p.log,
		GRPCServer: func(opts []grpc.ServerOption) *grpc.Server {
			opts = append(opts, grpc.Creds(handshake.Driver(key)), grpc.ChainUnaryInterceptor(p.divertUnary), grpc.ChainStreamInterceptor(p.divertStream))
			p.server = grpc.NewServer(append(opts, p.adapter.Options()...)...)
			return p.server
		},
	}
}
