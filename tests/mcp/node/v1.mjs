// The client of the first TypeScript SDK: node v1.mjs (URL | COMMAND [ARGUMENT...])
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ElicitRequestSchema } from "@modelcontextprotocol/sdk/types.js";

const [target, ...args] = process.argv.slice(2);
const transport = target.startsWith("http:")
  ? new StreamableHTTPClientTransport(new URL(target))
  : new StdioClientTransport({ command: target, args, env: process.env });
const client = new Client({ name: "test", version: "1" }, { capabilities: { elicitation: {} } });
const questions = [];
client.setRequestHandler(ElicitRequestSchema, async (request) => {
  questions.push(request.params.message);
  return { action: "accept", content: { confirm: true } };
});
await client.connect(transport);
const { tools } = await client.listTools(); // what follows is checked against the schemas in it
const found = await client.callTool({ name: "pair", arguments: { a: 1, b: 2 } });
const wrapped = await client.callTool({ name: "slow", arguments: { number: 7 } });
const refused = await client.callTool({ name: "pair", arguments: { a: 1, c: 2 } });
const destroyed = await client.callTool({ name: "destroy", arguments: { name: "x" } });
console.log(JSON.stringify({ tools: tools.map((tool) => tool.name), found, wrapped, refused, destroyed, questions }));
await client.close();
