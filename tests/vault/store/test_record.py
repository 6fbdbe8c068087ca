"""The exit code of a record: the command's own, as in its result, also in records of earlier versions."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from conftest import Place
from inner_path import inner
from mudroom.core.tree.change import Changeset
from mudroom.errors import OUTDATED, UPGRADE, MudroomError
from mudroom.vault.forks.fork_summary import ForkSummaries
from mudroom.vault.record import FORK_FORMAT, ForkRecord, load


@pytest.mark.parametrize(("script", "code"), [("exit 3", 3), ("exit 0", 0), ("kill -9 $$", 137), ("exit 255", 255)])
def test_it_is_that_of_the_result(place: Place, script: str, code: int) -> None:
    session = place.session()
    result = session.run([b"sh", b"-c", b"echo x > made; " + script.encode()], fork="f")
    record = session.vault.fork("f").record
    assert record is not None
    assert record.exit_code == result.exit_code == code
    (summary,) = ForkSummaries().all(session.vault)
    assert summary.brief is not None
    assert summary.brief.exit_code == code
    session.forks.checkpoint("f", "c")
    sealed = load(session.vault.layer(session.vault.fork("f").state.layers[0]) + b"/record", ForkRecord)
    assert sealed.exit_code == code


def test_of_a_background_command(place: Place) -> None:
    session = place.session()
    background = session.start([b"sh", b"-c", b"echo x > made; exit 3"], fork="f")
    ended = background.wait()
    session.sandboxes.wait_for_ended("f")
    record = session.vault.fork("f").record
    assert record is not None and ended is not None
    assert record.exit_code == ended.exit_code == 3


@pytest.mark.parametrize("number", [FORK_FORMAT - 1, FORK_FORMAT + 1])
def test_a_record_of_another_format_is_refused_by_name(tmp_path: Path, number: int) -> None:
    (tmp_path / "record").write_bytes(msgspec.msgpack.encode(ForkRecord(number, "f", "overlay", (), 1, 0, Changeset())))
    with pytest.raises(MudroomError, match=f"has format {number}, this mudroom knows {FORK_FORMAT}") as caught:
        load(inner(tmp_path / "record"), ForkRecord)
    assert caught.value.hint == (UPGRADE if number > FORK_FORMAT else OUTDATED)
