// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/berth-dev/berth/plugins/e2b/internal/fakee2b"
	"github.com/berth-dev/berth/sdk/conformance"
)

const (
	envNPM  = "BERTH_E2B_NPM"  // a directory with node_modules/e2b
	envLive = "BERTH_E2B_LIVE" // the service itself may be used, and paid
	envEnvd = "BERTH_E2B_ENVD" // the program of the vendor's daemon, built from its source
)

// script is a session with the vendor's client: make, run, write, read, list, pause, resume, end.
const script = `
const { Sandbox } = require(process.argv[1] + '/node_modules/e2b')
const same = (what, got, want) => { if (got !== want) throw new Error(what + ': ' + JSON.stringify(got) + ', want ' + JSON.stringify(want)) }
;(async () => {
  const s = await Sandbox.create('base', { timeoutMs: 60000, metadata: { who: 'npm' }, envs: { A: 'b' } })
  const r = await s.commands.run('echo out $A; echo err >&2')
  same('stdout', r.stdout, 'out b\n'); same('stderr', r.stderr, 'err\n'); same('exit code', r.exitCode, 0)
  try { await s.commands.run('exit 7'); throw new Error('no error') } catch (e) { same('exit code of a failure', e.exitCode, 7) }
  await s.files.write('dir/file.txt', 'content')
  same('file', await s.files.read('dir/file.txt'), 'content')
  same('list', (await s.files.list('dir')).map(f => f.name + f.type).join(), 'file.txtfile')
  same('exists', await s.files.exists('dir/none'), false)
  await s.files.makeDir('made'); await s.files.rename('dir/file.txt', 'made/moved'); await s.files.remove('dir')
  const p = await s.commands.run('cat; echo done', { background: true, stdin: true })
  await s.commands.sendStdin(p.pid, 'typed\n')
  same('processes', (await s.commands.list()).some(x => x.pid === p.pid), true)
  same('kill', await s.commands.kill(p.pid), true)
  await p.wait().then(() => { throw new Error('it ended well') }, () => {})
  same('host', s.getHost(80).startsWith('80-' + s.sandboxId), true)
  const listed = await Sandbox.list({ query: { metadata: { who: 'npm' } } }).nextItems()
  same('listed', listed.map(x => x.sandboxId).join(), s.sandboxId)
  await s.setTimeout(120000)
  same('running', await s.isRunning(), true)
  same('paused', await s.pause(), true)
  const again = await Sandbox.connect(s.sandboxId)
  same('kept', await again.files.read('made/moved'), 'content')
  same('killed', await again.kill(), true)
  console.log('all the same')
})().catch(e => { console.error(e); process.exit(1) })
`

// The fake is close enough to the service for the vendor's own client.
func TestVendorsClient(t *testing.T) {
	dir := os.Getenv(envNPM)
	if dir == "" {
		t.Skipf("%s names no directory with the vendor's client", envNPM)
	}
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("there is no node")
	}
	dir, err = filepath.Abs(dir)
	if err != nil {
		t.Fatal(err)
	}
	s := newService(t)
	cmd := exec.CommandContext(t.Context(), node, "-e", script, dir)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "E2B_API_KEY=" + s.process(nil)["api_key"].(string), "E2B_API_URL=" + s.url, "E2B_SANDBOX_URL=" + s.url}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if left := s.fake.Alive(); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
}

// The suite with the vendor's own daemon in the sandboxes, behind the fake of all else.
func TestVendorsDaemon(t *testing.T) {
	program := os.Getenv(envEnvd)
	if program == "" {
		t.Skipf("%s names no program of the vendor's daemon", envEnvd)
	}
	s := newService(t)
	s.fake.UseDaemon(program)
	conformance.Run(t, conformance.Options{
		Binary: "/proc/self/exe", Env: []string{asDriver + "=1"}, Parallel: 2, Repeat: 3, Lives: 5, Faults: true, Secrets: []string{fakee2b.Key},
		ProcessConfig: values(t, s.process(nil)), SandboxConfig: values(t, map[string]any{}),
	})
	if left := s.fake.Alive(); len(left) > 0 {
		t.Errorf("the service still has %v", left)
	}
}

// The suite against the service itself.
func TestLive(t *testing.T) {
	if os.Getenv(envLive) == "" || os.Getenv("E2B_API_KEY") == "" {
		t.Skipf("the service is used only with %s and E2B_API_KEY", envLive)
	}
	process := map[string]any{"api_key": os.Getenv("E2B_API_KEY")}
	for name, attribute := range map[string]string{"E2B_DOMAIN": "domain", "E2B_API_URL": "api_url", "E2B_SANDBOX_URL": "sandbox_url"} {
		if v := os.Getenv(name); v != "" {
			process[attribute] = v
		}
	}
	conformance.Run(t, conformance.Options{
		Binary: "/proc/self/exe", Env: []string{asDriver + "=1"}, Repeat: 2, Lives: 5, Faults: true, Secrets: []string{os.Getenv("E2B_API_KEY")},
		ProcessConfig: values(t, process), SandboxConfig: values(t, map[string]any{"on_timeout": "kill"}),
	})
}
