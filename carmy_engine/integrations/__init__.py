"""The tools of an executor as tools of an agent framework.

Each module is for one framework and imports it, so import the one that you use:

- `carmy_engine.integrations.langchain`: LangChain and LangGraph.
- `carmy_engine.integrations.openai_agents`: the OpenAI Agents SDK.
- `carmy_engine.integrations.pydantic_ai`: Pydantic AI.
- `carmy_engine.integrations.llama_index`: LlamaIndex.

The executors are those of `carmy_engine.aio`, an engine or a client; for the plain calls of a framework also those of
`carmy_engine.blocking`.
"""
