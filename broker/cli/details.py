"""A job or an endpoint in full: a line for each thing that is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiercel.broker.cli.output import (
    clean,
    delay_cell,
    live_cell,
    milliseconds,
    missing_copies,
    number,
    part,
    share_cell,
    share_text,
    tier_cell,
)
from tiercel.core.figures import plural, size
from tiercel.core.jobs import TierState
from tiercel.core.ranks import ranks_of
from tiercel.core.retraining import REPEATS_LABEL, RETRAINS_LABEL

if TYPE_CHECKING:
    from tiercel.broker.client import EndpointInfo, JobInfo, TierStatus, VariantInfo
    from tiercel.core.endpoints import DelayWindow
    from tiercel.core.jobs import JobSpec, Resources


def endpoint_lines(endpoint: EndpointInfo) -> list[str]:
    """What an endpoint may use and how it answers, a line for each thing that is known."""
    share = endpoint.share
    limit = "not limited" if share is None else f"{share_text(share)}: {clean(share.reason)}"
    lines = [
        f"endpoint  {endpoint.name} of {endpoint.tenant}",
        *_answering_lines(endpoint),
        f"delay     {delay_cell(endpoint)}",
        f"share     {limit}",
        *_input_lines(endpoint),
        *([f"retrain   {clean(endpoint.retraining)}"] if endpoint.retraining else []),
        *(f"awaited   {clean(each)}" for each in endpoint.awaited),
    ]
    if endpoint.requests_per_second is not None and endpoint.cpu_cores is not None:
        lines.append(f"load      {endpoint.requests_per_second:.3g} requests/s, {endpoint.cpu_cores:.2g} cores")
    lines += dict.fromkeys(_window_line(window) for window in endpoint.windows)  # alike while it is new
    if endpoint.lag_seconds is not None:
        lines.append(f"lag       {milliseconds(endpoint.lag_seconds)} of its server's event loop, not in the delays")
    return lines


def _input_lines(endpoint: EndpointInfo) -> list[str]:
    """Whether what the versions that answer are asked is what it was at first, as each node says."""
    live = [version for version in endpoint.versions if version.live]
    return [f"inputs    version {each.version}: {clean(each.words)}" for version in live for each in version.inputs]


def _answering_lines(endpoint: EndpointInfo) -> list[str]:
    node = endpoint.node_id or "-"
    if not endpoint.variants:
        answering = live_cell(endpoint.live_version, endpoint)
        problem = [f"problem   {clean(endpoint.problem)}"] if endpoint.problem else []
        line = f"node      {node}, version {answering} answers"
        return [line, *_replica_lines(endpoint), *problem, *_kept_lines(endpoint)]
    problems = [f"problem   {each.name}: {clean(each.problem)}" for each in endpoint.variants if each.problem]
    return [f"node      {node}", *map(_variant_line, endpoint.variants), *problems, *_kept_lines(endpoint)]


def _replica_lines(endpoint: EndpointInfo) -> list[str]:
    """The other nodes that shall answer, and why there are fewer of them than were asked for."""
    lines = [
        f"node      {each.node_id}, "
        + (f"version {each.answering_version} answers" if each.answering_version else "nothing answers yet")
        + (f" ({clean(each.problem)})" if each.problem else "")
        for each in endpoint.places[1:]
    ]
    if endpoint.auto_replicas and endpoint.replicas_reason:
        lines.append(f"replicas  auto, {endpoint.replicas} by now: {clean(endpoint.replicas_reason)}")
    if missing := missing_copies(endpoint):
        lines.append(f"replicas  {missing}")
    return lines


def _kept_lines(endpoint: EndpointInfo) -> list[str]:
    """Versions that do not answer and may."""
    return [
        f"kept      version {each.version} with {each.metric} {number(each.value)}"
        + (f": {clean(each.held)}" if each.held else "")
        for each in endpoint.versions
        if each.kept and not each.live
    ]


def _variant_line(variant: VariantInfo) -> str:
    line = f"variant   {variant.name}, version {variant.live_version} with accuracy {number(variant.accuracy)}"
    if variant.answered_part is None:
        return line
    return f"{line}, gave {part(variant.answered_part)} of the answers lately"


def _window_line(window: DelayWindow) -> str:
    quantiles = (window.p50_seconds, window.p95_seconds, window.p99_seconds)
    return (
        f"last {window.seconds:3.0f} s  {window.answers} answers, {window.failures} failures, "
        f"p50 / p95 / p99 {' / '.join(map(milliseconds, quantiles))}, in time {part(window.in_objective)}"
    )


def job_lines(job: JobInfo) -> list[str]:
    """A job in full, a line for each thing that is known."""
    spec = job.spec
    lines = [
        f"job       {job.id} ({clean(spec.name)}) of {job.tenant}",
        f"state     {job.state.value}" + (f": {clean(job.reason)}" if job.reason else ""),
        f"program   {clean(_program(spec))}",
        f"endpoint  {spec.endpoint}" + (f", variant {spec.variant}" if spec.variant else ""),
        f"progress  epoch {job.epoch} of {spec.max_epochs}",
        f"metric    {spec.metric} {number(job.latest_value)} (best {number(job.best_value)}, {spec.direction.value})",
        f"node      {job.node_id or '-'}, attempt {job.attempts}{_retried(job)}, {_used(job)}",
        f"share     {share_cell(job)}"
        + (f": {clean(job.share.reason)}" if job.share and not job.state.is_final else ""),
        f"asked     {_asked(spec.resources)}{_as_ranks(spec)}",
        *_retrains_lines(job),
        *_copy_lines(job),
        *(_tier_line(tier) for tier in job.tiers),
    ]
    if job.log_tail:
        lines += ["last output:", *(f"  {line}" for line in clean(job.log_tail).splitlines())]
    return lines


def why_lines(job: JobInfo) -> list[str]:
    """A job, and why it is as it is: its state, its share, and what a tier that was reached waits for."""
    waiting = tuple(tier for tier in job.tiers if tier.state is TierState.REACHED and tier.reason)
    return [
        *(line for line in job_lines(job) if line.startswith(("job", "state", "share"))),
        *map(_tier_line, waiting),
    ]


def _retrains_lines(job: JobInfo) -> list[str]:
    """What the broker submitted it for, if that did."""
    version = job.spec.labels.get(RETRAINS_LABEL)
    if version is None:
        return []
    repeats = clean(job.spec.labels.get(REPEATS_LABEL, "-"))
    return [f"retrains  version {clean(version)}, which was too seldom right, by repeating job {repeats}"]


def _copy_lines(job: JobInfo) -> list[str]:
    """Since when it could go on if its node were lost, or the broker's machine."""
    if job.spec.copy_checkpoint_seconds is None:
        return []
    copied, stored = job.checkpoint_copied_seconds, job.checkpoint_stored_seconds
    words = "no checkpoint yet" if copied is None else f"its checkpoint to the broker after {copied:.1f} s"
    lines = [f"copied    {words}"]
    if stored is not None:
        lines.append(f"stored    a copy in the artefact store after {stored:.1f} s")
    if job.checkpoint_store_problem:
        lines.append(f"          {clean(job.checkpoint_store_problem)}")
    return lines


