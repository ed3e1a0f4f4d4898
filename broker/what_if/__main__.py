"""The child process that answers one question: a pickled :class:`.Question` on stdin, a :class:`.Told` on stdout.

Pickled and not as JSON: to import what reads and writes that takes longer than many an answer.
"""

from __future__ import annotations

import os
import pickle
import resource
import sys

from tiercel.broker.simulation.scenario import SimulationError
from tiercel.broker.what_if.answer import answer
from tiercel.broker.what_if.present import Question, Told
from tiercel.core.errors import TiercelError

MEMORY_BYTES = 2 * 1024**3
CPU_SECONDS = 20
# So much lower stands a question that nobody waits for in the order of processes (nice).
PATIENCE = 15


def main() -> None:
    """Answer, or say why not."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    question: Question = pickle.load(sys.stdin.buffer)  # noqa: S301 - from the broker that started this process, nobody else
    if question.is_patient:
        os.nice(PATIENCE)
    try:
        told = Told(answer(question))
    except TiercelError as error:
        told = Told(code=type(error).__name__, error=error.message, field=error.field)
    except SimulationError as error:
        told = Told(error=str(error))
    except Exception as error:  # a policy may raise anything
        told = Told(error=f"the simulation failed: {type(error).__name__}: {error}"[:500])
    pickle.dump(told, sys.stdout.buffer)


if __name__ == "__main__":
    main()
