"""A fork's remarks, cut off or failing at every system call that changes something on disk.

A child writes a remark, marks it as being sent, hands it over, and notes the end, as ``comment`` and ``send`` do; at
call N one of ``MODES`` strikes. Afterwards no file is half written, what was reported is there, and nothing that was
handed over counts as unsent.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import structs

from faults import (
    KILL_AFTER,
    KILL_BEFORE,
    Decider,
    at,
    dead_from,
    full_from,
    passing,
    short_at,
    watched,
    why_impossible,
)
from mudroom.ext.remarks.core.value import ReviewRemark, SentRemark
from mudroom.ext.remarks.store import RemarkStore
from mudroom.vault.store.fork import Fork
from tiers import daily

pytestmark = [
    pytest.mark.slow,
    pytest.mark.both_users,
    pytest.mark.skipif(bool(why_impossible()), reason=why_impossible()),
]

MODES: dict[str, Callable[[int], Decider]] = {
    "killed before": lambda number: at(number, KILL_BEFORE),
    "killed after": lambda number: at(number, KILL_AFTER),
    "full": full_from,
    "short": short_at,
    "dead": dead_from,
}


def store_of(place: Path) -> RemarkStore:
    return RemarkStore(Fork("a", os.fsencode(place / "forks/a"), os.fsencode(place)))


def work(place: Path) -> None:
    store, told = store_of(place), os.open(place / "told", os.O_WRONLY | os.O_APPEND)
    with store.locked():
        remark = ReviewRemark("why?", "a.py", first=1, version=store.keep_text(b"one\n" * 5_000))
        store.save(store.free_name(), remark)
    os.write(told, b"written\n")
    with store.sending():
        with store.locked():
            store.save("r1", structs.replace(remark, sent=SentRemark(1, 1, "sending")))
        os.write(told, b"handed over\n")
        with store.locked():
            store.save("r1", structs.replace(remark, sent=SentRemark(1, 1, "sent")))
    with store.locked():
        store.remove("r1")
        store.drop_texts(())
    os.write(told, b"removed\n")
    os.close(told)


def prepared(place: Path) -> Path:
    (place / "forks/a").mkdir(parents=True)
    (place / "told").touch()
    return place


@pytest.mark.parametrize("mode", daily(MODES))
def test_at_every_call(tmp_path: Path, mode: str) -> None:
    whole = watched(functools.partial(work, prepared(tmp_path / "whole")), passing)
    assert whole.error is None and whole.unknown == [], whole
    assert len(whole.calls) > 15
    for number in range(1, len(whole.calls) + 1):
        place = prepared(tmp_path / str(number))
        outcome = watched(functools.partial(work, place), MODES[mode](number))
        assert outcome.error is None or "OSError" in outcome.error[0] or "Errno" in outcome.error[1], outcome.error
        told, store = (place / "told").read_text().splitlines(), store_of(place)
        stored = store.read()
        assert stored.damaged == (), (number, "half written")
        remark = stored.remarks.get("r1")
        assert remark is not None or "written" not in told or len(told) >= 2, (number, "reported, and not there")
        if "handed over" in told and remark is not None:
            assert remark.sent is not None and not remark.is_unsent, (number, "handed over, and to be sent")
        if remark is not None:
            assert store.text(remark.version) == b"one\n" * 5_000 or "handed over" in told, (number, "its text is gone")
        assert not store.is_sending()
        with store.locked():
            store.save("r2", ReviewRemark("it goes on"))
        assert "r2" in store.read().remarks
