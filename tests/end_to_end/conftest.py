"""One product for each test that asks for it, or for all tests of a file that do it no harm."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Generator
from pathlib import Path

import pytest
import pytest_asyncio

from testing.product import Product
from testing.product_use import running_product

LOG_LINES = 60


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that failed shows what its product said last."""
    report = yield
    if report.failed and isinstance(item, pytest.Function):
        for product in item.funcargs.values():
            if isinstance(product, Product):
                lines = product.log.read_text(encoding="utf-8", errors="replace").splitlines()
                report.sections.append((f"the end of {product.log}", "\n".join(lines[-LOG_LINES:])))
    return report


@pytest.fixture
async def product(tmp_path: Path) -> AsyncIterator[Product]:
    """The whole product with the tenants alice and bob, training in processes; SIGTERM ends all of it in the end."""
    async with running_product(tmp_path) as product:
        yield product
        if product.is_running:
            assert await product.stop(signal.SIGTERM) == 0
            assert product.left_over() == []


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_product(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Product]:
    """The same for all tests of a file, whose loop has to be the module's; each has to leave it as it was."""
    async with running_product(tmp_path_factory.mktemp("product")) as product:
        yield product
