"""Makes a cheap variant of an ONNX file by ONNX Runtime's tools, in a process of its own with limits.

``python -m tiercel.trainer_agent.trainer.variant_making ORDER``: the order is a JSON file that names the kind, the
model, rows to calibrate on, and where the result goes. Whatever a model does to the process that takes it apart ends
with that process; the training hears of it as a reason.

An int8 model is quantised. With rows it is static (quantised operators with a scale for each tensor, by the smallest
and largest number that rows led to there), else dynamic. Weights have 7 bits: with 8, sums of products overflow 16 bits
on CPUs that have no VNNI, and a model would answer otherwise on another node than where it was measured.

An fp16 model takes and gives what the original does, and computes in float16 between, but for operators that are known
to need more. Weights beyond float16 become its largest number; what that costs is measured like the rest.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from tiercel.core.cheap_variants import VariantKind
from tiercel.trainer_agent.errors import DeliveryFailedError
from tiercel.trainer_agent.trainer.signature import Array
from tiercel.trainer_agent.trainer.verification import first_line

CPU_SECONDS: Final = 200
"""What making one may take."""
WALL_SECONDS: Final = 240.0
"""The same of all time, for all of a model together: a script is silent meanwhile, and counts as hung after 300 s."""
_MEMORY_BYTES: Final = 2 * 1024**3
# It is read as a whole, copied, and written more than once.
_MEMORY_PER_BYTE: Final = 12
_FILE_BYTES: Final = 64 * 1024**2
_FILES_PER_BYTE: Final = 2
_ROWS_AT_ONCE: Final = 16
_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h
_FIRST_TO_GO: Final = 1000
# None of what an agent or a tenant has told the script is needed for it.
_ENVIRONMENT: Final = ("PATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "HOME", "VIRTUAL_ENV")
# Where a model's time goes, if cheaper numbers are to save any; trees and the like have none of these.
_WORTH_IT: Final = frozenset({"MatMul", "Gemm", "Conv", "ConvTranspose", "LSTM", "Attention"})

_ORDER, _ROWS, _ANSWER = "order.json", "rows.npz", "answer.json"


def make(
    kind: VariantKind,
    model: Path,
    target: Path,
    rows: Mapping[str, Array] | None,
    scratch: Path,
    seconds: float = WALL_SECONDS,
) -> str:
    """Make a cheap variant of a file. Blocks, for seconds.

    Args:
        kind: Which.
        model: The ONNX file.
        target: Where the variant goes.
        rows: Real rows by the model's inputs, to calibrate on; None where there are none.
        scratch: An empty folder that is there for it.
        seconds: What it may take of all time.

    Returns:
        How it was made, in words.

    Raises:
        DeliveryFailedError: It cannot be made; says why.
    """
    order = {"kind": kind.value, "model": str(model), "target": str(target), "rows": rows is not None}
    (scratch / _ORDER).write_text(json.dumps(order), encoding="utf-8")
    if rows is not None:
        np.savez(scratch / _ROWS, allow_pickle=False, **{f"input_{name}": array for name, array in rows.items()})
    environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    environment |= {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "TMPDIR": str(scratch)}
    command = [sys.executable, "-P", "-m", __name__, str(scratch / _ORDER)]
    silent = subprocess.DEVNULL
    try:
        ended = subprocess.run(
            command, env=environment, timeout=seconds, check=False, stdin=silent, stdout=silent, stderr=silent
        )
    except subprocess.TimeoutExpired:
        raise DeliveryFailedError(f"making it took longer than {seconds:.0f} s") from None
    try:
        answer: dict[str, Any] = json.loads((scratch / _ANSWER).read_bytes())
    except (OSError, ValueError):
        raise DeliveryFailedError(_why_ended(ended.returncode)) from None
    if "error" in answer:
        raise DeliveryFailedError(str(answer["error"]))
    return str(answer["made"])


def _why_ended(code: int) -> str:
    if code in (-signal.SIGXCPU, -signal.SIGKILL):
        return f"making it took more than {CPU_SECONDS} s of CPU, or more memory than the job has"
    return f"the process that made it ended with {code}"


def main(order_path: Path) -> None:
    """Make what was ordered, and write what came of it beside the order."""
    _end_with_parent()
    _let_others_have_memory()
    order = json.loads(order_path.read_bytes())
    model, target = Path(order["model"]), Path(order["target"])
    _limit(model.stat().st_size)
    answer = order_path.with_name(_ANSWER)
    try:
        rows = order_path.with_name(_ROWS) if order["rows"] else None
        made = {"made": _make(VariantKind(order["kind"]), model, target, rows)}
    except DeliveryFailedError as error:
        made = {"error": error.message}
    except MemoryError:
        made = {"error": "making it takes more memory than one model may take"}
    except Exception as error:  # whatever a model provokes in these libraries is a reason to go without
        made = {"error": first_line(error)}
    answer.write_text(json.dumps(made), encoding="utf-8")


def _make(kind: VariantKind, model: Path, target: Path, rows: Path | None) -> str:
    import onnx

    original = onnx.load(model)
    if not {node.op_type for node in original.graph.node} & _WORTH_IT:
        raise DeliveryFailedError(f"it has no operator that {kind} makes faster, such as MatMul, Gemm or Conv")
    return _halve(original, target) if kind is VariantKind.FP16 else _quantise(model, target, rows)


def _halve(original: Any, target: Path) -> str:
    """Compute in float16: the library leaves new nodes at the end, where the standard does not allow them."""
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16
    from onnxruntime.transformers.onnx_model import OnnxModel

    graph, single = original.graph, onnx.TensorProto.FLOAT
    constants = (value.t for node in graph.node if node.op_type == "Constant" for value in node.attribute)
    if all(tensor.data_type != single for tensor in (*graph.initializer, *constants)):
        raise DeliveryFailedError("it has no weights in float32")
    converted = OnnxModel(convert_float_to_float16(original, keep_io_types=True))
    converted.topological_sort()
    onnx.save(converted.model, target)
    return "weights in float16"


def _quantise(model: Path, target: Path, rows: Path | None) -> str:
    from onnxruntime import quantization

    types = {"weight_type": quantization.QuantType.QInt8, "per_channel": True, "reduce_range": True}
    if rows is None:
        quantization.quantize_dynamic(model, target, **types)
        return "dynamic"
    reader = _reader(rows)
    quantization.quantize_static(model, target, reader, activation_type=quantization.QuantType.QUInt8, **types)
    return f"static, calibrated on {reader.count} rows"


def _reader(path: Path) -> Any:
    from onnxruntime.quantization import CalibrationDataReader

    class Rows(CalibrationDataReader):  # type: ignore[misc] # the library has no types
        """A few rows at once, so that calibration keeps few numbers in memory."""

        def __init__(self) -> None:
            with np.load(path, allow_pickle=False) as arrays:
                feeds = {name.removeprefix("input_"): arrays[name] for name in arrays.files}
            self.count = len(next(iter(feeds.values())))
            self._parts = iter(
                {name: array[begin : begin + _ROWS_AT_ONCE] for name, array in feeds.items()}
                for begin in range(0, self.count, _ROWS_AT_ONCE)
            )

        def get_next(self) -> dict[str, Array] | None:
            """The next rows by input; None after the last."""
            return next(self._parts, None)

    return Rows()


def _limit(size: int) -> None:
    for which, amount in (
        (resource.RLIMIT_CPU, CPU_SECONDS),
        (resource.RLIMIT_DATA, _MEMORY_BYTES + _MEMORY_PER_BYTE * size),
        (resource.RLIMIT_FSIZE, _FILE_BYTES + _FILES_PER_BYTE * size),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(which)
        amount = amount if hard == resource.RLIM_INFINITY else min(amount, hard)
        resource.setrlimit(which, (amount, amount))


def _end_with_parent() -> None:
    """Have the kernel kill this process when the script ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _let_others_have_memory() -> None:
    """Where the job has no more memory the kernel ends this process, and not the training."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(f"{_FIRST_TO_GO}", encoding="ascii")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
