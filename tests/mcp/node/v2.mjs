// The client of the second TypeScript SDK: node v2.mjs (legacy | VERSION) (URL | COMMAND [ARGUMENT...])
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

const [mode, target, ...args] = process.argv.slice(2);
const transport = target.startsWith("http:")
  ? new StreamableHTTPClientTransport(new URL(target))
  : new StdioClientTransport({ command: target, args, env: process.env });
const client = new Client(
  { name: "test", version: "1" },
  {
    capabilities: { elicitation: {} },
    versionNegotiation: { mode: mode === "legacy" ? mode : { pin: mode } },
  },
);
const questions = [];
client.setRequestHandler("elicitation/create", async (request) => {
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
