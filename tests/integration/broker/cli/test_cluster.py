"""Commands about nodes, endpoints and the program."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner

import tiercel as package
from testing import jobs_service as wire
from testing.command_line import Tiercel
from testing.free_ports import free_port
from testing.jobs_service import Script
from tiercel.broker.cli import app
from tiercel.v1 import common_pb2, jobs_pb2

WINDOW = common_pb2.DelayWindow(seconds=9.8, answers=7, failures=2, in_objective=7 / 9, p95_seconds=0.042)


def test_nodes(tiercel: Tiercel, script: Script) -> None:
    assert "tiercel up" in tiercel("nodes").stderr
    script.nodes.append(
        jobs_pb2.Node(
            id="n1",
            state=jobs_pb2.NODE_STATE_OFFLINE,
            cpu_cores=2,
            memory_bytes=8 << 30,
            memory_reserved_bytes=512 << 20,
            jobs=1,
            runtimes=["docker", "process"],
            limits="cgroup-v2",
        )
    )

    row = tiercel("nodes").stdout.splitlines()[1]

    assert " ".join(row.split()) == "n1 offline 2 512 MiB of 8 GiB 1 docker,process cgroup-v2 -"
    told = json.loads(tiercel("nodes", "--json").stdout)[0]
    assert (told["online"], told["accelerators"]) == (False, [])
    assert "GPU" not in tiercel("nodes").stdout


def test_labels_of_nodes(tiercel: Tiercel, script: Script) -> None:
    script.nodes.append(jobs_pb2.Node(id="n1", cpu_cores=2, labels={"room": "cellar", "disk": "ssd"}))
    lines = [line.split() for line in tiercel("nodes").stdout.splitlines()]
    assert lines[2:] == [[], ["NODE", "LABEL"], ["n1", "disk=ssd"], ["n1", "room=cellar"]]
    assert json.loads(tiercel("nodes", "--json").stdout)[0]["labels"] == {"room": "cellar", "disk": "ssd"}


def test_accelerators_of_nodes(tiercel: Tiercel, script: Script) -> None:
    busy = jobs_pb2.NodeAccelerator(
        id="GPU-1",
        name="NVIDIA H100 80GB HBM3",
        memory_bytes=79 << 30,
        memory_reserved_bytes=24 << 30,
        memory_used_bytes=20 << 30,
        utilisation=0.875,
        jobs=2,
    )
    ill = jobs_pb2.NodeAccelerator(id="MIG-2", name="A\x1b slice", memory_bytes=10 << 30, problem="The driver lost it.")
    online = jobs_pb2.NODE_STATE_ONLINE
    script.nodes.append(jobs_pb2.Node(id="n1", state=online, cpu_cores=2, accelerators=[busy, ill]))

    lines = tiercel("nodes").stdout.splitlines()

    assert lines[2] == ""
    assert lines[3].split() == ["NODE", "GPU", "MAKE", "MEMORY", "HELD", "BUSY", "JOBS", "PROBLEM"]
    assert " ".join(lines[4].split()) == "n1 GPU-1 NVIDIA H100 80GB HBM3 24 GiB of 79 GiB 20 GiB 88 % 2 -"
    assert " ".join(lines[5].split()) == "n1 MIG-2 A\ufffd slice 0 B of 10 GiB 0 B - 0 The driver lost it."
    first, second = json.loads(tiercel("nodes", "--json").stdout)[0]["accelerators"]
    assert (first["utilisation"], first["memory_reserved_bytes"], first["jobs"]) == (0.875, 24 << 30, 2)
    assert (second["id"], second["utilisation"], second["problem"]) == ("MIG-2", None, "The driver lost it.")


def test_an_endpoint_is_deleted_by_its_name(tiercel: Tiercel, script: Script) -> None:
    script.endpoints += [jobs_pb2.Endpoint(name=name, tenant="alice") for name in ("digits", "other")]

    assert tiercel("endpoints", "delete", "digits").stdout == "Endpoint digits is deleted; its name is free.\n"
    assert [endpoint["name"] for endpoint in json.loads(tiercel("endpoints", "--json").stdout)] == ["other"]
    gone = tiercel("endpoints", "delete", "digits")
    assert (gone.exit_code, "there is no endpoint 'digits'" in gone.stderr) == (1, True)
    assert json.loads(tiercel("endpoints", "delete", "other", "--json").stdout) == {"deleted": "other"}


def test_options_before_deleting_are_not_ignored() -> None:
    """To ask the wrong tenant's broker may delete another endpoint of the same name."""
    result = CliRunner().invoke(app, ["endpoints", "--tenant", "bob", "delete", "digits"])
    assert result.exit_code == 2
    assert "Give --tenant behind 'delete'" in result.output


