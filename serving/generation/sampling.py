"""Which token comes next. Pure: chance is an argument."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tiercel.core.errors import InferenceFailedError
from tiercel.serving.tensors import Array


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen."""

    temperature: float = 0.0  # what logits are divided by; 0 for the likeliest token, always
    top_k: int = 0  # only so many of the likeliest count; 0 for all
    # Only the likeliest count that are together at least so likely (nucleus sampling, Holtzman et al. 2020); 1 for all.
    top_p: float = 1.0


GREEDY = Sampling()


def next_token(logits: Array, sampling: Sampling, chance: float) -> int:
    """The id of the token that comes next; of equally likely ones the smallest id is first.

    Args:
        logits: [vocabulary].
        sampling: How to choose.
        chance: Drawn evenly from [0, 1); the same gives the same.

    Raises:
        InferenceFailedError: The logits are no numbers.
    """
    best = int(np.argmax(logits))  # the first that is NaN, if there is one
    if not np.isfinite(logits[best]):
        raise InferenceFailedError("the model gave logits that are no numbers; it is broken, or was trained to nothing")
    if sampling.temperature == 0.0:
        return best
    with np.errstate(over="ignore"):
        scaled = (logits.astype(np.float64) - float(logits[best])) / sampling.temperature
    ids = np.argsort(-scaled, kind="stable")
    if sampling.top_k:
        ids = ids[: sampling.top_k]
    likely = np.exp(scaled[ids])
    reached = np.cumsum(likely)
    if sampling.top_p < 1.0:
        kept = int(np.searchsorted(reached, sampling.top_p * reached[-1])) + 1
        ids, reached = ids[:kept], reached[:kept]
    return int(ids[min(int(np.searchsorted(reached, chance * reached[-1], side="right")), len(ids) - 1)])
