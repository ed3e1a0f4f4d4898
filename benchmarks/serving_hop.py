"""What a hop from one inference server to another costs a request: ``python -m benchmarks.serving_hop``.

A small MLP (64-128-10) on one server, asked there and at others that hand the requests on, in the clear and by TLS, in
turns, A B A B, on one connection and on eight. wrk and the servers share the machine's cores.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import tempfile
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from benchmarks.serving.bodies import Body
from benchmarks.serving.load_tools import wrk
from testing import onnx_models
from testing.routes import write_routes
from testing.serving_process import ServingProcess, serving
from tiercel.broker.trust.authority import Authority
from tiercel.core.routes import Backend
from tiercel.core.trust.certificates import key_to_pem, make_key, to_pem

WIDE = "127.0.0.2"
NAMES = ("there", "clear", "tls")
CONNECTIONS = (1, 8)


def settings_of(folder: Path, node: str, authority: Authority) -> dict[str, object]:
    """Certificates of a node, and its server's settings."""
    key = make_key()
    certificate = authority.issue_to_node(node, key.public_key(), datetime.now(UTC))
    (folder / "identity.pem").write_bytes(key_to_pem(key) + to_pem(certificate, authority.certificate))
    (folder / "authority.pem").write_bytes(to_pem(authority.certificate))
    (folder / "token").write_text("t" * 43)
    (folder / "token").chmod(0o600)
    return {
        "tls_host": WIDE,
        "tls_identity": folder / "identity.pem",
        "tls_authority": folder / "authority.pem",
        "operator_token_file": folder / "token",
        "routes_file": folder / "routes.json",
    }


@contextlib.contextmanager
def servers(root: Path) -> Iterator[Mapping[str, ServingProcess]]:
    """The server with the model, one that hands on to it in the clear, and one that does by TLS."""
    authority = Authority.create(datetime.now(UTC))
    onnx_models.put(root / "there" / "models", "mlp", 1, onnx_models.mlp())
    found: dict[str, ServingProcess] = {}
    with contextlib.ExitStack() as stack:
        for name in NAMES:
            folder = root / name
            (folder / "models").mkdir(parents=True, exist_ok=True)
            settings = settings_of(folder, name, authority)
            if name != "there":
                https = json.loads((root / "there" / "serving.json").read_text())["https"]
                address = {"https": https} if name == "tls" else {"http": found["there"].http}
                write_routes(folder / "routes.json", name, {"mlp": (Backend("there", 1, **address),)})
            found[name] = stack.enter_context(serving(folder / "models", folder, settings))
        yield found


def measure(found: Mapping[str, ServingProcess], seconds: float, rounds: int, folder: Path) -> None:
    """Ask in turns, and print the medians."""
    features = np.random.default_rng(0).random(64).round(4).tolist()
    content = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 64], "data": features}]})
    body = Body(content.encode(), {})
    for connections in CONNECTIONS:
        medians: dict[str, list[float]] = {name: [] for name in NAMES}
        for turn in range(rounds + 1):
            for name in NAMES:
                load = wrk(f"http://{found[name].http}/v2/models/mlp/infer", body, connections, seconds, folder)
                if load.failed:
                    raise RuntimeError(f"{load.failed} requests failed at {name}")
                if turn:  # the first is to warm up
                    medians[name].append(load.p50_ms)
        there = statistics.median(medians["there"])
        for name in NAMES:
            of_rounds = ", ".join(f"{each:.3f}" for each in medians[name])
            more = statistics.median(medians[name]) - there
            print(f"{connections:2d} connections  {name:6s} p50 {of_rounds} ms  {more:+.3f} ms")


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each turn, whole ones")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, servers(Path(directory)) as found:
        measure(found, given.seconds, given.rounds, Path(directory))


if __name__ == "__main__":
    main()