def test_explain_of_an_endpoint(tiercel: Tiercel, script: Script) -> None:
    script.endpoints += [
        jobs_pb2.Endpoint(
            name="timed",
            tenant="alice",
            node_id="n1",
            objective_seconds=0.05,
            share=common_pb2.Share(cpu_weight=0.25, cpu_cap_cores=0.5, reason="slower than it should be"),
            load=jobs_pb2.EndpointLoad(requests_per_second=8.0, cpu_cores=0.4, windows=[WINDOW]),
        )
    ]
    assert "not decided" in tiercel("explain", "--endpoint", "timed").stdout
    share = common_pb2.Share(cpu_weight=0.25, cpu_cap_cores=0.5, reason="slower than it should be")
    script.decisions += [
        jobs_pb2.Decision(at=wire.SUBMITTED, policy="dqoes", trigger="interval", node_id="n1", share=share)
    ]

    output = tiercel("explain", "--endpoint", "timed").stdout

    assert "share     25 % ≤0.5: slower than it should be" in output
    assert "last  10 s  7 answers, 2 failures, p50 / p95 / p99 - / 42 ms / -, in time 78 %" in output
    assert "interval  dqoes   n1    25 % ≤0.5  slower than it should be" in output
    explanation = json.loads(tiercel("explain", "--endpoint", "timed", "--json").stdout)
    assert explanation["endpoint"]["name"] == "timed"
    assert explanation["decisions"][0]["share"]["cpu_cap_cores"] == 0.5
    assert "There is no endpoint 'other'" in tiercel("explain", "--endpoint", "other").stderr
    for wrong in ((), ("j1", "--endpoint", "timed")):
        assert "Name either a job" in tiercel("explain", *wrong).stderr


def test_endpoints(tiercel: Tiercel, script: Script) -> None:
    assert "first job" in tiercel("endpoints").stderr
    version = jobs_pb2.EndpointVersion(
        version=2, job_id="j1", tier=1, metric="accuracy", value=0.91, delivered_at=wire.SUBMITTED
    )
    script.endpoints += [
        jobs_pb2.Endpoint(
            name="digits",
            live_version=2,
            versions=[version],
            node_id="n1",
            serving_http="127.0.0.1:8000",
            access=common_pb2.ENDPOINT_ACCESS_KEY,
        ),
        jobs_pb2.Endpoint(name="empty"),
        jobs_pb2.Endpoint(
            name="timed",
            objective_seconds=0.05,
            share=common_pb2.Share(cpu_weight=0.25, cpu_cap_cores=0.5, reason="slower than it should be"),
            load=jobs_pb2.EndpointLoad(
                requests_per_second=8.0, delay_seconds=0.0123, cpu_cores=0.4, in_objective=0.9996, windows=[WINDOW]
            ),
        ),
        jobs_pb2.Endpoint(name="asked", load=jobs_pb2.EndpointLoad(requests_per_second=8.0, delay_seconds=0.002)),
        jobs_pb2.Endpoint(name="unasked", objective_seconds=0.05, load=jobs_pb2.EndpointLoad()),
    ]

    _, first, second, timed, asked, unasked = tiercel("endpoints").stdout.splitlines()

    where = ["key", "n1", "127.0.0.1:8000"]
    assert first.split() == ["digits", "2", "accuracy", "0.91", "j1", "-", "-", "-", "-", *where]
    own = ["tenant", "-", "-"]
    assert second.split() == ["empty", *["-"] * 8, *own]
    assert timed.split()[5:] == ["12.3", "of", "50", "ms", "42", "ms", ">", "99", "%", "25", "%", "≤0.5", *own]
    assert asked.split()[5:] == ["2", "ms", "-", "-", "-", *own]
    assert unasked.split()[5:] == ["-", "of", "50", "ms", "-", "-", "-", *own]
    found = json.loads(tiercel("endpoints", "--json").stdout)
    assert found[0]["versions"][0]["job_id"] == "j1"
    assert {key: found[0][key] for key in ("objective_seconds", "share", "requests_per_second", "cpu_cores")} == {
        "objective_seconds": None,
        "share": None,
        "requests_per_second": None,
        "cpu_cores": None,
    }
    assert (found[2]["objective_seconds"], found[2]["delay_seconds"], found[2]["cpu_cores"]) == (0.05, 0.0123, 0.4)
    assert found[2]["share"]["reason"] == "slower than it should be"
    assert (found[2]["in_objective"], found[2]["windows"][0]["p95_seconds"]) == (0.9996, 0.042)
    assert found[2]["windows"][0]["p99_seconds"] is None
    assert found[4]["delay_seconds"] is None
    assert found[4]["requests_per_second"] == 0


