// SPDX-License-Identifier: Apache-2.0
// What a program does with the vendor's own client, from a sandbox's making to its end. Its terminals want a newer daemon
// than the one that the fake stands for.
const assert = require('assert')
const { Daytona } = require('@daytonaio/sdk')

async function main() {
  const daytona = new Daytona({ apiKey: process.env.DAYTONA_API_KEY, apiUrl: process.env.DAYTONA_API_URL, target: 'us' })
  const sandbox = await daytona.create({ language: 'python', labels: { a: '1' }, envVars: { SAID: 'yes' } }, { timeout: 60 })
  assert.strictEqual(sandbox.state, 'started')

  const run = await sandbox.process.executeCommand('echo out; echo $SAID; exit 3')
  assert.strictEqual(run.exitCode, 3)
  assert.strictEqual(run.result, 'out\nyes\n')

  await sandbox.process.createSession('s')
  const command = await sandbox.process.executeSessionCommand('s', { command: 'echo o; echo e >&2; (exit 4)' })
  assert.strictEqual(command.exitCode, 4)
  assert.strictEqual(command.stdout, 'o\n')
  assert.strictEqual(command.stderr, 'e\n')
  await sandbox.process.deleteSession('s')

  await sandbox.fs.createFolder('/home/daytona/d', '755')
  await sandbox.fs.uploadFile(Buffer.from('content'), '/home/daytona/d/f')
  assert.strictEqual((await sandbox.fs.downloadFile('/home/daytona/d/f')).toString(), 'content')
  assert.deepStrictEqual((await sandbox.fs.listFiles('/home/daytona/d')).map((f) => f.name), ['f'])
  await sandbox.fs.deleteFile('/home/daytona/d/f')
  await assert.rejects(sandbox.fs.downloadFile('/home/daytona/d/f'))

  assert.match((await sandbox.getPreviewLink(3000)).url, /3000-/)
  assert.strictEqual((await daytona.get(sandbox.id)).id, sandbox.id)
  await sandbox.stop(60)
  assert.strictEqual(sandbox.state, 'stopped')
  await sandbox.start(60)
  assert.strictEqual(sandbox.state, 'started')
  await sandbox.delete(60)
}

main().then(() => process.exit(0), (e) => { console.error(e); process.exit(1) })
