"""Network addresses: which are out in the public, and how a name gets its own.

The tables are written out here instead of asking `ipaddress`, whose answers differ between
patch releases of Python. Source: the IANA special-purpose address registries.
"""

import socket
import threading
from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from queue import Empty, SimpleQueue
from typing import TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address
Lookup: TypeAlias = Callable[[str, float], list[Address]]
"""All addresses of a name, within so many seconds. No address at all is an empty list.
Raises TimeoutError."""

_SPECIAL_V4 = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",  # behind carriers' address translation
        "127.0.0.0/8",
        "169.254.0.0/16",  # link-local; clouds' metadata services
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",  # relays of 6to4
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/3",  # multicast, reserved, broadcast
    )
)
_PUBLIC_V6 = IPv6Network("2000::/3")
_SPECIAL_V6 = tuple(
    IPv6Network(text)
    for text in (
        "2001::/23",  # protocols' own: Teredo, ORCHID, benchmarks
        "2001:db8::/32",
        "2002::/16",  # 6to4, which leads to any IPv4 address
        "3fff::/20",
    )
)
_HOME = tuple(
    map(
        ip_network,
        (
            "10.0.0.0/8",
            "100.64.0.0/10",  # also of networks that people lay over the internet
            "172.16.0.0/12",
            "192.168.0.0/16",
            "fc00::/7",
        ),
    )
)
# Clouds' metadata services that are in these.
_NOBODYS_HOME = tuple(map(ip_network, ("100.100.100.200/32", "fd00:ec2::/32", "fd20:ce::/32")))
_NAT64 = IPv6Network("64:ff9b::/96")

# The system's resolver cannot be given a time and cannot be stopped, so each look-up has a
# thread, which stays behind when nobody waits any more. There are never more than these.
_threads = threading.BoundedSemaphore(64)


def is_public(address: Address) -> bool:
    """Whether an address belongs to a host that anybody may reach."""
    address = meant(address)
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _SPECIAL_V4)
    return address in _PUBLIC_V6 and not any(address in network for network in _SPECIAL_V6)


def is_loopback(address: Address) -> bool:
    """Whether an address is this machine's own."""
    return meant(address).is_loopback


def is_home(address: Address) -> bool:
    """Whether an address is this machine's, or one in a private network that people have."""
    address = meant(address)
    if any(address in network for network in _NOBODYS_HOME):
        return False
    return address.is_loopback or any(address in network for network in _HOME)


def meant(address: Address) -> Address:
    """The IPv4 address that a mapped or NAT64 address leads to; any other as it is."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in _NAT64:
            return IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def lookup(name: str, timeout: float) -> list[Address]:
    """All addresses that the system's resolver has for a name, as the `Lookup` it is."""
    if not _threads.acquire(timeout=max(0.0, timeout)):
        raise TimeoutError
    answers: SimpleQueue[list[Address]] = SimpleQueue()

    def ask() -> None:
        found: list[Address] = []
        try:
            for *_, place in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM):
                found.append(ip_address(place[0]))
        except (OSError, ValueError):  # no such name; a name or an answer that is none
            found = []
        finally:
            answers.put(found)
            _threads.release()

    threading.Thread(target=ask, name="lookup", daemon=True).start()
    try:
        return answers.get(timeout=max(0.0, timeout))
    except Empty:
        raise TimeoutError from None
