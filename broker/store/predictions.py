"""Predictions of when tiers come, and what then came: in the broker's database."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import delete, insert, select, tuple_, update

from tiercel.broker.store import tables
from tiercel.core.predictions import Prediction, PredictionState
from tiercel.core.what_if import Span

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Row

    from tiercel.broker.store.sql import Store

_ROWS = tables.predictions.c
_SPAN = ("seconds", "low", "high")


class PredictionStore:
    """Keeps predictions, each known by its job, its tier and when it was made."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def load_open(self) -> list[Prediction]:
        """Those that are not settled, the oldest first."""
        query = select(tables.predictions).where(_ROWS.state == PredictionState.OPEN.value)
        async with self._store.reading() as connection:
            rows = (await connection.execute(query.order_by(_ROWS.made_at, _ROWS.job_id, _ROWS.tier))).all()
        return [_prediction(row) for row in rows]

    async def latest(self, *, tenant: str = "", job_id: str = "", limit: int) -> list[Prediction]:
        """The latest of a tenant, of a job or of all, the newest first."""
        query = select(tables.predictions)
        query = query.where(_ROWS.tenant == tenant) if tenant else query
        query = query.where(_ROWS.job_id == job_id) if job_id else query
        async with self._store.reading() as connection:
            rows = (await connection.execute(query.order_by(_ROWS.made_at.desc(), _ROWS.tier).limit(limit))).all()
        return [_prediction(row) for row in rows]

    async def settled(self, policy: str, limit: int) -> list[Prediction]:
        """The latest settled ones of a policy, the newest first."""
        query = select(tables.predictions).where(_ROWS.policy == policy, _ROWS.state != PredictionState.OPEN.value)
        async with self._store.reading() as connection:
            rows = (await connection.execute(query.order_by(_ROWS.made_at.desc()).limit(limit))).all()
        return [_prediction(row) for row in rows]

    async def add(self, predictions: Sequence[Prediction], keep: int) -> None:
        """Record some, and forget all but the latest so many."""
        oldest = select(_ROWS.made_at).order_by(_ROWS.made_at.desc()).offset(keep).limit(1)
        async with self._store.writing() as connection:
            await connection.execute(insert(tables.predictions), [_row(each) for each in predictions])
            if (until := await connection.scalar(oldest)) is not None:
                await connection.execute(delete(tables.predictions).where(_ROWS.made_at <= until))

    async def change(self, settled: Sequence[Prediction], withdrawn: Sequence[Prediction]) -> None:
        """Keep what became of some, and forget others."""
        async with self._store.writing() as connection:
            for each in settled:
                changed = update(tables.predictions).values(state=each.state.value, came_seconds=each.came_seconds)
                await connection.execute(changed.where(_is_one_of([each])))
            if withdrawn:
                await connection.execute(delete(tables.predictions).where(_is_one_of(withdrawn)))


def _is_one_of(predictions: Iterable[Prediction]) -> Any:
    keys = [(each.job_id, each.tier, each.made_at.timestamp()) for each in predictions]
    return tuple_(_ROWS.job_id, _ROWS.tier, _ROWS.made_at).in_(keys)


def _row(prediction: Prediction) -> dict[str, Any]:
    told = {f"told_{name}": getattr(prediction.told, name) for name in _SPAN}
    drawn = {f"drawn_{name}": getattr(prediction.drawn, name) for name in _SPAN}
    return {
        "job_id": prediction.job_id,
        "tier": prediction.tier,
        "made_at": prediction.made_at.timestamp(),
        "tenant": prediction.tenant,
        "policy": prediction.policy,
        "state": prediction.state.value,
        "came_seconds": prediction.came_seconds,
        **told,
        **drawn,
    }


def _prediction(row: Row[Any]) -> Prediction:
    return Prediction(
        row.job_id,
        row.tier,
        row.policy,
        datetime.fromtimestamp(row.made_at, UTC),
        Span(row.told_seconds, row.told_low, row.told_high),
        Span(row.drawn_seconds, row.drawn_low, row.drawn_high),
        row.tenant,
        PredictionState(row.state),
        row.came_seconds,
    )
