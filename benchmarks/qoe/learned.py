"""A policy trained by reinforcement learning on top of the heuristic (Fang et al., reconstructed; "Fang-style").

It is kept as a small ONNX file and its SHA-256; ``python -m benchmarks.qoe train`` makes both. It is asked only when a
worker is free, scores every allowed action and takes the best, so that the same view always gives the same decision.
It decides as the heuristic does, and is therefore no scheduler of the server.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import onnxruntime as ort

from benchmarks.qoe.observation import FEATURES, KINDS, VARIANTS, Observer, decision_of
from tiercel.serving.scheduling.heuristic import HeuristicScheduler
from tiercel.serving.scheduling.interface import Choice, Ended, View

POLICY = Path(__file__).with_name("policy.onnx")
"""The policy that is kept."""

MANIFEST = Path(__file__).with_name("policy.json")
"""Its checksum and how it was made."""


class PolicyRefusedError(Exception):
    """A policy's file is not what its manifest says, or does not fit; the message says which."""


class Policy:
    """A scoring function of actions.

    Args:
        path: The ONNX file: ``rows`` of shape (actions, features) to ``scores`` of shape (actions,).
        sha256: Of the file, in hexadecimal.

    Raises:
        PolicyRefusedError: The file is missing, is another one, or takes something else.
    """

    def __init__(self, path: Path, sha256: str) -> None:
        try:
            content = path.read_bytes()
        except OSError as error:
            raise PolicyRefusedError(f"policy {path.name} cannot be read: {error.strerror}") from error
        found = hashlib.sha256(content).hexdigest()
        if found != sha256:
            raise PolicyRefusedError(
                f"policy {path.name} has SHA-256 {found}, but {sha256} is expected; train it "
                "anew with 'python -m benchmarks.qoe train'"
            )
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        try:
            self._session = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # ONNX Runtime's errors have no common base
            raise PolicyRefusedError(f"policy {path.name} cannot be loaded: {error}") from error
        shapes = [entry.shape for entry in self._session.get_inputs()]
        if [shape[1:] for shape in shapes] != [[FEATURES]]:
            raise PolicyRefusedError(f"policy {path.name} takes {shapes}, but a row of an observation has {FEATURES}")

    def scores(self, rows: np.typing.NDArray[np.float32]) -> np.typing.NDArray[np.float32]:
        """How good each action is; only their order means something."""
        result: np.typing.NDArray[np.float32] = self._session.run(None, {"rows": rows})[0]
        return result


def kept_policy() -> Policy:
    """The policy that is kept.

    Raises:
        PolicyRefusedError: It was changed or is missing.
    """
    try:
        manifest = json.loads(MANIFEST.read_text(encoding="utf-8"))
        sha256 = str(manifest["sha256"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PolicyRefusedError(f"the policy's manifest {MANIFEST.name} cannot be read: {error!r}") from error
    return Policy(POLICY, sha256)


class LearnedScheduler:
    """Takes the action that the policy scores highest.

    With more than :data:`VARIANTS` variants, or :data:`KINDS` kinds of workers, it takes the heuristic's.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._heuristic = HeuristicScheduler()
        self._observer: Observer | None = None

    def decide(self, view: View) -> Choice | None:
        """See :meth:`Scheduler.decide`."""
        if len(view.variants) > VARIANTS or len(view.kinds) > KINDS:
            return self._heuristic.decide(view)
        observer = self._observer
        if observer is None or not observer.is_of(view):
            observer = self._observer = Observer(view.kinds, view.objective, view.utility)
        scores = self._policy.scores(observer.observe(view))
        scores[~observer.allowed(view)] = -np.inf
        return decision_of(int(scores.argmax()))

    def ended(self, run: Ended) -> None:
        """Changes nothing."""