def test_an_endpoint_with_variants(tiercel: Tiercel, script: Script) -> None:
    versions = [
        jobs_pb2.EndpointVersion(
            version=number,
            job_id=f"j{number}",
            metric="accuracy",
            value=value,
            variant=name,
            delivered_at=wire.SUBMITTED,
        )
        for number, value, name in ((1, 0.8, "small"), (2, 0.9, "large"), (3, 0.85, "small"))
    ]
    variants = [
        jobs_pb2.EndpointVariant(name="large", live_version=2, accuracy=0.9, answered_part=0.25),
        jobs_pb2.EndpointVariant(name="small", live_version=3, accuracy=0.85),
    ]
    script.endpoints.append(
        jobs_pb2.Endpoint(
            name="digits", live_version=3, versions=versions, variants=variants, node_id="n1", serving_http="h:1"
        )
    )

    _, endpoint, large, small = tiercel("endpoints").stdout.splitlines()
    assert endpoint.split() == ["digits", "2", "variants", "-", "-", "-", "-", "tenant", "n1", "h:1"]
    assert large.split() == ["large", "2", "accuracy", "0.9", "j2", "25", "%"]
    assert small.split() == ["small", "3", "accuracy", "0.85", "j3", "-"]
    (found,) = json.loads(tiercel("endpoints", "--json").stdout)
    more = {"answering_version": None, "problem": "", "pinned": False}
    assert found["variants"] == [
        {"name": "large", "live_version": 2, "accuracy": 0.9, "answered_part": 0.25, **more},
        {"name": "small", "live_version": 3, "accuracy": 0.85, "answered_part": None, **more},
    ]
    assert [version["variant"] for version in found["versions"]] == ["small", "large", "small"]
    explained = tiercel("explain", "--endpoint", "digits").stdout
    assert "variant   large, version 2 with accuracy 0.9, gave 25 % of the answers lately" in explained
    assert "variant   small, version 3 with accuracy 0.85\n" in explained


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not JSON"),
        ("[1]", "must hold an object"),
        ("null", "must hold an object"),
        ('{"input": ' + "[" * 100_000, "nested deeper"),
        (None, "cannot be read"),
    ],
)
def test_infer_with_inputs_that_cannot_be_used(
    tiercel: Tiercel, tmp_path: Path, content: str | None, message: str
) -> None:
    file = tmp_path / "inputs.json"
    if content is not None:
        file.write_text(content)

    result = tiercel("infer", "digits", str(file))

    assert result.exit_code == 1
    assert message in result.stderr


def test_infer_of_an_endpoint_that_is_not_there(tiercel: Tiercel) -> None:
    result = tiercel("infer", "digits", input='{"input": [[1]]}')

    assert result.exit_code == 1
    assert "There is no endpoint 'digits'" in result.stderr


def test_version() -> None:
    assert CliRunner().invoke(app, ["version"]).stdout == f"tiercel {package.__version__}\n"
    assert json.loads(CliRunner().invoke(app, ["version", "--json"]).stdout) == {"version": package.__version__}


def test_no_broker_is_a_sentence_that_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIERCEL_TOKEN", "any")

    nothing = CliRunner().invoke(app, ["ls", "--state-dir", str(tmp_path)])
    address = f"127.0.0.1:{free_port()}"
    away = CliRunner().invoke(app, ["ls", "--broker", address])
    asked = CliRunner().invoke(app, ["infer", "digits", "--broker", address], input='{"input": [[1]]}')

    assert (nothing.exit_code, away.exit_code) == (1, 1)
    assert "start one with 'tiercel up'" in nothing.stderr
    assert f"The broker at {address} does not answer; start it with 'tiercel up'" in away.stderr
    assert "does not answer; start it" in asked.stderr
    assert "answers without a broker: --at ADDRESS" in asked.stderr


def test_a_token_is_not_to_be_had_on_the_command_line(tiercel: Tiercel) -> None:
    assert tiercel("ls", "--token", "secret").exit_code == 2


