// A client of the official SDK against `atm-agent-mcp acp`: prompt, permission,
// edit, cancel, options, load after a restart. The Go test that starts it says by
// environment what to run (AGENT, a JSON list) and where (CWD), and the prompts'
// directives are those of the scripted model. Exit code 0: all of it went well.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { Readable, Writable } from "node:stream";
import * as acp from "@agentclientprotocol/sdk";

const [command, ...args] = JSON.parse(process.env.AGENT);
const cwd = process.env.CWD;

// run starts an agent and gives work a connection; updates are kept by session.
async function run(work) {
  const child = spawn(command, args, { cwd, stdio: ["pipe", "pipe", "inherit"] });
  const ended = new Promise((resolve) => child.on("exit", (code, signal) => resolve({ code, signal })));
  const updates = [];
  const state = { updates, allow: "allow_once", asked: [] };
  const app = acp
    .client({ name: "sdk-client" })
    .onRequest(acp.methods.client.session.requestPermission, async ({ params }) => {
      state.asked.push(params);
      const option = params.options.find((o) => o.kind === state.allow);
      return { outcome: option ? { outcome: "selected", optionId: option.optionId } : { outcome: "cancelled" } };
    })
    .onNotification(acp.methods.client.session.update, async ({ params }) => {
      updates.push(params);
      state.onUpdate?.(params);
    });
  const stream = acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout));
  await app.connectWith(stream, async (agent) => {
    const hello = await agent.request(acp.methods.agent.initialize, {
      protocolVersion: acp.PROTOCOL_VERSION,
      clientInfo: { name: "sdk-client", version: "1" },
      clientCapabilities: {},
    });
    assert.equal(hello.protocolVersion, 1);
    assert.equal(hello.agentCapabilities.loadSession, true);
    await work(agent, state);
  });
  child.stdin.end();
  const end = await ended;
  assert.deepEqual(end, { code: 0, signal: null }, "the agent's end");
}

const say = (agent, sessionId, text) =>
  agent.request(acp.methods.agent.session.prompt, { sessionId, prompt: [{ type: "text", text }] });
const spoken = (updates) =>
  updates
    .filter((u) => u.update.sessionUpdate === "agent_message_chunk")
    .map((u) => u.update.content.text)
    .join("");
const shown = (updates) => JSON.stringify(updates.map((u) => u.update.content ?? null));

let id;
await run(async (agent, state) => {
  const made = await agent.request(acp.methods.agent.session.new, { cwd, mcpServers: [] });
  id = made.sessionId;
  assert.ok(made.configOptions.some((o) => o.id === "mode" && o.currentValue === "ask"), "mode");
  assert.equal((await say(agent, id, "SAY hello over the sdk")).stopReason, "end_turn");
  assert.equal(spoken(state.updates), "hello over the sdk");
  console.log("ok prompt");

  state.updates.length = 0;
  assert.equal((await say(agent, id, "SHELLESC touch asked; echo seen-by-the-user\nSAY after")).stopReason, "end_turn");
  assert.equal(state.asked.length, 1);
  assert.match(shown(state.updates), /seen-by-the-user/);
  console.log("ok permission");

  state.updates.length = 0;
  state.allow = "reject_once";
  assert.equal((await say(agent, id, "SHELLESC touch never\nSAY going on")).stopReason, "end_turn");
  assert.equal(spoken(state.updates), "going on");
  assert.ok(!fs.existsSync(path.join(cwd, "never")));
  console.log("ok rejection");

  const set = (configId, value) => agent.request(acp.methods.agent.session.setConfigOption, { sessionId: id, configId, value });
  const full = await set("mode", "auto");
  assert.ok(full.configOptions.some((o) => o.id === "mode" && o.currentValue === "auto"));
  await assert.rejects(set("mode", "reckless"), (e) => e.code === -32602);
  console.log("ok options");

  state.updates.length = 0;
  assert.equal((await say(agent, id, "PATCH edited.txt by-the-agent\nSAY edited")).stopReason, "end_turn");
  const diffs = state.updates.flatMap((u) => (u.update.content?.length ? u.update.content : [])).filter((c) => c.type === "diff");
  assert.ok(diffs.some((d) => d.path === path.join(cwd, "edited.txt") && d.newText === "by-the-agent\n"), JSON.stringify(diffs));
  console.log("ok edit");

  state.updates.length = 0;
  await set("mode", "full");
  const running = new Promise((resolve) => {
    state.onUpdate = (p) => p.update.sessionUpdate.startsWith("tool_call") && p.update.status === "in_progress" && resolve();
  });
  const answer = say(agent, id, "SHELL exec sleep 600\nSAY never");
  await running;
  await agent.notify(acp.methods.agent.session.cancel, { sessionId: id });
  assert.equal((await answer).stopReason, "cancelled");
  assert.equal(spoken(state.updates), "");
  state.onUpdate = undefined;
  console.log("ok cancel");
});

await run(async (agent, state) => {
  const listed = await agent.request(acp.methods.agent.session.list, { cwd });
  assert.ok(listed.sessions.some((s) => s.sessionId === id));
  const loaded = await agent.request(acp.methods.agent.session.load, { sessionId: id, cwd, mcpServers: [] });
  assert.ok(loaded.configOptions.some((o) => o.id === "mode" && o.currentValue === "full"), "mode after load");
  assert.match(spoken(state.updates), /^hello over the sdk/);
  assert.ok(state.updates.some((u) => u.update.sessionUpdate === "user_message_chunk"));
  state.updates.length = 0;
  assert.equal((await say(agent, id, "SAY still here")).stopReason, "end_turn");
  assert.equal(spoken(state.updates), "still here");
  console.log("ok load");
});
