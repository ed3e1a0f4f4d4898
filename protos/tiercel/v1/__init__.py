"""The contract between tenants, broker, agents and trainers: generated code, and the version that all of it has."""

from __future__ import annotations

from typing import Final

# Grows when one side would misunderstand the other. Agents and trainers say it in their hello; a tenant's call may say it
# in its metadata, and one that says nothing (a standard tool) is taken for one of this version.
PROTOCOL: Final = 1
PROTOCOL_KEY: Final = "tiercel-protocol"
# Where a call that was refused for now says after how long to try again (refusals.proto).
RETRY_KEY: Final = "grpc-status-details-bin"
RETRY_TYPE: Final = "type.googleapis.com/google.rpc.RetryInfo"


def protocol_mismatch(theirs: int, who: str, we: str) -> str:
    """What is wrong with a peer's version, in a sentence that says which side to upgrade; empty where nothing is.

    Args:
        theirs: The version that the peer speaks; 0 for one that does not say.
        who: What the peer is, such as "the agent".
        we: What we are.
    """
    if theirs == PROTOCOL:
        return ""
    spoken = f"protocol {theirs}" if theirs else "a protocol without a version"
    older = who if theirs < PROTOCOL else we
    return f"{who} speaks {spoken} and {we} speaks {PROTOCOL}: upgrade {older} to the other's version of Tiercel"
