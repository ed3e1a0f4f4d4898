"""``make bench-generation``: tokens a second and time to the first one, of 1 caller and of 8, beside plain PyTorch.

A small GPT with random weights is generated greedily by the inference server, asked over HTTP with streams, and by the
same module in PyTorch with its cache, on one thread each: caller by caller, and all 8 in one batch. That a program can
do that knows all callers before it begins, and whose prompts are equally long, as they are here. With ``--genai
FOLDER`` (``pip install --no-deps --target FOLDER onnxruntime-genai``) onnxruntime-genai runs the same file in a batch,
too: its builder does not make files of such a module, but it takes this one with a ``genai_config.json`` from here.

All take turns within each round, and bars are medians of ratios within a round, since other work on the machine changes
from round to round. CPU is that of the whole process that generates.
"""

from __future__ import annotations

import http.client
import importlib
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import psutil
import torch
import typer

from benchmarks.results import KEEP_HELP, ROOT, Bar
from benchmarks.sections import bars_table, finish, table
from testing import onnx_models
from testing.serving_process import ServingProcess, serving
from testing.small_gpt import Cache, SmallGpt, small_gpt
from tiercel.trainer.generation import export_decoder

Json = dict[str, Any]

DOCUMENT = ROOT / "docs" / "results.md"
CALLERS, PROMPT, TOKENS = 8, 16, 64
SIZES = {"vocabulary": 512, "width": 256, "heads": 8, "layers": 4, "context": 256}
OURS, IN_TURN, IN_BATCH = "server", "PyTorch, in turn", "PyTorch, one batch"
GENAI = "onnxruntime-genai, one batch"


@dataclass(frozen=True, slots=True)
class Generated:
    """What one way gave."""

    rows: list[list[int]]  # tokens of each answer
    first: list[float]  # seconds to the first token of each
    seconds: float  # until all were complete
    cpu: float  # seconds of CPU


Prompts = Sequence[Sequence[int]]
Way = Callable[[Prompts], Generated]


def main(
    rounds: Annotated[int, typer.Option(min=1, help="How often all take turns.")] = 9,
    genai: Annotated[Path | None, typer.Option(help="Folder that onnxruntime-genai is installed in.")] = None,
    keep: Annotated[bool, typer.Option("--keep", help=KEEP_HELP)] = False,
) -> None:
    """Measure, tell, and write generation.json; exits with 1 where a bar does not hold."""
    torch.set_num_threads(1)
    model = small_gpt(0, **SIZES)
    content = export_decoder(model, vocabulary=SIZES["vocabulary"], context_length=SIZES["context"]).onnx
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        onnx_models.put(folder / "models", "gpt", 1, content)
        with serving(folder / "models", folder, {"inference_threads": 1, "model_threads": 1}) as server:
            ways: dict[str, Way] = {
                OURS: lambda prompts: of_server(server, prompts),
                IN_TURN: lambda prompts: of_torch(model, [[prompt] for prompt in prompts]),
                IN_BATCH: lambda prompts: of_torch(model, [prompts]),
            }
            if genai is not None:
                sys.path.append(str(genai))
                ways[GENAI] = of_genai(folder / "models" / "gpt" / "1")
            measured = [row for number in range(rounds) for row in one_round(ways, number)]
    figures: Json = {
        "sizes": SIZES, "callers": CALLERS, "prompt_tokens": PROMPT, "tokens": TOKENS, "rows": measured,
    }  # fmt: skip
    told = f"python -m benchmarks.generation --rounds {rounds}{' --genai FOLDER' if genai is not None else ''} --keep"
    finish("generation", command=told, figures=figures, keep=keep, section=(DOCUMENT, section_of))


