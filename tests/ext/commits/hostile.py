"""What an agent may make of the repository of its fork, and that it is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from handgit import Copy, fsck, git

from conftest import full_listing
from mudroom.errors import UsageError


@pytest.fixture
def copy(tmp_path: Path) -> Iterator[Copy]:
    """After each test nothing has come, but what the test itself expects."""
    made = Copy(tmp_path)
    yield made
    if git(made.project, "git branch --list 'mudroom/*'") == "":
        assert list((made.project / ".git/objects/pack").iterdir()) == []
    assert fsck(made.project) == ""


def refused(copy: Copy, message: str, **how: str) -> None:
    before = full_listing(copy.project)
    with pytest.raises(UsageError, match=message) as told:
        copy.bring(**how)  # type: ignore[arg-type]
    assert "\n" not in str(told.value) and "\x1b" not in str(told.value)
    after = full_listing(copy.project)
    assert after.keys() == before.keys()


def head_of(copy: Copy) -> str:
    return git(copy.fork, "git rev-parse HEAD").strip()


def blob(copy: Copy) -> str:
    return copy.object("blob", b"evil\n")


def with_tree(copy: Copy, *entries: tuple[str, bytes, str]) -> str:
    """A commit on top of the project's with such a tree."""
    commit = copy.commit(copy.tree(*entries), git(copy.project, "git rev-parse HEAD").strip())
    copy.set_head(commit)
    return commit
