"""Whole trees merged, beside ``git merge-tree``: random ones with every kind against every kind, and a small history.

Real histories are compared by hand: see ``trees.py``.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from trees import Repository, compare

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
COUNT = int(os.environ.get("MUDROOM_TREES", "150"))
"""Triples of trees; 20,000 take some minutes."""
_LINES = [f"line {number}\n" for number in range(12)]
_PATHS = ("a", "b", "d/a", "d/e/a", "d", "a/x")
_MODES = ("100644", "100644", "100644", "100755", "120000")

Files = dict[str, tuple[str, str]]


def _content(rng: random.Random, mode: str, path: str) -> str:
    """Such that no path's is like another's: what is renamed is guessed in other ways."""
    if mode == "120000":
        return path + rng.choice(["x", "y", "z"])
    lines = [f"{path} {line}" for line in _LINES]
    for _edit in range(rng.choice([0, 1, 1, 2])):
        lines[rng.choice([1, 2, 6, 10])] = rng.choice(["first\n", "second\n"])
    return "".join(lines)


def _edited(rng: random.Random, files: Files) -> Files:
    files = dict(files)
    for _edit in range(rng.choice([0, 1, 1, 2, 3])):
        path = rng.choice(_PATHS)
        there = files.get(path)
        if there is not None and rng.random() < 0.2:
            del files[path]
        elif there is not None and there[0] != "120000" and rng.random() < 0.2:
            files[path] = ("100755" if there[0] == "100644" else "100644", there[1])
        else:
            for other in [one for one in files if one.startswith(path + "/") or path.startswith(one + "/")]:
                del files[other]
            mode = rng.choice(_MODES)
            files[path] = (mode, _content(rng, mode, path))
    return files


def _commit(mark: int, files: Files, parent: int = 0) -> str:
    text = f"commit refs/heads/c{mark}\nmark :{mark}\ncommitter T <t@example.org> {mark} +0000\ndata 0\n"
    text += f"from :{parent}\n" if parent else ""
    text += "deleteall\n"
    for path, (mode, content) in files.items():
        text += f"M {mode} inline {path}\ndata {len(content)}\n{content}\n"
    return text


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[Repository]:
    subprocess.run(["git", "init", "-q", "--bare", str(tmp_path / "r.git")], check=True)
    found = Repository(str(tmp_path / "r.git"))
    yield found
    found.close()


def _import(repository: Repository, stream: str) -> None:
    words = ["git", "-C", repository.path, "fast-import", "--quiet", "--force"]
    subprocess.run(words, input=stream.encode(), check=True)


def test_random_trees(repository: Repository) -> None:
    rng = random.Random(COUNT)
    stream = ""
    for number in range(COUNT):
        mark = 3 * number + 1
        base = _edited(rng, _edited(rng, {}))
        stream += _commit(mark, base)
        stream += _commit(mark + 1, _edited(rng, base), mark) + _commit(mark + 2, _edited(rng, base), mark)
    _import(repository, stream)
    counts: Counter[str] = Counter()
    for number in range(COUNT):
        triple = (f"c{3 * number + 1}", f"c{3 * number + 2}", f"c{3 * number + 3}")
        category, detail = compare(repository, triple)
        assert category not in ("other result", "git alone conflicts"), (triple, detail)
        counts[category] += 1
    assert counts["the same"] > COUNT / 3
    assert counts["both conflict"] > COUNT / 20
    assert counts["we alone conflict"] < COUNT / 5, counts


def test_the_history_of_a_small_project(repository: Repository) -> None:
    text = "".join(_LINES)
    base: Files = {"f": ("100644", text), "g": ("100644", "g\n" * 9), "d/h": ("100644", "h\n" * 9)}
    ours: Files = {**base, "f": ("100755", text.replace("line 2\n", "two\n")), "new": ("100644", "n\n")}
    theirs: Files = {"f": ("100644", text.replace("line 9\n", "nine\n")), "moved": base["g"], "d/h": base["d/h"]}
    _import(repository, _commit(1, base) + _commit(2, ours, 1) + _commit(3, theirs, 1))
    assert compare(repository, ("c1", "c2", "c3")) == ("the same", "")
