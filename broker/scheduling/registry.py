"""The policies there are, by name, and how to make one from a name and options.

A policy is a class that is registered under the entry point ``tiercel.policies``. Those of other packages are found by
what is installed; those of Tiercel itself by :data:`BUILT_IN`, so that a checkout that was updated and not installed
anew has them all. Nothing is imported but the policy that is asked for.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoint, distributions
from typing import Any

from tiercel.broker.scheduling.interface import Policy
from tiercel.broker.scheduling.options import Options, settings_from
from tiercel.core.errors import InvalidSpecError

GROUP = "tiercel.policies"
"""The entry point that packages register their policies under."""

BUILT_IN: Mapping[str, str] = types.MappingProxyType(
    {
        "dqoes": "tiercel.broker.scheduling.dqoes.policy:DqoesPolicy",
        "fair": "tiercel.broker.scheduling.fair:FairPolicy",
        "fifo": "tiercel.broker.scheduling.fifo:FifoPolicy",
        "flowcon": "tiercel.broker.scheduling.flowcon.policy:FlowconPolicy",
        "las": "tiercel.broker.scheduling.las:LasPolicy",
        "random-order": "tiercel.broker.scheduling.random_order:RandomOrderPolicy",
        "slaq": "tiercel.broker.scheduling.slaq.policy:SlaqPolicy",
        "specon": "tiercel.broker.scheduling.specon.policy:SpeconPolicy",
        "srpt": "tiercel.broker.scheduling.srpt:SrptPolicy",
        "srpt-oracle": "tiercel.broker.scheduling.srpt_oracle:SrptOraclePolicy",
        "tradl": "tiercel.broker.scheduling.tradl.policy:TradlPolicy",
        "utility": "tiercel.broker.scheduling.utility.policy:UtilityPolicy",
    }
)
"""Where the policies of Tiercel itself are, as pyproject.toml registers them; no other package can take their names."""

# Each policy has a state type of its own, which whoever runs it only hands back.
AnyPolicy = Policy[Any]


def policy_names() -> tuple[str, ...]:
    """The names of all policies, sorted, whether they can be used or not; imports none of them."""
    return tuple(sorted({*BUILT_IN, *(entry.name for _, entry in _plug_ins())}))


def create_policy(name: str, options: Options | None = None) -> AnyPolicy:
    """Make a policy.

    Args:
        name: One of :func:`policy_names`.
        options: Fields of the policy's settings that shall differ from their defaults; text is converted.

    Raises:
        InvalidSpecError: There is no such policy, or the package that ships it is broken (field ``policy``), there is
            no such option (field ``policy.OPTION``), or the option's value makes no sense.
    """
    if name in BUILT_IN:
        return _made(EntryPoint(name, BUILT_IN[name], GROUP).load(), options or {})
    offers = {package: entry for package, entry in _plug_ins() if entry.name == name}
    if not offers:
        message = f"There is no policy {name!r}; choose one of {', '.join(policy_names())}."
        raise InvalidSpecError(message, field="policy")
    if len(offers) > 1:
        packages = " and ".join(sorted(offers))
        message = f"Policy {name!r} is shipped by {packages}; uninstall all but one of them."
        raise InvalidSpecError(message, field="policy")
    ((package, entry),) = offers.items()
    try:
        policy = _made(entry.load(), options or {})
        _check(policy, name)
    except InvalidSpecError:
        raise
    except Exception as error:  # whatever is wrong with it, it is the package's
        message = f"Policy {name!r} of package {package} cannot be used: {type(error).__name__}: {error}"
        raise InvalidSpecError(message, field="policy") from error
    return policy


def _made(policy_type: Any, options: Options) -> AnyPolicy:
    settings_type = getattr(policy_type, "settings_type", None)
    if settings_type is None:
        settings_from(_NoSettings, options)
        return policy_type()  # type: ignore[no-any-return] # a plug-in's is checked
    return policy_type(settings_from(settings_type, options))  # type: ignore[no-any-return]


class _NoSettings:
    """Of a policy that has no options."""


def _check(policy: AnyPolicy, name: str) -> None:
    if policy.name != name:
        raise ValueError(f"it calls itself {policy.name!r}")
    if not callable(policy.plan):
        raise TypeError("its plan cannot be called")
    policy.initial_state()


def _plug_ins() -> Iterator[tuple[str, EntryPoint]]:
    """The policies of other packages, each with its package; of one that is installed twice, the first one found."""
    known: set[str] = set()
    for distribution in distributions():
        try:
            entries = [entry for entry in distribution.entry_points if entry.group == GROUP]
            package = f"{distribution.metadata['Name']} {distribution.version}" if entries else ""
        except Exception:  # noqa: S112 - what cannot even be read offers nothing, and must not hide the others
            continue
        name = package.partition(" ")[0].lower()
        if entries and name not in known:
            known.add(name)
            yield from ((package, entry) for entry in entries if entry.name not in BUILT_IN)
