"""Closed-loop load by tools that everybody has: wrk for HTTP/1.1, h2load for gRPC (Debian: wrk, nghttp2-client)."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.serving.bodies import ID_PLACE, Body
from benchmarks.serving.environments import UnavailableError

PACKAGES = {"wrk": "wrk", "h2load": "nghttp2-client"}
GRPC_PATH = "/inference.GRPCInferenceService/ModelInfer"
_SPARE_SECONDS = 20.0

WRK_SCRIPT = """
init = function(args)
  wrk.method = "POST"
  local bodies = {}
  local place = args[1]
  local file = assert(io.open(args[2], "rb"))
  for size in assert(io.open(args[2] .. ".sizes", "r")):lines() do bodies[#bodies + 1] = file:read(tonumber(size)) end
  file:close()
  for index = 3, #args, 2 do wrk.headers[args[index]] = args[index + 1] end
  wrk.body = bodies[1]
  local from, to = bodies[1]:find(place, 1, true)
  local turn = 0
  if from then
    -- An id of as many digits as the place has characters: the length in the headers stays right.
    local whole = wrk.format()
    from, to = whole:find(place, 1, true)
    local before, after, digits = whole:sub(1, from - 1), whole:sub(to + 1), "%0" .. (to - from + 1) .. "d"
    request = function()
      turn = turn + 1
      return before .. digits:format(turn) .. after
    end
  elseif #bodies > 1 then
    local requests = {}
    for index = 1, #bodies do requests[index] = wrk.format(nil, nil, nil, bodies[index]) end
    request = function()
      turn = turn % #requests + 1
      return requests[turn]
    end
  end
end
done = function(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format('RESULT {"requests":%d,"seconds":%.6f,"p50_us":%.1f,"p99_us":%.1f,"failed":%d}\\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50), latency:percentile(99),
    errors.connect + errors.read + errors.write + errors.status + errors.timeout))
end
"""


@dataclass(frozen=True, slots=True)
class Load:
    """What a load tool saw in a window."""

    requests: int  # answers that came
    seconds: float  # how long it asked
    p50_ms: float  # half of the answers were at least so fast
    p99_ms: float  # all but a hundredth were
    failed: int  # answers that were errors, and requests without one

    @property
    def rate(self) -> float:
        """Good answers a second."""
        return max(0, self.requests - self.failed) / self.seconds if self.seconds else 0.0


def missing_tools(names: Sequence[str]) -> list[str]:
    """Sentences about tools that are not there."""
    return [
        f"{name} is not installed; Debian has it: apt-get install {PACKAGES[name]}"
        for name in names
        if shutil.which(name) is None
    ]


def wrk(url: str, body: Body, connections: int, seconds: float, folder: Path) -> Load:
    """Ask on so many connections, one thread, for so long.

    Args:
        url: Where.
        body: What; see :class:`~benchmarks.serving.bodies.Bodies`.
        connections: Each asks again as soon as it has its answer.
        seconds: Rounded up to whole ones, which is what wrk understands.
        folder: For the script and the body.

    Raises:
        UnavailableError: wrk said no.
    """
    script, content = folder / "wrk.lua", folder / "wrk.body"
    script.write_text(WRK_SCRIPT, encoding="utf-8")
    bodies = (body.content, *body.others)
    content.write_bytes(b"".join(bodies))
    content.with_name("wrk.body.sizes").write_text("".join(f"{len(each)}\n" for each in bodies), encoding="ascii")
    headers = [part for header in body.headers.items() for part in header]
    duration = math.ceil(seconds)
    command = ["wrk", "-t1", f"-c{connections}", f"-d{duration}s", "--timeout", "10s", "-s", str(script), url, "--"]
    output = _run([*command, ID_PLACE, str(content), *headers], duration)
    line = next((line for line in output.splitlines() if line.startswith("RESULT ")), None)
    if line is None:
        raise UnavailableError(f"wrk: {output.strip()[-300:]}")
    found = json.loads(line.removeprefix("RESULT "))
    p50, p99 = (round(found[name] / 1e3, 4) for name in ("p50_us", "p99_us"))
    return Load(found["requests"], found["seconds"], p50, p99, found["failed"])


def h2load(port: int, body: Body, connections: int, seconds: float, folder: Path) -> Load:
    """Ask by gRPC on so many connections, one stream each, one thread, for so long.

    h2load does not look at ``grpc-status``; whoever calls checks an answer before and after.

    Raises:
        UnavailableError: h2load said no.
    """
    content, log = folder / "h2load.body", folder / "h2load.log"
    content.write_bytes(body.content)
    log.unlink(missing_ok=True)
    duration = math.ceil(seconds)
    command = ["h2load", "-t1", f"-c{connections}", "-m1", f"-D{duration}", "-d", str(content), f"--log-file={log}"]
    headers = ["-H", "content-type: application/grpc", "-H", "te: trailers"]
    output = _run([*command, *headers, f"http://127.0.0.1:{port}{GRPC_PATH}"], duration)
    if not log.exists():
        raise UnavailableError(f"h2load: {output.strip()[-300:]}")
    return _load_in(log.read_text(encoding="ascii"), duration)


def _load_in(log: str, seconds: float) -> Load:
    """Each line is when a request was sent (us), its HTTP status, and how long it took (us)."""
    rows = [line.split("\t") for line in log.splitlines()]
    took = sorted(int(row[2]) for row in rows if row[1] == "200")
    failed = len(rows) - len(took)
    if not took:
        return Load(0, seconds, 0.0, 0.0, failed)
    p50, p99 = (took[min(len(took) - 1, int(len(took) * part))] / 1e3 for part in (0.5, 0.99))
    return Load(len(rows), seconds, p50, p99, failed)


def _run(command: Sequence[str], seconds: float) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + _SPARE_SECONDS, check=False)
    except FileNotFoundError:
        raise UnavailableError(missing_tools([command[0]])[0]) from None
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"{command[0]} did not end") from None
    return done.stdout + done.stderr
