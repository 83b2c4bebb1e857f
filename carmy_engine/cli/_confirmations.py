"""The commands ``confirmations``: list the calls that wait for a person, approve or deny one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

import msgspec
from cyclopts import Parameter

from .._engine.confirmations import Confirmations
from .._model.confirmation import confirmation_body
from .._model.protocols import IdempotencyStore
from ._outcome import SUCCESS, UsageError
from ._remote import CaFile, RemoteServer, Token
from ._stdout import claimed_stdout
from ._store_commands import AsJson, StoreCommands, StoreUrl, Target, with_store
from ._table import moment, table

T = TypeVar("T")

PATH = "/agent/confirmations"

Words = Annotated[str, Parameter(help="The target (unless there is --store or --url), and the confirmation's id.")]
Url = Annotated[str | None, Parameter(help="Ask a running server instead of a store, such as http://127.0.0.1:3000.")]

_HEAD = ("ASKED", "STATE", "LEFT", "TOOL", "PRINCIPAL", "CONFIRMATION", "ARGUMENTS")


class ConfirmationCommands:
    """The commands ``confirmations list``, ``approve`` and ``deny``: on the store, or on a running server."""

    def __init__(self, store_commands: StoreCommands) -> None:
        self._store_commands = store_commands

    def list(
        self,
        target: Target = None,
        /,
        *,
        store: StoreUrl = None,
        url: Url = None,
        token: Token = None,
        ca_file: CaFile = None,
        json: AsJson = False,
    ) -> int:
        """List the confirmations that are open, newest first."""
        server = self._server(url, token, ca_file, target, store)
        with claimed_stdout() as out:
            if server is None:
                entries = self._on_store(target, store, lambda confirmations: confirmations.newest())
                bodies = [confirmation_body(entry) for entry in entries]
            else:
                answer = msgspec.json.decode(server.json("GET", PATH), type=_Listing)
                bodies = [bytes(entry) for entry in answer.confirmations]
            if json:
                for body in bodies:
                    out(body + b"\n")
            else:
                out(table(_HEAD, [_row(msgspec.json.decode(body, type=_Row)) for body in bodies]))
        return SUCCESS

    def approve(
        self,
        *words: Words,
        store: StoreUrl = None,
        url: Url = None,
        token: Token = None,
        ca_file: CaFile = None,
    ) -> int:
        """Approve a call: the same request of the same caller may run once."""
        return self._answer("approve", words, store, url, token, ca_file)

    def deny(
        self,
        *words: Words,
        store: StoreUrl = None,
        url: Url = None,
        token: Token = None,
        ca_file: CaFile = None,
    ) -> int:
        """Deny a call, or take back an approval that was not used."""
        return self._answer("deny", words, store, url, token, ca_file)

    def _answer(
        self,
        command: str,
        words: tuple[str, ...],
        store: str | None,
        url: str | None,
        token: str | None,
        ca_file: str | None,
    ) -> int:
        """Answer one confirmation, and print it."""
        target, confirmation_id = self._store_commands.words(words, f"confirmations {command}", "a confirmation")
        server = self._server(url, token, ca_file, target, store)
        approve = command == "approve"
        with claimed_stdout() as out:
            if server is None:
                body = confirmation_body(
                    self._on_store(
                        target,
                        store,
                        lambda confirmations: confirmations.answer(confirmation_id, approve=approve, by="operator"),
                    )
                )
            else:
                body = server.json("POST", f"{PATH}/{confirmation_id}", msgspec.json.encode({"approve": approve}))
            out(body + b"\n")
        return SUCCESS

    def _server(
        self, url: str | None, token: str | None, ca_file: str | None, target: str | None, store: str | None
    ) -> RemoteServer | None:
        """The server of ``--url``; None for a store.

        Raises:
            UsageError: The options contradict each other.
        """
        if url is None:
            if token is not None or ca_file is not None:
                raise UsageError("--token and --ca-file are for a running server: give its --url as well")
            return None
        if target is not None or store is not None:
            raise UsageError("--url asks a running server, so the command takes neither a target nor --store")
        return RemoteServer(url, token, ca_file)

    def _on_store(self, target: str | None, url: str | None, use: Callable[[Confirmations], Awaitable[T]]) -> T:
        """Use the confirmations of a store.

        Raises:
            Failure: The store keeps none, or it refuses.
        """
        opened, seconds = self._store_commands.confirmation_store(target, url)
        confirmations = Confirmations(opened, seconds)

        async def run(_store: IdempotencyStore) -> T:
            return await use(confirmations)

        return with_store(opened, run)


class _Listing(msgspec.Struct):
    confirmations: list[msgspec.Raw]


class _Row(msgspec.Struct):
    confirmation_id: str
    state: str
    tool: str
    arguments: msgspec.Raw
    asked_at: float
    expires_in: int
    principal: str | None = None


def _row(entry: _Row) -> tuple[object, ...]:
    return (
        moment(entry.asked_at),
        entry.state,
        f"{entry.expires_in // 60}:{entry.expires_in % 60:02}",
        entry.tool,
        entry.principal,
        entry.confirmation_id,
        bytes(entry.arguments).decode(errors="replace"),
    )
