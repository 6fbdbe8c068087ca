"""The text of a state is the same with and without the texts that are kept."""

from __future__ import annotations

import pytest

from mudroom.core.tree import stack
from mudroom.core.tree.stack import Checkpoint, ForkState, checkpoint_line, to_text
from mudroom.vault.store import fork
from mudroom.vault.store.fork import StateTexts


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
