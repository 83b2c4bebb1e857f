// The TypeScript SDK of MCP: `mcp_app.mjs stdio|PORT`. Over HTTP it is stateless: a server and a transport for each request,
// as its documentation shows.
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import express from "express";
import { readFileSync } from "node:fs";
import { z } from "zod";

const products = JSON.parse(readFileSync(new URL("catalog.json", import.meta.url)));
const product = z.object({ sku: z.string(), name: z.string(), price_cents: z.number().int() });

function makeServer() {
  const server = new McpServer({ name: "bench", version: "1.0.0" });
  server.registerTool(
    "search",
    {
      description: "Search the catalog.",
      inputSchema: { query: z.string(), limit: z.number().int().default(10) },
      outputSchema: { result: z.array(product) },
    },
    async ({ query, limit }) => {
      const result = products.filter((found) => found.name.includes(query)).slice(0, limit);
      return { content: [{ type: "text", text: JSON.stringify(result) }], structuredContent: { result } };
    },
  );
  return server;
}

if (process.argv[2] === "stdio") {
  await makeServer().connect(new StdioServerTransport());
} else {
  const app = express();
  app.use(express.json());
  app.post("/mcp", async (request, response) => {
    const server = makeServer();
    const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: undefined, enableJsonResponse: true });
    response.on("close", () => {
      transport.close();
      server.close();
    });
    await server.connect(transport);
    await transport.handleRequest(request, response, request.body);
  });
  app.listen(Number(process.argv[2]), "127.0.0.1");
}
