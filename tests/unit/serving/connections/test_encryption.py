"""What the encrypted doors show and whom they believe changes with the files, and not with half of them."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from testing.handshakes import Shown, shake_hands
from tiercel.broker.trust.authority import Authority
from tiercel.core.trust.certificates import Identity, key_to_pem, make_key, to_pem
from tiercel.serving.connections.encryption import Encryption

NOW = datetime.now(UTC)


def shown_by(authority: Authority) -> Shown:
    """A node that has turned to an authority."""
    key = make_key()
    chain = authority.chain_of(authority.issue_to_node("n1", key.public_key(), NOW))
    return Shown(Identity(key_to_pem(key), chain), to_pem(*authority.roots))


async def test_whom_a_door_believes_follows_its_file_also_where_that_believes_less(tmp_path: Path) -> None:
    first = Authority.create(NOW)
    both = first.successor(NOW)
    last = both.alone()
    identity, authorities = tmp_path / "identity.pem", tmp_path / "authority.pem"
    put = 0

    def turn_to(authority: Authority) -> None:
        nonlocal put
        shown = shown_by(authority)
        assert shown.identity is not None
        for file, content in ((identity, shown.identity.to_file()), (authorities, shown.roots)):
            file.write_bytes(content)
            put += 1
            os.utime(file, ns=(put, put))  # however coarse the times of the disk are

    def lets_in(caller: Shown) -> bool:
        answers = {shake_hands(Shown(None, b"", door.context), caller) for door in (encryption.http, encryption.grpc)}
        return answers == {"TLSv1.3"}

    callers = [shown_by(each) for each in (first, both, last)]
    turn_to(first)
    encryption = Encryption(identity, authorities)
    assert [lets_in(each) for each in callers] == [True, True, False]
    for authority, expected in ((both, [True, True, True]), (last, [False, True, True])):
        turn_to(authority)
        encryption.refresh()
        assert [lets_in(each) for each in callers] == expected
    authorities.write_bytes(b"half")
    os.utime(authorities, ns=(1, 1))
    encryption.refresh()
    assert [lets_in(each) for each in callers] == [False, True, True]
