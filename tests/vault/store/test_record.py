"""The exit code of a record: the command's own, as in its result, also in records of earlier versions."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from conftest import Place
from inner_path import inner
from mudroom.core.tree import stack
from mudroom.core.tree.change import Changeset
from mudroom.core.tree.stack import Checkpoint, ForkState, checkpoint_line, to_text
from mudroom.errors import OUTDATED, UPGRADE, MudroomError
from mudroom.vault.forks.fork_summary import ForkSummaries
from mudroom.vault.record import FORK_FORMAT, ForkRecord, load
from mudroom.vault.store import fork
from mudroom.vault.store.fork import StateTexts


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


def test_every_text_is_the_one_of_its_state() -> None:
    texts = StateTexts()
    state, states = ForkState("u"), []
    for number in range(20):
        state = stack.with_checkpoint(stack.seal(state, f"u{number}"), f"c{number}", number)
        if number % 5 == 4:
            state = stack.flattened(state, 3, f"m{number}")
        if number % 7 == 6:
            state = stack.without_checkpoint(state, f"c{number - 3}")
        states.append(state)
    for state in (*states, *reversed(states), *states[::3]):
        text = to_text(state).encode()
        assert texts.format(state) == text
        assert texts.parse(text) == state == StateTexts().parse(text)


def test_only_new_texts_are_parsed_and_only_new_lines_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand checkpoints of a fork cost a thousand lines, and no parse of what was just written."""
    parsed: list[str] = []
    lines: list[Checkpoint] = []

    def line(point: Checkpoint) -> str:
        lines.append(point)
        return checkpoint_line(point)

    monkeypatch.setattr(fork, "from_text", parsed.append)
    monkeypatch.setattr(fork, "checkpoint_line", line)
    texts, state = StateTexts(), ForkState("u")
    for number in range(1000):
        state = texts.parse(texts.format(stack.with_checkpoint(state, f"c{number}", number)))
    assert len(lines) == 1000 and parsed == []
