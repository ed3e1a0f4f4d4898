"""What pytest makes of test files before it runs them, made once: every worker of every lane would make all by itself.

It is a third of what collecting the tests costs where none of it is there yet, as after a fresh clone.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import Final

from _pytest.assertion import AssertionState
from _pytest.assertion.rewrite import PYC_TAIL, _read_pyc, _rewrite_test, _write_pyc, get_cache_dir
from _pytest.config import Config, get_config

ROOT: Final = Path(__file__).parents[1]
_AT_A_TIME: Final = 20


@cache
def _settings() -> Config:
    return get_config()


def rewrite(file: Path) -> Path:
    """Write what a test file becomes beside it, unless that is there and of this text.

    Returns:
        Where it is.
    """
    folder = get_cache_dir(file)
    folder.mkdir(exist_ok=True)
    compiled = folder / (file.stem + PYC_TAIL)
    if _read_pyc(file, compiled) is None:
        hashed, code = _rewrite_test(file, _settings())
        _write_pyc(AssertionState(_settings(), "rewrite"), code, hashed, compiled)
    return compiled


def main() -> None:
    """Do it for all tests, on all cores."""
    files = [file for name in ("test_*.py", "conftest.py") for file in (ROOT / "tests").rglob(name)]
    with ProcessPoolExecutor() as pool:
        list(pool.map(rewrite, files, chunksize=_AT_A_TIME))


if __name__ == "__main__":
    main()
