"""Idempotency stores. The contract they fulfil is `carmy_engine.abc.IdempotencyStore`."""
