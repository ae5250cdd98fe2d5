// SPDX-License-Identifier: Apache-2.0

package ports

import (
	"context"
	_ "embed"
	"strconv"
	"strings"

	"github.com/berth-dev/berth/sdk/conformance/internal/checks/kit"
	"github.com/berth-dev/berth/sdk/driver"
	"github.com/berth-dev/berth/sdk/rpc"
)

// oneRequest is a script for a listener that starts a program for each connection, as busybox has one.
//
//go:embed web.sh
var oneRequest string

// A shell alone cannot listen. Each way to serve is tried until one works; PORT stands for the port. They listen on every
// address: what an engine publishes does not come over the loopback device.
var (
	echoServers = [][]string{
		{"listen", "PORT"},
		{"python3", "-c", `import socketserver as s
class H(s.BaseRequestHandler):
  def handle(self):
    while True:
      d=self.request.recv(65536)
      if not d: break
      self.request.sendall(d)
s.ThreadingTCPServer.allow_reuse_address=True
s.ThreadingTCPServer(('0.0.0.0',PORT),H).serve_forever()`},
		{"socat", "TCP-LISTEN:PORT,reuseaddr,fork", "EXEC:cat"},
		{"perl", "-MIO::Socket::INET", "-e", `$s=IO::Socket::INET->new(LocalAddr=>"0.0.0.0",LocalPort=>PORT,Listen=>50,ReuseAddr=>1) or die;
$SIG{CHLD}="IGNORE"; while(1){ my $c=$s->accept or next; if(fork){close $c;next} while(sysread($c,my $b,65536)){syswrite($c,$b)} exit }`},
		{"nc", "-ll", "-p", "PORT", "-e", "cat"},
	}
	// webServers answer a request with its method, its address and its body, and echo the short messages of a WebSocket.
	webServers = [][]string{
		{"web", "PORT"},
		{"python3", "-c", `import socketserver as s,hashlib,base64
class H(s.StreamRequestHandler):
  def handle(self):
    first=self.rfile.readline().decode().split(); h={}
    while True:
      k,_,v=self.rfile.readline().decode().strip().partition(':')
      if not k: break
      h[k.lower()]=v.strip()
    if 'sec-websocket-key' in h:
      a=base64.b64encode(hashlib.sha1((h['sec-websocket-key']+'258EAFA5-E914-47DA-95CA-C5AB0DC85B11').encode()).digest())
      self.wfile.write(b'HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: '+a+b'\r\n\r\n')
      while True:
        b=self.rfile.read(6)
        if len(b)<6: return
        n=b[1]&127; p=self.rfile.read(n)
        self.wfile.write(bytes([b[0],n])+bytes(c^b[2+i%4] for i,c in enumerate(p)))
    b=' '.join(first[:2]).encode()+b' '+self.rfile.read(int(h.get('content-length','0')))
    self.wfile.write(b'HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: '+str(len(b)).encode()+b'\r\n\r\n'+b)
s.ThreadingTCPServer.allow_reuse_address=True
s.ThreadingTCPServer.daemon_threads=True
s.ThreadingTCPServer(('0.0.0.0',PORT),H).serve_forever()`},
		{"perl", "-MIO::Socket::INET", "-MDigest::SHA=sha1", "-MMIME::Base64", "-e", `$s=IO::Socket::INET->new(LocalAddr=>"0.0.0.0",LocalPort=>PORT,Listen=>50,ReuseAddr=>1) or die;
$SIG{CHLD}="IGNORE"; while(1){ my $c=$s->accept or next; if(fork){close $c;next} $c->autoflush(1); my @f=split(/ /,<$c>); my %h;
while(my $l=<$c>){ $l=~s/\r?\n//; last if $l eq ""; my($k,$v)=split(/:\s*/,$l,2); $h{lc $k}=$v }
if(my $k=$h{"sec-websocket-key"}){ print $c "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ".encode_base64(sha1($k."258EAFA5-E914-47DA-95CA-C5AB0DC85B11"),"")."\r\n\r\n";
while(read($c,my $b,6)==6){ my($o,$n)=(substr($b,0,1),ord(substr($b,1,1))&127); my $p=""; read($c,$p,$n) if $n; my $m=substr(substr($b,2) x 32,0,$n); print $c $o.chr($n).($p^$m) } exit }
my $b=""; read($c,$b,$h{"content-length"}||0); $b="$f[0] $f[1] $b";
print $c "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: ".length($b)."\r\n\r\n$b"; close $c; exit }`},
		{"sh", "-c", "cat > .web-PORT <<'END'\n" + oneRequest + "END\nchmod +x .web-PORT && exec nc -ll -p PORT -e ./.web-PORT"},
	}
)

// serve starts a server inside, or skips the check.
func serve(c *kit.C, box *rpc.Sandbox, port uint16, servers [][]string) {
	for _, server := range servers {
		var argv []string
		for _, arg := range server {
			argv = append(argv, strings.ReplaceAll(arg, "PORT", strconv.Itoa(int(port))))
		}
		ctx, cancel := context.WithCancelCause(c.Ctx())
		started, done := make(chan struct{}), make(chan error, 1)
		go func() {
			_, err := box.Run(ctx, &driver.Command{Argv: argv}, driver.Streams{OnStart: func(driver.Started) { close(started) }})
			done <- err
		}()
		select {
		case <-done: //nolint:errcheck // there is no such program
			cancel(kit.ErrEnough)
			continue
		case <-started:
		}
		c.Cleanup(func() {
			cancel(kit.ErrEnough)
			<-done //nolint:errcheck // only that it has ended counts
		})
		ended := false
		c.Eventually("a server inside listens", func() bool {
			select {
			case err := <-done:
				done <- err
				ended = true
				return true
			default:
			}
			conn, err := box.Dial(c.Ctx(), port)
			if err != nil {
				return false
			}
			_ = conn.Close() // it answered
			return true
		})
		if !ended {
			return
		}
	}
	c.Skipf("the sandbox has no program that can serve (python3, perl, the nc of busybox)")
}

func serveEcho(c *kit.C, box *rpc.Sandbox, port uint16) { serve(c, box, port, echoServers) }
