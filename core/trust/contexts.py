"""Gives OpenSSL a key and certificates that are in memory."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl

    from tiercel.core.trust.certificates import Identity


def load_identity(context: ssl.SSLContext, identity: Identity) -> None:
    """Have a context show these from now on; connections that are open keep what they began with.

    Raises:
        OSError: They are of no use, or do not belong together.
    """
    # OpenSSL takes keys from files alone; this one is on no disk, and nobody else can open it.
    descriptor = os.memfd_create("tiercel-identity")
    with os.fdopen(descriptor, "wb") as file:
        file.write(identity.to_file())
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
