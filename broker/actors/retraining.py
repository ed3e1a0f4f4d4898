"""Trains models again that are less often right in use than they should be: looks at all endpoints every few seconds.

What it decides is durable with the endpoint, and with it the id of the new job, before that is submitted. So a broker
that is killed in between submits it once it is back, and one that was killed after that finds it there.
"""

from __future__ import annotations

import logging
import secrets
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from tiercel.broker.actors.endpoint_messages import CandidateChosen, PromisesJudged, RetrainingNoted
from tiercel.broker.actors.job_ids import find_job
from tiercel.broker.lifecycle import drift, homes, promises, retraining
from tiercel.core.errors import OverloadedError, TiercelError, UnavailableError
from tiercel.core.events import RetrainingTold
from tiercel.core.retraining import RetrainingState

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from tiercel.broker.actors.clock import Clock
    from tiercel.broker.actors.endpoint import EndpointActor
    from tiercel.broker.actors.journal import Journal
    from tiercel.broker.actors.registry import ActorRegistry
    from tiercel.broker.store.sql import Store
    from tiercel.core.endpoints import Endpoint
    from tiercel.core.jobs import Job
    from tiercel.core.retraining import Retraining

    Submit = Callable[[Job, str, Retraining, str], Awaitable[None]]

logger = logging.getLogger(__name__)

LOOK_SECONDS = 5.0


