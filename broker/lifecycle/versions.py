"""Which version of an endpoint answers, as pure steps: never a worse one by itself; what somebody chose stays."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tiercel.core.endpoints import Endpoint
from tiercel.core.errors import NotFoundError, wrong_field
from tiercel.core.figures import compared
from tiercel.core.jobs import Direction
from tiercel.core.retraining import RetrainingState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tiercel.core.endpoints import DelayWindow, Signature, Tensor, Version

# Versions of an endpoint that are remembered, with files or without.
REMEMBERED_VERSIONS = 100


@dataclass(frozen=True, slots=True)
class VersionFiles:
    """The files of a version."""

    version: int  # its number
    sha256: str  # of its ONNX file, hexadecimal
    delivery_id: str = ""  # the delivery whose files these are, while they are not in their place yet; or empty


@dataclass(frozen=True, slots=True)
class WantedModel:
    """What a node shall do with an endpoint, or with one of its variants."""

    endpoint: str  # the endpoint
    variant: str  # which variant of it; empty for an endpoint without variants
    version: int  # number of the version that shall answer there; 0 for none
    kept: tuple[int, ...]  # numbers of the versions whose files stay there, and it may go back to
    copies: tuple[VersionFiles, ...] = ()  # versions of other nodes that it shall have as well
    sends: tuple[VersionFiles, ...] = ()  # versions of which it shall send the files to the broker, for other nodes
    paced: bool = False  # whether nobody waits for those copies that are of no delivery, as others answer


def why_held(endpoint: Endpoint, new: Version, *, may_replace: bool) -> str:
    """Why a new version must not answer by itself, in plain words; empty where it may.

    Args:
        endpoint: The endpoint before it.
        new: The version.
        may_replace: Whether its job said that whatever it delivers shall answer.
    """
    live = endpoint.live_of(new.variant)
    if live is None or live.version == new.version:
        return ""
    if new.variant in endpoint.pinned:
        return f"version {live.version} was chosen and stays"
    if may_replace:
        return ""
    return _why_worse(live, new) or why_different(live, new.signature)


def _why_worse(live: Version, new: Version) -> str:
    if new.value is None:  # whoever deployed it wants it to answer
        return f"version {live.version} is newer" if new.version < live.version else ""
    if live.value is None:
        return "" if new.deployed_by else f"nobody has said how good version {live.version} is"
    direction = new.direction or live.direction or Direction.MAX
    if live.metric != new.metric or (live.direction or direction) is not direction:
        return (
            f"{new.metric} ({direction.value}) cannot be compared with {live.metric} "
            f"({(live.direction or direction).value}) of version {live.version}"
        )
    if not direction.reaches(new.value, live.value):
        value, better = compared(new.value, live.value)
        return f"{value} is worse than {better} of version {live.version}"
    if new.value == live.value and new.version < live.version:
        return f"version {live.version} is newer and as good"
    return ""


def why_different(version: Version, new: Signature | None) -> str:
    """Why a request that was valid may not be valid any more, or its answer may be another; empty where it is.

    Args:
        version: The version that answers.
        new: What another model takes and gives.
    """
    live, whose = version.signature, f"version {version.version}"
    if live is None or new is None:
        return ""
    given, taken = {each.name: each for each in new.inputs}, {each.name for each in live.inputs}
    for tensor in live.inputs:
        after = given.get(tensor.name)
        if after is None or after.datatype != tensor.datatype or not _takes(tensor.shape, after.shape):
            return f"it takes {_words(after, tensor)}, and {whose} took {_words(tensor, tensor)}"
    more = next((each for each in new.inputs if each.name not in taken), None)
    if more is not None:
        return f"it takes {_words(more, more)} as well, which {whose} did not"
    outputs = {each.name: each for each in new.outputs}
    for tensor in live.outputs:
        after = outputs.get(tensor.name)
        if after is None or after.datatype != tensor.datatype or not _alike(tensor.shape, after.shape):
            return f"it gives {_words(after, tensor)}, and {whose} gave {_words(tensor, tensor)}"
    return ""


def _takes(before: tuple[int, ...] | None, after: tuple[int, ...] | None) -> bool:
    """Whether an input takes every shape that it took before."""
    if after is None or before is None:
        return after is None
    return len(before) == len(after) and all(new in (-1, old) for old, new in zip(before, after, strict=True))


def _alike(before: tuple[int, ...] | None, after: tuple[int, ...] | None) -> bool:
    """Whether an output may have the shape that it had; exporters leave some axes open that are always the same."""
    if before is None or after is None:
        return True
    return len(before) == len(after) and all(
        -1 in (old, new) or old == new for old, new in zip(before, after, strict=True)
    )


def _words(tensor: Tensor | None, instead_of: Tensor) -> str:
    if tensor is None:
        return f"no {instead_of.name!r}"
    shape = "any shape" if tensor.shape is None else str(list(tensor.shape))
    return f"{tensor.name!r} as {tensor.datatype} {shape}"


def held_words(endpoint: Endpoint, version: int, why: str) -> str:
    """What a tenant is told of a version that was delivered and does not answer."""
    return (
        f"version {version} is kept but not live: {why}; "
        f"'tiercel models promote {endpoint.name} {version}' lets it answer all the same"
    )


def with_version(endpoint: Endpoint, new: Version, *, may_replace: bool) -> tuple[Endpoint, str]:
    """Add a version that was delivered, and let it answer if it may.

    Returns:
        The endpoint, and why the version does not answer: empty where it does.
    """
    held, endpoint = why_held(endpoint, new, may_replace=may_replace), _settled(endpoint)
    others = [version for version in endpoint.versions if version.version != new.version]
    versions = tuple(sorted((*others, replace(new, held=held)), key=lambda known: known.version))
    # What answered before is named from now on: the newest may be one that is held.
    live = {version.variant: version.version for version in endpoint.live}
    if not held:
        live[new.variant] = new.version
    node_id = new.node_id if not held or not endpoint.node_id else endpoint.node_id
    changed = replace(endpoint, versions=versions, live_versions=live, node_id=node_id)
    return _without_forgotten(changed), held


def with_delays(before: Endpoint, after: Endpoint, window: DelayWindow | None) -> Endpoint:
    """Note with the version that stops to answer how long answers took at last; of variants each had a part of them.

    Args:
        before: The endpoint while it answered.
        after: The endpoint from now on.
        window: What was measured of its answers; None where nothing was.
    """
    stopped = {each.version for each in before.live if not each.variant} - {each.version for each in after.live}
    if window is None or window.p50_seconds is None or not stopped:
        return after
    p50, p95 = window.p50_seconds, window.p95_seconds
    noted = (replace(v, p50_seconds=p50, p95_seconds=p95) if v.version in stopped else v for v in after.versions)
    return replace(after, versions=tuple(noted))


def kept(endpoint: Endpoint) -> tuple[Version, ...]:
    """The versions whose files are kept, oldest first.

    Of each variant the one that answers, the newest few and, if those are more than one, the one that is gone back to,
    and the one that answered before retrainings none of which has helped.
    """
    before = _before_in_vain(endpoint) if endpoint.keep > 1 else 0
    live = {version.variant: version.version for version in endpoint.live}
    left: dict[str, int] = {}
    found, backed = [], set()
    for version in sorted(endpoint.versions, key=lambda each: -each.version):
        variant = version.variant
        left[variant] = left.get(variant, endpoint.keep) - 1
        is_earlier = version.version < live.get(variant, 0) and not version.held and not version.removed
        is_back = is_earlier and variant not in backed and endpoint.keep > 1
        backed |= {variant} if is_back else set()
        is_back = is_back or (version.version == before and not version.removed)
        if is_back or (left[variant] >= 0 and not version.removed) or version.version == live.get(variant):
            found.append(version)
    return tuple(reversed(found))


def _before_in_vain(endpoint: Endpoint) -> int:
    """The version that the first of the last retrainings was for that have not helped; 0 where the last one did."""
    before = 0
    for each in reversed(endpoint.retrainings):
        if each.state is RetrainingState.HELPED:
            break
        before = each.version
    return before


def _settled(endpoint: Endpoint) -> Endpoint:
    """The endpoint before a change: whose files are not kept by now is gone, whatever would keep them afterwards."""
    there = {each.version for each in kept(endpoint)}
    versions = (each if each.version in there else replace(each, removed=True) for each in endpoint.versions)
    return replace(endpoint, versions=tuple(versions))


def promoted(endpoint: Endpoint, number: int | None, *, pin: bool = False) -> Endpoint:
    """Let a version answer since somebody said so.

    It stays whatever is delivered, unless it is the newest and not pinned: then better ones follow by themselves.

    Args:
        endpoint: The endpoint.
        number: Which one; None for the newest or, to pin it, for the one that answers.
        pin: Whether it stays in any case.

    Raises:
        NotFoundError: There is no such version any more.
        InvalidSpecError: It cannot answer.
    """
    if number is None:
        _check_one_answers(endpoint)
    there = kept(endpoint)
    if pin and number is None:
        number = endpoint.live_version
    chosen = there[-1] if there and number is None else next((each for each in there if each.version == number), None)
    if chosen is None:
        numbers = ", ".join(str(each.version) for each in there) or "none"
        raise NotFoundError(
            f"version: endpoint {endpoint.name!r} has no version {number or ''} that can answer; there is {numbers}",
            field="version",
        )
    return _chosen(endpoint, chosen, pin=pin)


def let_answer(endpoint: Endpoint, number: int, instead_of: int) -> Endpoint:
    """Let a version that was held answer in place of another one; better ones follow by themselves as before.

    The endpoint is as it was where the other one does not answer any more or was chosen, or there is no such version.
    """
    chosen = next((each for each in kept(endpoint) if each.version == number), None)
    live = endpoint.live_of(chosen.variant) if chosen is not None else None
    if chosen is None or live is None or live.version != instead_of or chosen.variant in endpoint.pinned:
        return endpoint
    return replace(_chosen(endpoint, chosen), pinned=endpoint.pinned)


def removed(endpoint: Endpoint, number: int) -> Endpoint:
    """Keep the files of a version no longer; what is known of it stays.

    Raises:
        NotFoundError: None are kept of it.
        InvalidSpecError: It answers.
    """
    if any(each.version == number for each in endpoint.live):
        raise wrong_field(
            "version",
            f"version {number} is what answers for endpoint {endpoint.name!r}; let another one answer first: "
            f"'tiercel models rollback {endpoint.name}'",
        )
    there = kept(endpoint)
    if not any(each.version == number for each in there):
        numbers = ", ".join(str(each.version) for each in there) or "none"
        raise NotFoundError(
            f"version: endpoint {endpoint.name!r} keeps no files of version {number}; it keeps {numbers}",
            field="version",
        )
    endpoint = _settled(endpoint)
    versions = (replace(each, removed=True) if each.version == number else each for each in endpoint.versions)
    return replace(endpoint, versions=tuple(versions))


def keeping(endpoint: Endpoint, count: int) -> Endpoint:
    """Keep the files of so many of the newest versions from now on; what is gone does not come back.

    Raises:
        InvalidSpecError: That is out of bounds.
    """
    if not 1 <= count <= REMEMBERED_VERSIONS:
        raise wrong_field("count", f"{count} is not a number of versions to keep; give 1 to {REMEMBERED_VERSIONS}")
    return replace(_settled(endpoint), keep=count)


def rolled_back(endpoint: Endpoint, number: int | None, instead_of: int = 0) -> Endpoint:
    """Go back to an earlier version, which then stays whatever is delivered.

    Args:
        endpoint: The endpoint.
        number: Which one; None for the one that answered before the present one.
        instead_of: The one that answered when that was asked for, without a number; the endpoint is as it was where
            another one does by now, as somebody else was first. 0 where that is not known.

    Raises:
        NotFoundError: There is none to go back to.
        InvalidSpecError: It cannot answer, or it is not clear which is meant.
    """
    if number is not None:
        return promoted(endpoint, number)
    _check_one_answers(endpoint)
    if instead_of and all(each.version != instead_of for each in endpoint.live):
        return endpoint
    earlier = [
        each for each in kept(endpoint) for live in endpoint.live if each.version < live.version and not each.held
    ]
    if not earlier:
        raise NotFoundError(
            f"version: endpoint {endpoint.name!r} has no earlier version that answered and is kept", field="version"
        )
    return _chosen(endpoint, earlier[-1])


def _check_one_answers(endpoint: Endpoint) -> None:
    if len(endpoint.live) > 1:
        raise wrong_field(
            "version",
            f"endpoint {endpoint.name!r} has variants, each with a version that answers; say which version is meant",
        )


def _chosen(endpoint: Endpoint, chosen: Version, *, pin: bool = False) -> Endpoint:
    node_id, endpoint = endpoint.node_of(chosen), _settled(endpoint)
    if chosen.variant and node_id != endpoint.node_id:
        raise wrong_field(
            "version",
            f"the files of version {chosen.version} are on node {node_id}, and the variants of endpoint "
            f"{endpoint.name!r} answer on node {endpoint.node_id}; choose another version",
        )
    newest = max(each.version for each in endpoint.versions if each.variant == chosen.variant)
    stays = pin or chosen.version != newest
    pinned = endpoint.pinned | {chosen.variant} if stays else endpoint.pinned - {chosen.variant}
    live = {version.variant: version.version for version in endpoint.live} | {chosen.variant: chosen.version}
    versions = tuple(replace(each, held="") if each.version == chosen.version else each for each in endpoint.versions)
    return replace(endpoint, versions=versions, live_versions=live, pinned=pinned, node_id=node_id)


def places_of(endpoint: Endpoint) -> set[tuple[str, str]]:
    """Nodes that have versions of an endpoint, each with the variant."""
    return {(endpoint.node_of(each), each.variant) for each in endpoint.versions if endpoint.node_of(each)}


def deleted(endpoint: Endpoint) -> Endpoint:
    """Forget what an endpoint has, so that its name is free for whoever comes next.

    Its numbers go on: a node that was away and comes back with a version of before has the number of no new one.
    """
    copies = {(node_id, "") for node_id in endpoint.replica_nodes}
    left = tuple(sorted({*endpoint.left, *places_of(endpoint), *copies}))
    return Endpoint(endpoint.name, endpoint.tenant, endpoint.next_version, left=left)


def wanted_models(endpoint: Endpoint) -> Mapping[str, tuple[WantedModel, ...]]:
    """What each node that has versions of an endpoint shall do with them, by node.

    A node that an endpoint has left is told that none shall answer there, and of one that was deleted, to keep none.
    """
    live = {version.version for version in endpoint.live}
    stay = {version.version for version in kept(endpoint)}
    places = sorted({*endpoint.left, *places_of(endpoint)})
    wanted: dict[str, tuple[WantedModel, ...]] = {}
    for node_id, variant in places:
        here = [
            each.version
            for each in endpoint.versions
            if (endpoint.node_of(each), each.variant) == (node_id, variant) and each.version in stay
        ]
        answers = next((number for number in here if number in live), 0)
        wanted[node_id] = (*wanted.get(node_id, ()), WantedModel(endpoint.name, variant, answers, tuple(here)))
    return wanted


def _without_forgotten(endpoint: Endpoint) -> Endpoint:
    if len(endpoint.versions) <= REMEMBERED_VERSIONS:
        return endpoint
    stay = {version.version for version in kept(endpoint)}
    surplus = len(endpoint.versions) - REMEMBERED_VERSIONS
    forgotten = {each.version for each in [v for v in endpoint.versions if v.version not in stay][:surplus]}
    return replace(endpoint, versions=tuple(v for v in endpoint.versions if v.version not in forgotten))
