"""One product for all files of this folder: its start costs as much as most of what they ask of it.

Each file has tenants and endpoints of its own, named after it, and no file ends the product or its agent. They run one
after another on one worker: see ``tests/conftest.py``.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from testing.product import Product
from testing.product_use import client_of, running_product

TENANTS = (
    "careless",  # test_bad_input.py
    "delivery",
    "stranger",  # who sees nothing of it
    "environments",
    "faulty",
    "frameworks",
    "int8",
    "large",
    "neighbour",  # of "faulty"
    "default",  # test_notebooks.py
    "projects",
    "ranks",
    "secrets",
    "sweeps",
)


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the node has its packages from: nothing else is installed in what it builds."""
    return tmp_path_factory.mktemp("packages")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def product(tmp_path_factory: pytest.TempPathFactory, packages: Path) -> AsyncIterator[Product]:
    """The whole product, training in processes; SIGTERM ends all of it in the end."""
    tenants = [word for name in TENANTS for word in ("--tenant", name)]
    environment = {"TIERCEL_AGENT_PACKAGE_FOLDER": str(packages), "TIERCEL_AGENT_PACKAGE_OFFLINE": "1"}
    folder = tmp_path_factory.mktemp("product")
    async with running_product(folder, *tenants, environment=environment) as product:
        yield product
        assert await product.stop(signal.SIGTERM) == 0
        assert product.left_over() == []


@pytest_asyncio.fixture(scope="module", loop_scope="module", autouse=True)
async def _nothing_goes_on(product: Product) -> AsyncIterator[None]:
    """A file whose test failed leaves no job behind that takes what the next one needs."""
    yield
    for name in TENANTS:
        async with client_of(product, name) as tenant:
            for job in await tenant.list_jobs():
                if not job.state.is_final:
                    await tenant.cancel_job(job.id)
