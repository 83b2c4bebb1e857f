"""Notifications of changes, and the level of log messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import trio

from carmy_engine import BoundEngine
from carmy_engine.content import Change

from ..protocol.params import SUBSCRIPTION_ID, LevelParams, ListenParams, SubscriptionFilter, parse
from .exchange import Exchange, Peer
from .features import Handler, Result


def notification_of(change: Change) -> tuple[str, dict[str, Any]]:
    """The method and the parameters of the notification of a change."""
    if change.kind == "resource":
        return "notifications/resources/updated", {"uri": change.uri}
    return f"notifications/{change.kind}/list_changed", {}


class Listening:
    """The features of subscriptions and of logging.

    Args:
        stopping: Set when no more changes will come.
    """

    def __init__(self, stopping: trio.Event) -> None:
        self._stopping = stopping

    def handlers(self) -> Mapping[str, Handler]:
        """See `Feature`."""
        return {"logging/setLevel": self._set_level, "subscriptions/listen": self._listen}

    def capabilities(self, *, modern: bool) -> Mapping[str, Any]:
        """See `Feature`."""
        return {"logging": {}}

    async def _set_level(self, exchange: Exchange) -> Result:
        await trio.lowlevel.checkpoint_if_cancelled()
        params = parse(exchange.request.params, LevelParams, "logging/setLevel")
        if exchange.peer.session is not None:
            exchange.peer.session.log_level = params.level
        return {}

    async def _listen(self, exchange: Exchange) -> Result:
        """Send the changes that a client has asked for, until it leaves or the server stops."""
        wanted = parse(exchange.request.params, ListenParams, "subscriptions/listen").notifications
        granted = SubscriptionFilter(
            tools_list_changed=wanted.tools_list_changed or None,
            prompts_list_changed=wanted.prompts_list_changed or None,
            resources_list_changed=wanted.resources_list_changed or None,
            resource_subscriptions=wanted.resource_subscriptions or None,
        )
        kinds = {
            kind
            for kind, is_wanted in (
                ("tools", granted.tools_list_changed),
                ("prompts", granted.prompts_list_changed),
                ("resources", granted.resources_list_changed),
                ("resource", granted.resource_subscriptions),
            )
            if is_wanted
        }
        meta = {SUBSCRIPTION_ID: exchange.id}
        with exchange.block, exchange.executor.watch() as changes:
            for uri in wanted.resource_subscriptions or ():
                await changes.subscribe(uri)
            acknowledged = {"notifications": granted, "_meta": meta}
            await exchange.peer.notify("notifications/subscriptions/acknowledged", acknowledged)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_cancel_at, self._stopping, nursery.cancel_scope)
                async for change in changes:
                    if change.kind in kinds:
                        method, params = notification_of(change)
                        await exchange.peer.notify(method, {**params, "_meta": meta})
        return {"_meta": meta}


async def announce(watcher: BoundEngine, peer: Peer, *, task_status: trio.TaskStatus[Any]) -> None:
    """Send all changes to a client with a session, until cancelled. Started with the watch."""
    with watcher.watch() as changes:
        task_status.started(changes)
        async for change in changes:
            method, params = notification_of(change)
            await peer.notify(method, params)


async def _cancel_at(end: trio.Event, scope: trio.CancelScope) -> None:
    await end.wait()
    scope.cancel()
