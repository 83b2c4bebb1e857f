// The official requester of tasks, on a connection of its own: node tasks.mjs MARKER COMMAND [ARGUMENT...]
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { resultFromTaskOutcome, withTasks } from "@modelcontextprotocol/ext-tasks/client";

const [marker, command, ...args] = process.argv.slice(2);
const child = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });
const waiting = new Map();
const seen = [];
createInterface({ input: child.stdout }).on("line", (line) => {
  const { id, result, error } = JSON.parse(line);
  seen.push(error?.code ?? result.status ?? result.resultType);
  waiting.get(id)(error ? { kind: "error", error } : { kind: "result", result });
});
const envelope = {
  "io.modelcontextprotocol/protocolVersion": "2026-07-28",
  "io.modelcontextprotocol/clientInfo": { name: "test", version: "1" },
  "io.modelcontextprotocol/clientCapabilities": { extensions: { "io.modelcontextprotocol/tasks": {} } },
};
const dispatch = (request) =>
  new Promise((resolve) => {
    const id = waiting.size + 1;
    waiting.set(id, resolve);
    const params = { ...request.params, _meta: { ...request.params?._meta, ...envelope } };
    child.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", id, method: request.method, params })}\n`);
  });
const nobody = () => () => {};
const session = withTasks({
  endpointId: "test",
  taskCapabilities: { generation: "v2", capabilities: {} },
  invalidated: false,
  onServerRequest: nobody,
  onNotification: nobody,
  onInvalidated: nobody,
  dispatch,
});
const { outcome } = await (await session.callTool("slow", { number: 7 })).settle();
const held = await session.callTool("hold", { marker });
await held.cancel();
const cancelled = (await held.settle()).outcome;
console.log(JSON.stringify({ result: resultFromTaskOutcome(outcome), cancelled, seen }));
await session.close();
child.stdin.end();
