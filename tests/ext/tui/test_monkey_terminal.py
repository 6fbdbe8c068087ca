"""A short walk of a monkey at the terminal review; ``dev/monkey terminal`` goes further. And its model, by examples."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("textual", reason="the extra tui is not installed")

from conftest import Place
from monkey.chance import Astray, Walk
from monkey.model import Entry, Wish, may_land, merged, selected, wrong_after, wrong_undone
from monkey.terminal import Terminal
from mudroom.ext.tui.selection import Selection
from mudroom.sandbox.client.client import Client

pytestmark = [pytest.mark.deep, pytest.mark.slow]
STEPS = 220


@pytest.mark.parametrize("seed", [4])
def test_a_walk_at_the_terminal(place: Place, seed: int) -> None:
    monkey = Terminal(place, Walk(seed, steps=STEPS))
    monkey.go()
    assert monkey.landed, "it has not come far"


def test_a_review_that_applies_something_else_is_found_out(
    tmp_path: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A monkey that finds nothing has to be one that could. Each walk has a project of its own."""
    honest = Selection.choice

    def greedy(self: Selection) -> object:
        wanted = honest(self)
        return wanted._replace(paths=(), picks={}) if wanted is not None else None

    monkeypatch.setattr(Selection, "choice", greedy)
    with pytest.raises(Astray, match="is not what was shown as chosen"):
        for seed in range(20):
            root = tmp_path / str(seed)
            root.mkdir()
            with closing(Place(root, client)) as place:
                Terminal(place, Walk(seed, steps=STEPS)).go()


def file(content: bytes, mode: int = 0o644) -> Entry:
    return ("file", mode, content)


def test_what_the_model_says_of_texts() -> None:
    base, staged = b"1\n2\n3\n4\n", b"one\n2\n3\nfour\n"
    assert selected(base, staged, {1}) == b"1\n2\n3\nfour\n"
    assert selected(base, staged, {0, 1}) == staged
    assert selected(base, b"1\n", {0}) is None
    assert merged(base, b"1\n2\nmine\n4\n", staged) == b"one\n2\nmine\nfour\n"
    assert merged(base, b"uno\n2\n3\n4\n", staged) is None


def test_what_the_model_allows() -> None:
    base, staged = file(b"1\n2\n"), file(b"one\n2\n", 0o755)
    assert may_land(base, Wish(base, staged)) == [staged]
    assert may_land(base, Wish(base, staged, mode=False)) == [file(b"one\n2\n")]
    assert may_land(file(b"1\nmine\n"), Wish(base, staged)) == [file(b"1\nmine\n"), file(b"one\nmine\n", 0o755)]
    assert may_land(file(b"uno\n2\n"), Wish(base, staged)) == [file(b"uno\n2\n")]
    assert may_land(None, Wish(base, staged), [staged]) == [None, staged]


def test_what_the_model_finds() -> None:
    base, staged = file(b"1\n"), file(b"one\n")
    before, after = {"a": base, "b": base}, {"a": staged, "b": base}
    assert wrong_after(before, after, {"a": Wish(base, staged)}, {}) == []
    assert len(wrong_after(before, after, {}, {})) == 1
    assert len(wrong_after(before, before, {"a": Wish(base, staged)}, {})) == 1
    assert len(wrong_after(before, {"a": staged}, {"a": Wish(base, staged)}, {})) == 1
    assert wrong_undone(before, after, after, before) == []
    assert len(wrong_undone(before, after, after, after)) == 1
    assert len(wrong_undone(before, after, after, {"a": base})) == 1
