"""The target of the commands ``graph``: a graph, and the application whose tools and store it uses."""

from __future__ import annotations

import shlex
import sys
from typing import Any

import msgspec

from .._app.app import App
from .._config.sources import read_deployment
from ..graph import CompiledGraph, StateGraph
from ._outcome import UsageError
from ._target import Loaded, app_in, configured, find, load_module, named

_GRAPH: type[CompiledGraph[Any]] = CompiledGraph
_DECLARED: type[StateGraph[Any]] = StateGraph


class GraphTarget(msgspec.Struct, frozen=True):
    """A graph and its application.

    Attributes:
        graph: The graph.
        app: The application.
        command: The name of the command.
        graph_words: Name the graph on a command line.
        app_words: Name the application on a command line; empty if the command is that of the application.
    """

    graph: CompiledGraph[Any]
    app: App
    command: str
    graph_words: str
    app_words: str

    def line(self, command: str, *words: str, options: str = "", of_app: bool = False) -> str:
        """A command line for the graph, or for its application, to be shown to people.

        Args:
            command: The command, such as ``graph resume``.
            words: The words after the target.
            options: What follows, as it is.
            of_app: It is a command of the application.
        """
        target = self.app_words if of_app else self.graph_words
        parts = [self.command, command, *(shlex.quote(word) for word in (target, *words) if word), options]
        return " ".join(part for part in parts if part)


def find_graph(app: App | None, word: str | None) -> tuple[CompiledGraph[Any], Loaded]:
    """The graph of a command line, and the module in which it is.

    Args:
        app: The application whose commands these are: the graph is one of the program that runs. None: the word names it.
        word: As on the command line; None: the only graph of the program, or of the module that the settings name.

    Raises:
        UsageError: There is no such graph, or there are several.
        Failure: The module could not be imported.
    """
    if app is not None:
        loaded = Loaded(sys.modules["__main__"], "the program", word)
    else:
        loaded = load_module(word, read_deployment())
        if word is None:
            loaded = loaded._replace(name=None)  # the settings name an application
    uncompiled = named(loaded.module, _DECLARED)
    found = None if loaded.name in uncompiled else find(loaded, _GRAPH, "graph")
    if found is not None:
        return found, loaded
    if uncompiled:
        name = loaded.name or next(iter(uncompiled))
        raise UsageError(f"{loaded.where}: the graph {name} is not compiled: call its method compile()")
    raise UsageError(f"{loaded.where} has no graph")


def load_graph(app: App | None, word: str | None, app_word: str | None) -> GraphTarget:
    """The graph of a command line with its application, and the settings of the process.

    Args:
        app: See `find_graph`.
        word: See `find_graph`.
        app_word: The option ``--app``.

    Raises:
        UsageError: There is no such graph or application, or there are several.
        Failure: A module could not be imported.
        ConfigurationError: The settings are not valid.
    """
    deployment = read_deployment()
    if app is not None and app_word is not None:
        raise UsageError(f"these are the commands of the application {app.name!r}, so there is no --app")
    graph, loaded = find_graph(app, word)
    graphs = named(loaded.module, _GRAPH)
    name = loaded.name or next(key for key, value in graphs.items() if value is graph)
    if app is not None:
        return GraphTarget(graph, configured(app, deployment), app.name, name, "")
    beside = named(loaded.module, App)
    if app_word is None and not beside and "app" in deployment.values:
        app_word = str(deployment.values["app"])
    if app_word is not None:
        own, app_words = app_in(load_module(app_word, deployment)), app_word
    else:
        own = app_in(loaded._replace(name=None), needs_tools=False)
        app_words = f"{loaded.where}:{next(iter(beside))}" if beside else loaded.where
    return GraphTarget(graph, configured(own, deployment), "carmy", f"{loaded.where}:{name}", app_words)
