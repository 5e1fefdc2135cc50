"""Ports for servers that are told theirs before they take it.

A port that the system gave, and that was let go, may be a connection's by the time it is used.
These are from below those that the system gives, and no two processes are given the same ones.
"""

from __future__ import annotations

import random
import socket

_FIRST, _LAST = 10_000, 32_000

_random = random.SystemRandom()
_claims: list[socket.socket] = []


def free_ports(count: int = 1) -> range:
    """So many ports in a row that nobody has, for as long as this process lives."""
    while True:
        first = _random.randrange(_FIRST, _LAST - count)
        ports = range(first, first + count)
        if all(_claim(port) for port in ports):
            return ports


def free_port() -> int:
    return free_ports()[0]


def _claim(port: int) -> bool:
    """Whether a port is free, and now ours among all processes that ask here."""
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0lettaspace-test-port-{port}")
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        claim.close()
        return False
    _claims.append(claim)  # the name is taken until this process ends
    return True
