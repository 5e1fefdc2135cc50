"""The one origin in a private network that the user typed, and nothing beside it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lettaspace.network.addresses import ip_address, is_home, is_public
from lettaspace.network.fetching import Fetched
from lettaspace.network.reach import Reach
from lettaspace.network.targets import FetchError, parse
from tests.network.test_fetching import INSIDE, PUBLIC, Net, net, serve  # noqa: F401
from tests.server.peers import Peer, reply

BOX = "https://box.lan"
AT = "192.168.1.5"


@pytest.fixture
def home(net: Net, serve: Callable[..., Peer]) -> Net:  # noqa: F811
    """A network at home, in which one peer answers whatever is let through."""
    serve(reply(b"hello"), "box.lan", "*.box.lan", "other.lan", AT)
    net.names = {
        "box.lan": [AT],
        "mira.box.lan": [AT],
        "printer.box.lan": ["192.168.1.9"],
        "other.lan": [AT],
        AT: [AT],
        "metadata.box.lan": ["169.254.169.254"],
    }
    return net


def get(home: Net, url: str, trusted: str | None = BOX, **options: int) -> Fetched:
    return home.fetcher(trusted=trusted).get(url, **options)


@pytest.mark.parametrize("url", [BOX, f"{BOX}/.well-known/did.json", "https://mira.box.lan/a"])
def test_the_origin_and_names_below_it_on_the_same_machine(home: Net, url: str) -> None:
    assert get(home, url).body == b"hello"
    assert home.connected == [AT]
    with pytest.raises(FetchError, match="no public address"):
        get(home, url, None)


def test_an_address_in_numbers(home: Net) -> None:
    assert get(home, f"https://{AT}", f"https://{AT}").status == 200
    with pytest.raises(FetchError, match="not a domain name"):
        get(home, f"https://{AT}")


@pytest.mark.parametrize(
    "url",
    [
        "https://printer.box.lan",
        "https://other.lan",
        "https://notbox.lan",
        "https://box.lan:8443",
        "https://metadata.box.lan",
        "http://box.lan",
        f"https://{AT}",
        "https://localhost",
    ],
)
def test_o55_nothing_beside_it(home: Net, url: str) -> None:
    home.names["notbox.lan"] = [AT]
    with pytest.raises(FetchError):
        get(home, url)
    assert home.connected == []


@pytest.mark.parametrize("address", [*INSIDE, "100.100.100.200", "fd00:ec2::254", "fd20:ce::254"])
def test_o55_even_there_only_addresses_that_people_have_at_home(home: Net, address: str) -> None:
    home.names["box.lan"] = [AT, address]
    if is_home(ip_address(address)):
        assert get(home, BOX).status == 200
        assert not is_public(ip_address(address))
    else:
        with pytest.raises(FetchError, match="no public address"):
            get(home, BOX)
        assert home.connected == []


@pytest.mark.parametrize("place", [BOX, "https://other.lan", "https://mira.box.lan"])
def test_o55_no_redirect_leads_there(home: Net, serve: Callable[..., Peer], place: str) -> None:  # noqa: F811
    home.names["host.example"] = [str(PUBLIC)]
    answer = reply(b"", "302 Found", headers=f"location: {place}/reboot\r\n")
    serve(answer, "host.example", "box.lan")
    for begin in ("https://host.example", BOX):
        with pytest.raises(FetchError, match="no public address"):
            get(home, begin, redirects=3)


def test_in_a_private_network_a_public_address_is_as_good() -> None:
    reach = Reach(trusted=BOX)
    assert reach.allows("box.lan", 443, [PUBLIC, ip_address(AT)], lambda _: [])
    assert not reach.allows("mira.box.lan", 443, [PUBLIC, ip_address(AT)], lambda _: [PUBLIC])


@pytest.mark.parametrize("url", ["https://box.lan:444", "https://[fd12::1]:9", "https://box"])
def test_its_form_is_the_users(url: str) -> None:
    assert parse(url, trusted=url).origin == url
    with pytest.raises(FetchError):
        parse(url)
    with pytest.raises(FetchError):
        parse(url.replace("https", "http"), trusted=url.replace("https", "http"))
