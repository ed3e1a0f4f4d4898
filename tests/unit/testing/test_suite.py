"""The lanes of the suite: each test file is in one of them, and in one only."""

from __future__ import annotations

from testing.suite import COMPUTING, ROOT, lanes


def test_the_lanes_have_all_folders_of_tests_between_them() -> None:
    product, computing = lanes(2)
    ignored = {argument.partition("=")[2] for argument in product.arguments}
    given = {argument for argument in computing.arguments if not argument.startswith("-")}
    assert ignored == given == set(COMPUTING)
    assert all((ROOT / folder).is_dir() for folder in COMPUTING)
    assert product.cache != computing.cache
