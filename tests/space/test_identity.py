"""The identity file: one private key, made once."""

import json
import subprocess
import sys

import pytest

from lettaspace.atproto.keys import VerifyingKey
from lettaspace.errors import Damaged, StoreUnavailable
from lettaspace.space.identity import Identity
from tests.waiting import SECONDS

OPEN = """
import sys
from pathlib import Path
from lettaspace.space.identity import Identity
print(Identity.open(Path(sys.argv[1])).did)
"""


def test_it_is_made_once_and_private(tmp_path):
    path = tmp_path / "home" / "identity.json"
    made = Identity.open(path)
    assert made.did.startswith("did:key:zQ3s")  # the did:key form of secp256k1
    assert path.stat().st_mode & 0o777 == 0o600
    assert Identity.open(path) == made
    assert [each.name for each in path.parent.iterdir()] == ["identity.json"]


def test_the_key_signs_for_the_did(tmp_path):
    identity = Identity.open(tmp_path / "identity.json")
    signature = identity.signing_key().sign(b"hello")
    assert VerifyingKey.from_did(identity.did).verify(signature, b"hello")


def test_the_key_shows_nowhere(tmp_path):
    path = tmp_path / "identity.json"
    identity = Identity.open(path)
    secret = json.loads(path.read_text())["privateKey"]
    assert secret not in repr(identity)
    assert secret not in repr(identity.signing_key())


def test_a_file_that_others_can_read_is_refused(tmp_path):
    path = tmp_path / "identity.json"
    Identity.open(path)
    path.chmod(0o640)
    with pytest.raises(StoreUnavailable, match="chmod 600"):
        Identity.open(path)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        '{"did": "did:key:zQ3sx"}',
        '{"did": "nobody", "curve": "secp256k1", "privateKey": "' + "00" * 32 + '"}',
        '{"did": "did:key:zQ3sx", "curve": "secp256k1", "privateKey": "00"}',
        '{"did": "did:key:zQ3sx", "curve": "rsa", "privateKey": "' + "00" * 32 + '"}',
    ],
)
def test_a_damaged_file_is_refused_and_kept(tmp_path, content):
    path = tmp_path / "identity.json"
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(Damaged) as caught:
        Identity.open(path)
    assert str(path) in str(caught.value)
    assert path.read_text() == content


def test_o26_processes_that_start_together_agree_on_one_key(tmp_path):
    path = tmp_path / "identity.json"
    processes = [
        subprocess.Popen([sys.executable, "-c", OPEN, path], stdout=subprocess.PIPE)
        for _ in range(6)
    ]
    dids = {process.communicate(timeout=SECONDS)[0] for process in processes}
    assert dids == {f"{Identity.open(path).did}\n".encode()}
    assert [each.name for each in tmp_path.iterdir()] == ["identity.json"]
