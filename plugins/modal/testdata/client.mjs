// SPDX-License-Identifier: Apache-2.0
// What a program does with the vendor's own client, from a sandbox's making to its end.
import assert from 'node:assert'
import { ModalClient } from 'modal'

const modal = new ModalClient()
const app = await modal.apps.fromName('js', { createIfMissing: true })
const image = modal.images.fromRegistry(process.argv[2])
const sb = await modal.sandboxes.create(app, image, { command: ['sleep', 'infinity'], env: { A: 'a' }, name: 'one' })

const p = await sb.exec(['sh', '-c', 'echo "$A"; cat; echo error >&2; exit 3'])
await p.stdin.writeText('input\n')
await p.stdin.close()
const [out, err] = await Promise.all([p.stdout.readText(), p.stderr.readText()])
assert.deepStrictEqual({ out, err, code: await p.wait() }, { out: 'a\ninput\n', err: 'error\n', code: 3 })

const late = await sb.exec(['sleep', '60'], { timeoutMs: 1000 })
assert.strictEqual(await late.wait().catch(() => 137), 137)

await sb.filesystem.writeText('content', '/data/file')
assert.strictEqual(await sb.filesystem.readText('/data/file'), 'content')
await assert.rejects(sb.filesystem.readText('/data/none'))

const saved = await sb.snapshotFilesystem()
const again = await modal.sandboxes.create(app, saved, { command: ['sleep', 'infinity'] })
assert.strictEqual(await again.filesystem.readText('/data/file'), 'content')
await again.terminate()

assert.strictEqual((await modal.sandboxes.fromName('js', 'one')).sandboxId, sb.sandboxId)
assert.strictEqual(await sb.poll(), null)
await sb.terminate()
assert.strictEqual(await sb.poll(), 137)
await assert.rejects(sb.exec(['true']))
modal.close()
