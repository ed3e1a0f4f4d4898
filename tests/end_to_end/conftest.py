"""One product for each test that asks for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from testing.product import Product
from testing.product_use import running_product


@pytest.fixture
async def product(tmp_path: Path) -> AsyncIterator[Product]:
    """The whole product with the tenants alice and bob, training in processes."""
    async with running_product(tmp_path) as product:
        yield product
