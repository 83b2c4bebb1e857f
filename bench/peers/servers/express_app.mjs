// Express: `express_app.mjs PORT`
import express from "express";
import { readFileSync } from "node:fs";

const products = JSON.parse(readFileSync(new URL("catalog.json", import.meta.url)));
const app = express();
app.disable("x-powered-by");
app.use(express.json());
app.post("/search", (request, response) => {
  const { query, limit = 10, ...others } = request.body ?? {};
  if (typeof query !== "string" || !Number.isInteger(limit) || Object.keys(others).length > 0) {
    response.status(400).json({ error: "query must be a string and limit an integer" });
    return;
  }
  response.json(products.filter((product) => product.name.includes(query)).slice(0, limit));
});
app.listen(Number(process.argv[2]), "127.0.0.1");