def test_the_token_of_the_tenant_named(
    address: str, script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TIERCEL_TOKEN", raising=False)
    (tmp_path / "addresses.json").write_text(json.dumps({"broker": address}))
    (tmp_path / "tenants.toml").write_text(f'[tenants.default]\ntoken = "wrong"\n[tenants.a]\ntoken = "{wire.TOKEN}"\n')
    script.jobs["j1"] = wire.job()

    refused = CliRunner().invoke(app, ["ls", "--state-dir", str(tmp_path)])
    listed = CliRunner().invoke(app, ["ls", "--state-dir", str(tmp_path), "--tenant", "a"])

    assert (refused.exit_code, listed.exit_code) == (1, 0)
    assert refused.stderr == "Error: The token belongs to no tenant.\n"


class _Metadata(BaseHTTPRequestHandler):
    """Says of any model that it takes numbers."""

    def do_GET(self) -> None:
        body = json.dumps(
            {"name": "digits", "inputs": [{"name": "input", "datatype": "FP32", "shape": [-1, 2]}]}
        ).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - as the library calls it
        """Nothing."""


@contextlib.contextmanager
def answering_models() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), _Metadata) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("content", ['{"input":"hello"}', '{"input":null}', '{"input":{"a":1}}', '{"input":[[{}]]}'])
def test_infer_with_texts_nulls_or_objects_is_a_sentence(tiercel: Tiercel, script: Script, content: str) -> None:
    with answering_models() as address:
        script.endpoints.append(jobs_pb2.Endpoint(name="digits", live_version=1, serving_http=address))
        result = tiercel("infer", "digits", input=content)

    assert result.exit_code == 1
    assert result.stderr.startswith("Error: input: the model takes FP32, and ")
    assert "give nested lists of finite numbers" in result.stderr


def test_infer_says_on_a_terminal_that_it_waits_for_inputs(tmp_path: Path) -> None:
    terminal, side = pty.openpty()
    command = [sys.executable, "-m", "tiercel", "infer", "digits", "--state-dir", str(tmp_path)]
    process = subprocess.Popen(command, stdin=side, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    os.close(side)
    try:
        assert process.stderr is not None
        assert "Waiting for JSON" in process.stderr.readline()
        os.write(terminal, b"\n\x04")
        _, errors = process.communicate(timeout=90)
        assert "standard input is empty; give an object" in errors
    finally:
        process.kill()
        process.wait()
        os.close(terminal)


@pytest.mark.parametrize("arguments", [("-h",), ("ls", "-h"), ("up", "-h"), ("endpoints", "delete", "-h")])
def test_help_is_short_too(arguments: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 0
    assert "Usage:" in result.stdout


def test_version_as_an_option() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"tiercel {package.__version__}\n")


def test_promote_and_roll_back(tiercel: Tiercel, script: Script) -> None:
    versions = [
        jobs_pb2.EndpointVersion(
            version=number,
            job_id=f"j{number}",
            metric="accuracy",
            value=value,
            delivered_at=wire.SUBMITTED,
            kept=True,
            live=number == 3,
            held="0.5 is worse than 0.9 of version 1" if number == 2 else "",
        )
        for number, value in ((1, 0.9), (2, 0.5), (3, 0.95))
    ]
    script.endpoints += [jobs_pb2.Endpoint(name="digits", live_version=3, versions=versions, node_id="n1")]

    back = tiercel("models", "rollback", "digits").stdout

    assert back.splitlines() == [
        "digits answers with version 2 as soon as node n1 has loaded it.",
        "It stays whatever is delivered, until 'tiercel models promote digits latest'.",
    ]
    script.endpoints[0].answering_version = 3
    _, line = tiercel("endpoints").stdout.splitlines()
    assert "2 (pinned, 3 answers)" in line
    script.endpoints[0].problem = "The files of version 2 are not on this node any more."
    explained = tiercel("explain", "--endpoint", "digits").stdout
    assert "problem   The files of version 2 are not on this node any more." in explained
    assert "kept      version 2 with accuracy 0.5: 0.5 is worse than 0.9 of version 1" in explained
    assert tiercel("models", "promote", "digits", "latest").stdout == (
        "digits answers with version 3 as soon as node n1 has loaded it.\n"
    )
    assert json.loads(tiercel("models", "promote", "digits", "1", "--json").stdout)["live_version"] == 1
    assert json.loads(tiercel("models", "rollback", "digits", "3", "--json").stdout)["pinned"] is False
    for wrong in ("new", "0", "1.5", "²"):
        failed = tiercel("models", "promote", "digits", wrong)
        assert (failed.exit_code, "is no version; give a number such as 2" in failed.stderr) == (1, True)
