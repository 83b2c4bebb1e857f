// One client of the TypeScript SDK: client.mjs (v1 | v2) (stdio | http) (call | timeout | close | kill) FOLDER (URL | COMMAND...)
// A copy beside the packages runs, since imports are looked up from where a module lies.
import { existsSync } from "node:fs";
import { join } from "node:path";

const [library, wire, mode, folder, target, ...args] = process.argv.slice(2);
const names =
  library === "v1"
    ? ["@modelcontextprotocol/sdk/client/index.js", "@modelcontextprotocol/sdk/client/stdio.js"]
    : ["@modelcontextprotocol/client", "@modelcontextprotocol/client/stdio"];
const { Client, StreamableHTTPClientTransport } = await import(names[0]);
let transport;
if (wire === "stdio") {
  const { StdioClientTransport } = await import(names[1]);
  transport = new StdioClientTransport({ command: target, args, env: process.env });
} else {
  const Http =
    StreamableHTTPClientTransport ??
    (await import("@modelcontextprotocol/sdk/client/streamableHttp.js")).StreamableHTTPClientTransport;
  transport = new Http(new URL(target));
}
const client = new Client({ name: "test", version: "1" }, { capabilities: {} });
await client.connect(transport);
await client.listTools();
const hold = (options) =>
  library === "v1"
    ? client.callTool({ name: "hold", arguments: { folder } }, undefined, options)
    : client.callTool({ name: "hold", arguments: { folder } }, options);
if (mode === "timeout") {
  const ended = await hold({ timeout: 1000 }).catch(() => null);
  if (ended !== null) throw new Error("a call that runs for ever has returned");
} else if (mode !== "call") {
  hold().catch(() => {});
  while (!existsSync(join(folder, "started"))) await new Promise((resolve) => setTimeout(resolve, 10));
  if (mode === "kill") process.kill(process.pid, "SIGKILL");
}
if (mode === "call" || mode === "timeout")
  console.log(JSON.stringify(await client.callTool({ name: "add", arguments: { a: 1, b: 2 } })));
if (wire === "http" && transport.terminateSession) await transport.terminateSession();
await client.close();
