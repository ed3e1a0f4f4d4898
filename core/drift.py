"""Whether what a version is asked has become other than what it was asked at first, as its nodes say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MOST_FEATURES_TOLD: Final = 8


@dataclass(frozen=True, slots=True)
class FeatureDrift:
    """How far one number of a request is from what it was at first."""

    name: str  # such as ``x[3]`` or ``image mean``
    # Largest difference of the two distributions' cumulated frequencies (Kolmogorov and Smirnov), 0 to 1.
    distance: float


@dataclass(frozen=True, slots=True)
class InputDrift:
    """What a node's inference server knows of what one version is asked.

    Attributes:
        version: Its number.
        rows: The rows that are compared, the last ones that were looked at; 0 while these are too few.
        reference_rows: Those that they are compared with: the first ones after the version got live there.
        features: How many numbers of each row are compared.
        drifted: Whether they are other than these.
        bound: The distance above which they are taken for that.
        farthest: The numbers that are farthest off, the farthest first.
        node_id: The node; empty where the node itself says it.
    """

    version: int
    rows: int
    reference_rows: int
    features: int
    drifted: bool
    bound: float
    farthest: tuple[FeatureDrift, ...] = ()
    node_id: str = ""

    @property
    def words(self) -> str:
        """The same for people."""
        at = f" at {self.node_id}" if self.node_id else ""
        if not self.rows:
            return f"too few to compare yet{at}: {self.reference_rows} row{'' if self.reference_rows == 1 else 's'}"
        farthest = ", ".join(f"{each.name} {each.distance:.2g}" for each in self.farthest[:3])
        found = "different from" if self.drifted else "like"
        return f"{found} the first ones{at}; largest distances: {farthest} (different is above {self.bound:.2g})"
