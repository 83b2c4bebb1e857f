"""From a function or an object to a `CompiledTool`."""