def bars_of(figures: Json) -> list[Bar]:
    """What has to hold."""
    rows: list[Json] = figures["rows"]
    ours = [row for row in rows if row["way"] == OURS]

    def times(other: str, callers: int, name: str) -> float:
        return statistics.median(ratios(rows, other, callers, name))

    return [
        Bar("answers of the server that are not PyTorch's, token for token", sum(r["differs"] for r in ours), "== 0"),
        Bar("1 caller: tokens a second over PyTorch's", times(IN_TURN, 1, "tokens_per_second"), ">= 1"),
        Bar("8 callers: tokens a second over PyTorch's in turn", times(IN_TURN, CALLERS, "tokens_per_second"), ">= 2"),
        Bar(
            "8 callers: tokens a second over PyTorch's in one batch",
            times(IN_BATCH, CALLERS, "tokens_per_second"),
            ">= 0.8",
        ),
        Bar("8 callers: time to the first token over PyTorch's in turn", times(IN_TURN, CALLERS, "first_ms"), "<= 0.5"),
    ]


def ratios(rows: Sequence[Json], other: str, callers: int, name: str) -> list[float]:
    """A figure of the server over another way's, of each round."""
    of = {(row["round"], row["way"]): row[name] for row in rows if row["callers"] == callers}
    return [value / of[number, other] for (number, way), value in of.items() if way == OURS]


def section_of(figures: Json, bars: Sequence[Bar]) -> str:
    """What the documentation says of it."""
    rows: list[Json] = figures["rows"]
    told = []
    for way in dict.fromkeys(row["way"] for row in rows):
        for callers in (1, CALLERS):
            own = [row for row in rows if (row["way"], row["callers"]) == (way, callers)]
            cpu = statistics.median(row["cpu_us_per_token"] for row in own)
            over = (
                f"{statistics.median(ratios(rows, way, callers, name)):.2f}"
                for name in ("tokens_per_second", "first_ms")
            )
            told.append((str(callers), way, f"{cpu:.0f}", *over))
    header = ("callers", "by", "CPU a token, us", "server's tokens a second over it", "server's first token over it")
    return f"{table(header, sorted(told, key=lambda row: int(row[0])))}\n\n{bars_table('bar', bars)}"


def one_round(ways: dict[str, Way], number: int) -> list[Json]:
    """Figures of each way, for one caller and for all; who begins changes from round to round."""
    found = []
    random = torch.Generator().manual_seed(number)
    for callers in (1, CALLERS):
        prompts: list[list[int]] = torch.randint(0, SIZES["vocabulary"], (callers, PROMPT), generator=random).tolist()
        names = list(ways)
        names = names[number % len(names) :] + names[: number % len(names)]
        results = {name: ways[name](prompts) for name in names}
        wanted = results[IN_TURN].rows
        for name, each in results.items():
            tokens = callers * TOKENS
            row = {
                "round": number,
                "callers": callers,
                "way": name,
                "tokens_per_second": round(tokens / each.seconds, 1),
                "first_ms": round(statistics.median(each.first) * 1e3, 3),
                "cpu_us_per_token": round(each.cpu / tokens * 1e6, 1),
                "differs": sum(mine != theirs for mine, theirs in zip(each.rows, wanted, strict=True)),
            }
            typer.echo(row)
            found.append(row)
    return found


def of_server(server: ServingProcess, prompts: Prompts) -> Generated:
    """Asked by as many callers as there are prompts, each on a connection of its own."""
    process = psutil.Process(server.process.pid)
    before, begin = sum(process.cpu_times()[:2]), time.perf_counter()
    with ThreadPoolExecutor(len(prompts)) as callers:
        answers = list(callers.map(lambda prompt: _stream(server.http, prompt, begin), prompts))
    seconds = time.perf_counter() - begin
    rows, first = zip(*answers, strict=True)
    return Generated(list(rows), list(first), seconds, sum(process.cpu_times()[:2]) - before)


