"""Attempts that attack other attempts, the judge or the record, and forks that change after they were judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conftest import Place
from mudroom.errors import UsageError
from mudroom.ext.attempts import record as records
from mudroom.ext.attempts.session.discard import discard
from mudroom.ext.attempts.session.judge import MARGIN, OutputEnd
from mudroom.ext.attempts.session.request import AttemptRequest
from mudroom.vault.store.fork import Fork
from test_attempts import forks, ran, several, shell, states
from whole_text import whole


@pytest.mark.parametrize(
    "script", ["rm tools/own-judge", "chmod -x tools/own-judge", "echo '#!/no/such/interpreter' > tools/own-judge"]
)
def test_an_attempt_that_breaks_the_judge_of_the_project_fails_alone(
    place: Place, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    judge = place.project / "tools" / "own-judge"
    judge.parent.mkdir()
    judge.write_text("#!/bin/sh\n")
    judge.chmod(0o755)
    monkeypatch.setenv("PATH", f"{judge.parent}:/usr/bin:/bin")
    record = ran(place.session(), several(f"test {{i}} != 1 || {script}; echo > a", 3, jobs=1, judge=(b"own-judge",)))
    assert (states(record), record.end) == (["failed", "passed", "passed"], "")


def test_the_end_of_an_output_begins_with_no_part_of_a_secret() -> None:
    secret = "correct-horse-battery-" * 20
    for after in (0, 1, 3, 100, 300, 430, 440, 441, MARGIN - 1, MARGIN, MARGIN + 200, 3 * MARGIN):
        for piece in (1 << 20, 4096, 4093):
            end, data = OutputEnd(), b"x" * 100_000 + secret.encode() + b"y" * (records.REPORT - 440 + after)
            for at in range(0, len(data), piece):
                end.hear("stdout", data[at : at + piece])
            report = end.report([secret])
            whole = b"x" * 100_000 + b"[redacted]" + data[100_440:]
            assert whole.endswith(report) and len(report) > records.REPORT - 440, (after, piece)


def test_an_output_of_secrets_alone_leaves_no_part_of_one() -> None:
    secret = "correct-horse-battery-" * 20
    for shift in range(0, 440, 7):
        end = OutputEnd()
        end.hear("stdout", b"z" * shift + secret.encode() * 400)
        assert end.report([secret]).replace(b"[redacted]", b"") == b"", shift


def test_a_fork_that_has_changed_since_it_was_judged_is_not_discarded(place: Place) -> None:
    session = place.session()
    record = ran(session, several("echo {i} > a", 4, judge=shell("grep 1 a")))
    session.run([b"sh", b"-c", b"echo work > mine"], fork="t1-3")
    session.forks.discard("t1-4")
    session.run([b"sh", b"-c", b"echo other work > mine"], fork="t1-4")
    told = "these forks stay, for they have changed since they were judged: t1-3, t1-4"
    with pytest.raises(UsageError, match=whole(f"{told} (mudroom discard t1-3, or mudroom fork rename t1-3 NEW-NAME)")):
        discard(session, record, everything=False)
    assert forks(session) == {"t1-1", "t1-3", "t1-4"}
    with pytest.raises(UsageError, match="since they were judged: t1-3, t1-4 "):
        discard(session, record, everything=True)
    assert forks(session) == {"t1-3", "t1-4"}
    session.forks.rename("t1-3", "keeper")
    session.forks.discard("t1-4")
    assert discard(session, record, everything=True) == []
    assert records.tries(session.vault.path).records == ()
    assert forks(session) == {"keeper"}


@pytest.mark.parametrize("view", ["overlay", "copy"])
def test_a_fork_that_was_only_read_since_is_discarded(place: Place, view: str) -> None:
    from mudroom.core.settings import Settings

    session = place.session(Settings(view=view))  # type: ignore[arg-type]
    (place.project / "a").write_text("a\n")
    record = ran(session, AttemptRequest((shell("echo {i} >> a; ln a b"),) * 3, judge=shell("grep 1 a")))
    session.run([b"cat", b"a"], fork="t1-2")
    session.forks.checkpoint("t1-3", "point")
    assert discard(session, record, everything=False) == ["t1-2", "t1-3"]


def test_what_a_killed_judge_has_left_goes_with_the_try(place: Place) -> None:
    session = place.session()
    record = ran(session, several("echo {i} > a", 2, judge=shell("grep 1 a")))
    session.forks.new("judge-1234", parent="t1-1", named=False)
    session.forks.new("t1-union-1234", parent="t1-2", named=False)
    session.forks.new("judge-5678", parent="t1-union-1234", named=False)
    session.forks.new("judge-mine", parent="t1-2")
    session.forks.new("judge-other", named=False)
    assert set(discard(session, record, everything=False)) == {"judge-1234", "t1-union-1234", "judge-5678", "t1-2"}
    assert forks(session) == {"t1-1", "judge-mine", "judge-other"}


def test_a_union_writes_through_no_link_of_an_attempt(place: Place, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    place.write("d/kept", "kept\n")
    link = f"rm -r d; ln -s {outside} d; echo > one"
    for scripts in ((link, "echo x > d/new; echo > two"), ("echo x > d/new; echo > two", link)):
        request = AttemptRequest(tuple(map(shell, scripts)), judge=shell("test -e one -a -e two"), combine=True)
        ran(place.session(), request)
        assert list(outside.iterdir()) == []


@pytest.mark.parametrize("gone", ["t1-1", "t1-2", "t1-union"])
def test_a_fork_that_is_discarded_while_unions_are_made_does_not_end_the_try(
    place: Place, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    session = place.session()
    made = session.forks.new

    def new(name: str, **options: Any) -> Fork:
        if name == "t1-union" and gone != "t1-union" and session.vault.find(gone) is not None:
            session.forks.discard(gone)
        fork = made(name, **options)
        if name.startswith("judge-") and options["parent"] == gone == "t1-union":
            session.forks.discard(gone)
        return fork

    monkeypatch.setattr(session.forks, "new", new)
    record = ran(session, several("echo > new{i}", 3, judge=shell("test -e new1"), combine=True))
    assert record.ended
    assert (states(record), record.best) == (["passed", "failed", "failed"], 1)