class Retrainings:
    """Has promises judged, and models trained again.

    Args:
        submit: Submits a job again, by its owner's name, as a retraining, with the words that it begins with; does
            nothing where it was submitted already, or where its endpoint does not know it any more.
    """

    def __init__(self, store: Store, journal: Journal, registry: ActorRegistry, clock: Clock, submit: Submit) -> None:
        self._store = store
        self._journal = journal
        self._registry = registry
        self._clock = clock
        self._submit = submit
        self._words: dict[str, str] = {}

    @property
    def words(self) -> Mapping[str, str]:
        """What is done, or why nothing is, by endpoint; of those whose jobs ask for that."""
        return self._words

    async def run(self) -> None:
        """Look every few seconds, until cancelled."""
        while True:
            await self.look()
            await self._clock.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Look at all endpoints once."""
        feeding: dict[str, dict[str, str]] = defaultdict(dict)
        for job in reversed(self._registry.living_jobs()):
            feeding[job.spec.endpoint][job.spec.variant] = job.id
        for actor in list(self._registry.endpoints.values()):
            try:
                await self._look_at(actor, feeding[actor.endpoint.name])
            except (UnavailableError, OverloadedError) as error:  # the disk, or much to do: the next look does it
                logger.info("endpoint %s is not looked at now: %s", actor.endpoint.name, error.message)

    async def _look_at(self, actor: EndpointActor, feeding: Mapping[str, str]) -> None:
        await self._judge(actor)
        if not actor.endpoint.retrainings and all(each.retrain is None for each in actor.endpoint.live):
            self._tell(actor.endpoint, "")
            return
        await self._note_resumed(actor)
        words = await self._go_on(actor)
        if not words:
            heard, now = self._registry.feedback.of(actor.endpoint.name), self._clock.now()
            asked = self._registry.inputs.of(actor.endpoint)
            if (last := retraining.helped(actor.endpoint, heard, asked)) is not None:
                await actor.call(RetrainingNoted(last, replace(last, state=RetrainingState.HELPED)))
            endpoint = actor.endpoint
            begun, words = retraining.decided(endpoint, heard, feeding, now, secrets.token_hex(4))
            if begun is not None:
                await actor.call(RetrainingNoted(None, begun))
                logger.warning("endpoint %s: %s", endpoint.name, words)
                words = await self._go_on(actor) or words
        self._tell(actor.endpoint, words)

    async def _judge(self, actor: EndpointActor) -> None:
        endpoint, now = actor.endpoint, self._clock.now()
        heard, asked = self._registry.feedback.of(endpoint.name), self._registry.inputs.of(endpoint)
        judged, news = promises.judged(endpoint, heard, now)
        judged, more = drift.judged(judged, asked, now)
        if judged is endpoint:
            return
        await actor.call(PromisesJudged(heard, now, asked))
        for inputs in (each.inputs for each in more):
            logger.warning("endpoint %s: version %d is asked %s", endpoint.name, inputs.version, inputs.words)
        for each in news:
            words = "as often right as was promised again" if each.kept else "less often right than was promised"
            logger.warning(
                "endpoint %s: version %d is %s: %.4g of %d rows, and %.4g was promised",
                *(endpoint.name, each.version, words, each.in_use.accuracy, each.in_use.rows, each.promised),
            )

    async def _note_resumed(self, actor: EndpointActor) -> None:
        """Have a retraining that was over, and that its tenant resumed, count again."""
        for known in actor.endpoint.retrainings:
            if known.state.is_over and known.job_id in self._registry.jobs:
                await actor.call(RetrainingNoted(known, retraining.resumed(known, self._clock.now())))

    async def _go_on(self, actor: EndpointActor) -> str:
        """Go on with the retraining that is open; returns what there is to tell of it, or nothing once none is open."""
        endpoint = actor.endpoint
        known = retraining.open_one(endpoint)
        if known is None:
            return ""
        job = await find_job(known.job_id, self._registry, self._store)
        if job is None and known.state is RetrainingState.DECIDED:
            return await self._begin(actor, known)
        endpoint = await self._with_better(actor, known, job)
        after = retraining.settled(endpoint, known, job, self._clock.now())
        is_delivering = after.state.is_over and known.job_id in self._registry.jobs
        if after == known or is_delivering:
            return retraining.words_of(known)
        await actor.call(RetrainingNoted(known, after))
        return "" if after.state.is_over else retraining.words_of(after)

    async def _with_better(self, actor: EndpointActor, known: Retraining, job: Job | None) -> Endpoint:
        """The endpoint, with what is better by now."""
        heard = self._registry.feedback.of(actor.endpoint.name)
        better = retraining.better_one(actor.endpoint, known, heard, job) if job is not None else None
        if better is not None:
            name, number, chosen = actor.endpoint.name, better.version, CandidateChosen(better.version, known.version)
            after, nodes = chosen.applied_to(actor.endpoint), self._registry.serving_nodes(name)
            if not homes.why_gone(actor.endpoint, after, nodes, has_store=self._registry.has_store):
                logger.warning("endpoint %s: version %d answers, as %d is worth less", name, number, known.version)
                await actor.call(chosen)
        return actor.endpoint

    async def _begin(self, actor: EndpointActor, known: Retraining) -> str:
        """Submit a job that was decided on; returns why it cannot be now, or that it is."""
        endpoint = actor.endpoint
        repeated = await self._repeated(endpoint, known)
        if repeated is None or not retraining.is_wanted(endpoint, known):
            await actor.call(RetrainingNoted(known, None))
            return ""
        words = retraining.words_of(known)
        try:
            await self._submit(repeated, endpoint.tenant, known, words)
        except UnavailableError:
            raise
        except TiercelError as error:  # a quota, a node that is gone, a secret: it may be well later
            return f"version {known.version} was too seldom right, and training it again waits: {error.message}"
        if await find_job(known.job_id, self._registry, self._store) is None:
            return ""
        await actor.call(RetrainingNoted(known, retraining.begun(known)))
        return words

    async def _repeated(self, endpoint: Endpoint, known: Retraining) -> Job | None:
        """The job that delivered the version that is to be replaced; None where either is gone."""
        version = next((each for each in endpoint.versions if each.version == known.version), None)
        return await find_job(version.job_id, self._registry, self._store) if version is not None else None

    def _tell(self, endpoint: Endpoint, words: str) -> None:
        if words == self._words.get(endpoint.name, ""):
            return
        self._words[endpoint.name] = words
        if not words:  # nobody asks for it any more
            del self._words[endpoint.name]
        known = retraining.open_one(endpoint)
        job_id = known.job_id if known is not None else ""
        self._journal.announce_nowait(RetrainingTold(endpoint.name, endpoint.tenant, self._clock.now(), words, job_id))
