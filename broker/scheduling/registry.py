"""The policies there are, by name, and how to make one from a name and options."""

from __future__ import annotations

import enum
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from tiercel.broker.scheduling.dqoes.policy import DqoesPolicy, DqoesSettings
from tiercel.broker.scheduling.fair import FairPolicy, FairSettings
from tiercel.broker.scheduling.fifo import FifoPolicy, FifoSettings
from tiercel.broker.scheduling.flowcon.policy import FlowconPolicy, FlowconSettings
from tiercel.broker.scheduling.interface import Policy
from tiercel.broker.scheduling.las import LasPolicy, LasSettings
from tiercel.broker.scheduling.random_order import RandomOrderPolicy, RandomOrderSettings
from tiercel.broker.scheduling.slaq.policy import SlaqPolicy, SlaqSettings
from tiercel.broker.scheduling.specon.policy import SpeconPolicy, SpeconSettings
from tiercel.broker.scheduling.srpt import SrptPolicy, SrptSettings
from tiercel.broker.scheduling.srpt_oracle import SrptOraclePolicy, SrptOracleSettings
from tiercel.broker.scheduling.tradl.policy import TradlPolicy, TradlSettings
from tiercel.broker.scheduling.utility.policy import UtilityPolicy
from tiercel.broker.scheduling.utility.settings import UtilitySettings
from tiercel.core.errors import InvalidSpecError

Option = str | float | bool
Options = Mapping[str, Option]
# Each policy has a state type of its own, which whoever runs it only hands back.
AnyPolicy = Policy[Any]

_SettingsT = TypeVar("_SettingsT")
_TRUTH = types.MappingProxyType({"true": True, "false": False})

policies: Mapping[str, Callable[[Options], AnyPolicy]] = types.MappingProxyType(
    {
        DqoesPolicy.name: lambda options: DqoesPolicy(settings_from(DqoesSettings, options)),
        FairPolicy.name: lambda options: FairPolicy(settings_from(FairSettings, options)),
        FifoPolicy.name: lambda options: FifoPolicy(settings_from(FifoSettings, options)),
        FlowconPolicy.name: lambda options: FlowconPolicy(settings_from(FlowconSettings, options)),
        LasPolicy.name: lambda options: LasPolicy(settings_from(LasSettings, options)),
        RandomOrderPolicy.name: lambda options: RandomOrderPolicy(settings_from(RandomOrderSettings, options)),
        SlaqPolicy.name: lambda options: SlaqPolicy(settings_from(SlaqSettings, options)),
        SrptPolicy.name: lambda options: SrptPolicy(settings_from(SrptSettings, options)),
        SrptOraclePolicy.name: lambda options: SrptOraclePolicy(settings_from(SrptOracleSettings, options)),
        SpeconPolicy.name: lambda options: SpeconPolicy(settings_from(SpeconSettings, options)),
        TradlPolicy.name: lambda options: TradlPolicy(settings_from(TradlSettings, options)),
        UtilityPolicy.name: lambda options: UtilityPolicy(settings_from(UtilitySettings, options)),
    }
)


def create_policy(name: str, options: Options | None = None) -> AnyPolicy:
    """Make a policy.

    Args:
        name: One of :data:`policies`.
        options: Fields of the policy's settings that shall differ from their defaults; text is converted.

    Raises:
        InvalidSpecError: There is no such policy (field ``policy``) or option (field ``policy.OPTION``), or the
            option's value makes no sense.
    """
    factory = policies.get(name)
    if factory is None:
        message = f"There is no policy {name!r}; choose one of {', '.join(sorted(policies))}."
        raise InvalidSpecError(message, field="policy")
    return factory(options or {})


def settings_from(settings_type: type[_SettingsT], options: Options) -> _SettingsT:
    """Make a policy's settings (a dataclass) from options.

    Raises:
        InvalidSpecError: An option is unknown or its value makes no sense; names it.
    """
    hints = typing.get_type_hints(settings_type)
    for name in options:
        if name not in hints:
            known = ", ".join(sorted(hints)) or "none"
            raise InvalidSpecError(f"The policy has no option {name!r}; its options: {known}.", field=f"policy.{name}")
    values = {name: _convert(name, value, hints[name]) for name, value in options.items()}
    try:
        return settings_type(**values)
    except ValueError as error:
        raise InvalidSpecError(f"The policy's options do not fit: {error}.", field="policy") from error


def _convert(name: str, value: Option, hint: object) -> object:
    target = next((part for part in typing.get_args(hint) if part is not types.NoneType), hint)
    try:
        if isinstance(target, type) and issubclass(target, enum.Enum):
            return target(value)
        if target is bool:
            return _TRUTH[str(value).lower()]
        if target in {int, float}:
            number = float(value)
            return _whole(number) if target is int else number
    except (ValueError, OverflowError, KeyError) as error:
        expected = _expectation(target)
        raise InvalidSpecError(
            f"The policy's option {name} is {value!r}; {expected}.", field=f"policy.{name}"
        ) from error
    return value


def _whole(number: float) -> int:
    if number != int(number):
        raise ValueError(number)
    return int(number)


def _expectation(target: object) -> str:
    if isinstance(target, type) and issubclass(target, enum.Enum):
        return f"choose one of {', '.join(str(member.value) for member in target)}"
    if target is bool:
        return "it must be true or false"
    return "it must be a whole number" if target is int else "it must be a number"
