// A client made with the SDK for npm, which has no files and no terminals itself. It starts the words behind SDK and
// DIRECTORY, sends one prompt, allows whatever it is asked, and prints all that it has received.
//
//   node acp_client.mjs SDK DIRECTORY PROMPT WORDS…
import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";

const [sdk, directory, prompt, ...words] = process.argv.slice(2);
const acp = await import(sdk);
const { methods } = acp;
const updates = [];
const asked = [];
const agent = spawn(words[0], words.slice(1), { cwd: directory, stdio: ["pipe", "pipe", "inherit"] });
const ended = new Promise((resolve) => agent.on("exit", (code, signal) => resolve(signal ?? code)));
const stream = acp.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout));
const client = acp
  .client({ name: "test" })
  .onNotification(methods.client.session.update, (context) => void updates.push(context.params.update))
  .onRequest(methods.client.session.requestPermission, (context) => {
    asked.push(context.params.toolCall);
    const option = context.params.options.find((row) => row.kind.startsWith("allow_once")) ?? context.params.options[0];
    return { outcome: { outcome: "selected", optionId: option.optionId } };
  });

const result = await client.connectWith(stream, async (context) => {
  const capabilities = { fs: { readTextFile: false, writeTextFile: false }, terminal: false };
  const first = await context.request(methods.agent.initialize, {
    protocolVersion: acp.PROTOCOL_VERSION,
    clientCapabilities: capabilities,
  });
  let refused = null;
  try {
    await context.request(methods.agent.session.new, { cwd: "/", mcpServers: [] });
  } catch (error) {
    refused = error.code;
  }
  const { sessionId } = await context.request(methods.agent.session.new, { cwd: directory, mcpServers: [] });
  const text = [{ type: "text", text: prompt }];
  const done = await context.request(methods.agent.session.prompt, { sessionId, prompt: text });
  return { version: first.protocolVersion, refused, stopReason: done.stopReason };
});
agent.stdin.end();
console.log(JSON.stringify({ ...result, updates, asked, code: await ended }));
process.exit(0);
