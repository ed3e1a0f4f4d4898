"""One product for each test that asks for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from benchmarks.product import Product
from tests.support.product import running_product


@pytest.fixture
async def product(tmp_path: Path) -> AsyncIterator[Product]:
    """The whole product with the tenants alice and bob, training in processes."""
    async with running_product(tmp_path) as product:
        yield product
