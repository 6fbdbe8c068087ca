"""The limit of each test, and looks at a state directory that changes meanwhile (``conftest.py``)."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from conftest import LIMIT, contents_below, paths_below

CORES = os.cpu_count() or 1


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no alarm")
def test_a_busy_machine_gives_the_limit_four_times(monkeypatch: pytest.MonkeyPatch) -> None:
    give_up = signal.getsignal(signal.SIGALRM)
    assert callable(give_up)
    monkeypatch.setattr(os, "getloadavg", lambda: (CORES + 0.1, 0.0, 0.0))
    for _time in range(3):
        signal.alarm(0)
        give_up(signal.SIGALRM, None)
        assert LIMIT - 2 <= signal.alarm(0) <= LIMIT, "it rings again"
    with pytest.raises(TimeoutError, match=f"{4 * LIMIT} s"):
        give_up(signal.SIGALRM, None)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no alarm")
def test_a_quiet_machine_gives_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    give_up = signal.getsignal(signal.SIGALRM)
    assert callable(give_up)
    monkeypatch.setattr(os, "getloadavg", lambda: (float(CORES), 0.0, 0.0))
    with pytest.raises(TimeoutError, match=f"more than {LIMIT} s"):
        give_up(signal.SIGALRM, None)


@pytest.mark.parametrize("name", ["work", "upper"])
def test_only_a_work_directory_may_go_while_it_is_looked_at(tmp_path: Path, name: str) -> None:
    place = tmp_path / f"forks/f/{name}/tree"
    (place / "d").mkdir(parents=True)
    (tmp_path / "forks/f/record").write_text("r")

    def look() -> set[str]:
        found = set()
        for path in paths_below(tmp_path):
            found.add(path.name)
            if path == place:
                shutil.rmtree(place)
        return found

    if name == "upper":
        with pytest.raises(FileNotFoundError):
            look()
    else:
        assert look() == {"forks", "f", "work", "record", "tree"}


@pytest.mark.parametrize("name", ["work", "upper"])
def test_nor_may_a_file_of_another(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / f"{name}/file").write_text("a")
    (tmp_path / "kept").write_text("k")
    read = Path.read_bytes

    def too_late(path: Path) -> bytes:
        if path.name == "file":
            path.unlink()
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", too_late)
    if name == "upper":
        with pytest.raises(FileNotFoundError):
            list(contents_below(tmp_path))
    else:
        assert list(contents_below(tmp_path)) == [(tmp_path / "kept", b"k")]
