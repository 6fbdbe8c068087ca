"""An interpreter that its user owns, for launchers whose program no command may change."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from mudroom.sandbox.client import wire
from native_init import COMPILERS, compile_init

MODE = 0o755


@pytest.fixture(scope="session")
def init_program(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return compile_init(tmp_path_factory.mktemp("init")) if COMPILERS else b""


@pytest.fixture(params=["native", "python"])
def program(
    request: pytest.FixtureRequest, tmp_path: Path, init_program: bytes, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """An interpreter that its user owns, as uv, pyenv and conda install them, with which launchers start."""
    if request.param == "native" and not init_program:
        pytest.skip("no C compiler")
    native = init_program if request.param == "native" else b""
    monkeypatch.setattr(wire, "NATIVE_INIT", native)
    copied = tmp_path / "own" / "bin" / "python"
    copied.parent.mkdir(parents=True)
    shutil.copy(os.path.realpath(sys.executable), copied)
    copied.chmod(MODE)
    monkeypatch.setattr(sys, "executable", str(copied))
    return copied


def is_on_a_read_only_mount(pid: int) -> bool:
    return bool(os.statvfs(f"/proc/{pid}/exe").f_flag & os.ST_RDONLY)
