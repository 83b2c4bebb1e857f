"""A worker: one of several serving processes, and its connection to the supervisor.

The two share one socket. The worker writes the line with its address once it listens. Before the supervisor stops all workers by
a signal, it writes one byte. An end of the socket without that byte means that the supervisor has ended.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Mapping, Sequence

import msgspec

from .._config.address import TcpAddress, UnixAddress, parse_address
from .._config.settings import Settings

_VARIABLE = "_CARMY_WORKER"
"""In a worker's environment: the descriptor of its socket, its number, and the address that stands for the listening ones."""


def environment(control: int, number: int, listening: Sequence[int], *, are_ours: bool) -> Mapping[str, str]:
    """The environment of a worker.

    Args:
        control: The descriptor of its end of the socket.
        number: Its number among the workers, from 1.
        listening: The descriptors of what it serves on.
        are_ours: No other process has those sockets, so the last worker must accept the connections in the queue.
    """
    address = f"fd://{','.join(map(str, listening))}" + (f"?until={control}" if are_ours else "")
    return {**os.environ, _VARIABLE: f"{control}:{number}:{address}"}


class Worker:
    """This process, started by a supervisor.

    Args:
        control: Its end of the socket.
        number: Its number among the workers, from 1.
        address: Of the listening sockets.
    """

    def __init__(self, control: socket.socket, number: int, address: str) -> None:
        self._number = number
        self._control = control
        self._address = address
        self._has_announced = False
        threading.Thread(target=self._watch, name="carmy-supervisor", daemon=True).start()

    def adapted(self, settings: Settings) -> Settings:
        """The settings with the addresses where this process serves: each process has a port of its own for metrics."""
        metrics = settings.metrics
        if metrics.address is not None:
            address = address_of_worker(metrics.address, self._number)
            metrics = msgspec.structs.replace(metrics, address=address)
        return msgspec.structs.replace(settings, address=self._address, metrics=metrics)

    def announce(self, line: str) -> None:
        """Send the supervisor the first line, which ends in the address. It writes all further lines itself."""
        if not self._has_announced:
            self._has_announced = True
            with contextlib.suppress(OSError):  # it has ended, as the thread will find
                self._control.sendall(f"{line}\n".encode())

    def _watch(self) -> None:
        """Stop as after a signal when the supervisor has ended. A thread, because a tool may hold the event loop."""
        with contextlib.suppress(OSError):
            if self._control.recv(1, socket.MSG_PEEK):
                return  # it stops all workers and sends the signal itself; the byte stays unread for the listening sockets
        os.kill(os.getpid(), signal.SIGTERM)


def inherited() -> Worker | None:
    """This process as a worker; None when it is none. Call it once, early: what is started later must not see it."""
    descriptor, _, rest = os.environ.pop(_VARIABLE, "").partition(":")
    number, _, address = rest.partition(":")
    if not descriptor:
        return None
    try:
        control = socket.socket(fileno=int(descriptor))
    except OSError:
        return None  # meant for another process, which has started this one
    control.set_inheritable(False)
    return Worker(control, int(number), address)


def address_of_worker(address: str, number: int) -> str:
    """The address of one of several workers: the port, or the name of the file, plus its number less one."""
    match parse_address(address):
        case TcpAddress(_, port) if port:
            return f"{address.rpartition(':')[0]}:{port + number - 1}"
        case UnixAddress() if number > 1:
            return f"{address}.{number}"
        case _:
            return address
