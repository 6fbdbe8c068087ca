"""A journal that may only be read, such as a backup: it can be read and verified."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from mudroom.vault.journal.journal import Journal


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_a_head_that_may_only_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """The error is made here: root may open every file."""
    path = os.fsencode(tmp_path / "journal.db")
    journal = Journal(path)
    journal.append("run", "f", {}, time=1)
    journal.close()
    opened = os.open

    def refusing(name: Any, flags: int, *more: Any, **names: Any) -> int:
        if os.fsencode(name).endswith(b".head") and flags & os.O_RDWR:
            raise OSError(number, os.strerror(number))
        return opened(name, flags, *more, **names)

    monkeypatch.setattr(os, "open", refusing)
    journal = Journal(path)
    found = journal.examine()
    assert not found.problems
    assert found.head.number == 1
    journal.close()
    (tmp_path / "journal.head").write_bytes(b"x")
    journal = Journal(path)
    assert journal.examine().problems
    journal.close()