def _program(spec: JobSpec) -> str:
    """What a job starts, and from where."""
    program = [spec.script.name] if spec.script else spec.command or [spec.module or f"image {spec.image}"]
    words = " ".join([*program, *spec.arguments])
    return f"{words} in project {spec.project.sha256[:12]}" if spec.project else words


def _retried(job: JobInfo) -> str:
    return f" (retry {job.retries} of {job.spec.retries})" if job.spec.retries else ""


def _used(job: JobInfo) -> str:
    words = f"{job.cpu_seconds:.1f} CPU seconds"
    return f"{words}, {job.accelerator_seconds:.1f} GPU seconds" if job.accelerator_seconds else words


def _asked(resources: Resources) -> str:
    scratch = f", {size(resources.scratch_bytes)} of scratch" if resources.scratch_bytes else ""
    words = f"{plural(resources.cpu_cores, 'core')}, {size(resources.memory_bytes)}{scratch}"
    if not resources.accelerators:
        return words
    needed = resources.accelerator_memory_bytes
    each = f"{size(needed)} of it" if needed else "all of it"
    return f"{words}, {plural(resources.accelerators, 'GPU')} with {each}"


def _as_ranks(spec: JobSpec) -> str:
    ranks = ranks_of(spec)
    return f", as {ranks} ranks" if ranks > 1 else ""


def _tier_line(tier: TierStatus) -> str:
    line = f"tier {tier.number}    {tier_cell(tier)}  {tier.state.value}"
    if tier.reached_seconds is not None:
        if tier.state is not TierState.REACHED:
            line += ", reached"
        line += f" with {number(tier.reached_value)} after {tier.reached_seconds:.1f} s"
    if tier.delivered_seconds is not None:
        line += f", answers with {number(tier.delivered_value)} after {tier.delivered_seconds:.1f} s"
    return line + (f": {clean(tier.reason)}" if tier.reason else "")