def _stream(address: str, prompt: Sequence[int], begin: float) -> tuple[list[int], float]:
    connection = http.client.HTTPConnection(address, timeout=90)
    body = json.dumps({"input_ids": list(prompt), "max_tokens": TOKENS})
    connection.request("POST", "/v2/models/gpt/generate_stream", body)
    answer = connection.getresponse()
    tokens: list[int] = []
    first = 0.0
    while line := answer.readline():
        if line.startswith(b"data: "):
            tokens += json.loads(line[6:])["output_ids"]
            first = first or time.perf_counter() - begin
    connection.close()
    return tokens, first


@torch.no_grad()
def of_torch(model: SmallGpt, batches: Sequence[Prompts]) -> Generated:
    """Batches one after the other; the prompts of each are equally long."""
    cpu, begin = time.process_time(), time.perf_counter()
    rows: list[list[int]] = []
    first: list[float] = []
    for prompts in batches:
        ids, past = torch.tensor(prompts), None
        found: list[torch.Tensor] = []
        for _ in range(TOKENS):
            ids, past = _next(model, ids, past)
            found.append(ids)
            if len(found) == 1:
                first += [time.perf_counter() - begin] * len(prompts)
        rows += torch.cat(found, dim=1).tolist()
    return Generated(rows, first, time.perf_counter() - begin, time.process_time() - cpu)


def _next(model: SmallGpt, ids: torch.Tensor, past: Cache | None) -> tuple[torch.Tensor, Cache]:
    start = 0 if past is None else past[0][0].shape[2]
    total = start + ids.shape[1]
    mask = torch.ones(len(ids), total, dtype=torch.long)
    logits, present = model(ids, mask, torch.arange(start, total).expand(len(ids), -1), past)
    return logits[:, -1].argmax(-1, keepdim=True), present


def of_genai(folder: Path) -> Way:
    """All in one batch, by onnxruntime-genai on one thread."""
    library = importlib.import_module("onnxruntime_genai")
    size = SIZES["width"] // SIZES["heads"]
    names = {f"{way}_{kind}_names": f"{way}{{}}.%d.{kind}" for way in ("past", "present") for kind in ("key", "value")}
    inputs = {name: text.format("_key_values") for name, text in names.items() if name.startswith("past")}
    outputs = {name: text.format("") for name, text in names.items() if name.startswith("present")}
    decoder = {
        "filename": "model.onnx", "head_size": size, "hidden_size": SIZES["width"],
        "num_attention_heads": SIZES["heads"], "num_key_value_heads": SIZES["heads"],
        "num_hidden_layers": SIZES["layers"],
        "session_options": {"provider_options": [], "intra_op_num_threads": 1},
        "inputs": {each: each for each in ("input_ids", "attention_mask", "position_ids")} | inputs,
        "outputs": {"logits": "logits"} | outputs,
    }  # fmt: skip
    # It has to have an id that ends answers, which ``min_length`` keeps it from, so that all are equally long.
    ends = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), SIZES["vocabulary"] - 1)
    about = {"type": "llama", "vocab_size": SIZES["vocabulary"], "context_length": SIZES["context"], **ends}
    search = {"max_length": PROMPT + TOKENS, "past_present_share_buffer": False, "do_sample": False}
    told = {"model": about | {"decoder": decoder}, "search": search}
    (folder / "genai_config.json").write_text(json.dumps(told))
    model = library.Model(str(folder))

    def generate(prompts: Prompts) -> Generated:
        cpu, begin = time.process_time(), time.perf_counter()
        options = library.GeneratorParams(model)
        length = PROMPT + TOKENS
        options.set_search_options(max_length=length, min_length=length, do_sample=False, batch_size=len(prompts))
        generator = library.Generator(model, options)
        generator.append_tokens(torch.tensor(prompts, dtype=torch.int32).numpy())
        first = 0.0
        while not generator.is_done():
            generator.generate_next_token()
            first = first or time.perf_counter() - begin
        rows = [[int(token) for token in generator.get_sequence(row)][PROMPT:] for row in range(len(prompts))]
        return Generated(rows, [first] * len(rows), time.perf_counter() - begin, time.process_time() - cpu)

    return generate


if __name__ == "__main__":
    typer.run(main)
