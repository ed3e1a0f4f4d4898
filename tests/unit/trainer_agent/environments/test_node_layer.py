"""What a node has is read again once it changed."""

from __future__ import annotations

import os
import site
from pathlib import Path

import pytest

from tiercel.trainer_agent.environments.layers import canonical, path_file
from tiercel.trainer_agent.environments.node_layer import NodeLayer


def test_is_read_again_only_once_something_was_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "Some_Thing-1.0.dist-info").mkdir()
    (tmp_path / "Some_Thing-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: Some_Thing\nVersion: 1.0\n"
    )
    monkeypatch.setattr(site, "getsitepackages", lambda: [str(tmp_path), str(tmp_path / "missing")])
    monkeypatch.setattr(site, "ENABLE_USER_SITE", False)
    first = NodeLayer.read()
    assert dict(first.distributions) == {"some-thing": "1.0"}
    assert NodeLayer.read(first) is first
    (tmp_path / "other-2.0.dist-info").mkdir()
    (tmp_path / "other-2.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 2.0\n")
    os.utime(tmp_path, ns=(1, 1))  # whatever the clock's steps are
    assert NodeLayer.read(first).distributions == {"other": "2.0", "some-thing": "1.0"}


def test_a_path_with_quotes_stays_a_path() -> None:
    layer = NodeLayer("python", "", ("/a'b\\c",), {}, (0,))
    assert path_file(layer.folders) == 'import site; site.addsitedir("/a\'b\\\\c")\n'


@pytest.mark.parametrize("name", ["Py.YAML", "py_yaml", "PY--yaml"])
def test_names_compare_as_packages_do(name: str) -> None:
    assert canonical(name) == "py-yaml"
