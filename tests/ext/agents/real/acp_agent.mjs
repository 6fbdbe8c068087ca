// An agent made with the SDK for npm: it uses each call of a client, and says what came back.
//
//   node acp_agent.mjs SDK
import { Readable, Writable } from "node:stream";

const acp = await import(process.argv[2]);
const { methods } = acp;
let cwd = "";

async function work(client, sessionId) {
  const path = `${cwd}/made.txt`;
  await client.request(methods.client.fs.writeTextFile, { sessionId, path, content: "one\ntwo\n" });
  const part = await client.request(methods.client.fs.readTextFile, { sessionId, path, line: 2, limit: 1 });
  const missing = await client
    .request(methods.client.fs.readTextFile, { sessionId, path: `${cwd}/none` })
    .catch((error) => error.code);
  const create = { sessionId, command: "sort", args: ["-r", "made.txt"], cwd };
  const { terminalId } = await client.request(methods.client.terminal.create, create);
  const content = [{ type: "terminal", terminalId }];
  const update = { sessionUpdate: "tool_call", toolCallId: "t", title: "sort", kind: "execute", content };
  await client.notify(methods.client.session.update, { sessionId, update });
  const ended = await client.request(methods.client.terminal.waitForExit, { sessionId, terminalId });
  const shown = await client.request(methods.client.terminal.output, { sessionId, terminalId });
  await client.request(methods.client.terminal.release, { sessionId, terminalId });
  const options = [{ optionId: "yes", name: "Yes", kind: "allow_once" }];
  const toolCall = { toolCallId: "p", title: "touch x", rawInput: { command: "touch x" } };
  const { outcome } = await client.request(methods.client.session.requestPermission, { sessionId, toolCall, options });
  return [part.content, missing, ended.exitCode, shown.output, outcome.optionId];
}

acp
  .agent({ name: "test" })
  .onRequest(methods.agent.initialize, () => ({ protocolVersion: acp.PROTOCOL_VERSION, agentCapabilities: {} }))
  .onRequest(methods.agent.session.new, (context) => {
    cwd = context.params.cwd;
    return { sessionId: "npm" };
  })
  .onRequest(methods.agent.session.prompt, async (context) => {
    const text = JSON.stringify(await work(context.client, context.params.sessionId));
    const update = { sessionUpdate: "agent_message_chunk", content: { type: "text", text } };
    await context.client.notify(methods.client.session.update, { sessionId: context.params.sessionId, update });
    return { stopReason: "end_turn" };
  })
  .connect(acp.ndJsonStream(Writable.toWeb(process.stdout), Readable.toWeb(process.stdin)));
