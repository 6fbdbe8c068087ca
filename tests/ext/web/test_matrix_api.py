"""The matrix of forks by the page's API: what it says, and what of it is computed again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from pageside import PageSide, changed

from clocks import give_way
from conftest import Place
from mudroom.ext.attempts.session import matrix as module
from mudroom.stage.stamp import is_settled

TEXT = "1\n2\n3\n4\n5\n6\n7\n8\n9\n"


@pytest.fixture
def page(place: Place) -> PageSide:
    place.write("f", TEXT)
    changed(place, "sed -i s/^2$/a/ f", "a")
    changed(place, "sed -i s/^2$/b/ f", "b")
    changed(place, "sed -i s/^8$/c/ f; echo > new", "c")
    return PageSide(place)


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The cells that were computed: each with the names of its forks."""
    found: list[tuple[str, ...]] = []

    def counting(compute: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*words: Any) -> Any:
            found.append(words[2:])
            return compute(*words)

        return counted

    for name in ("_with_project", "_pair"):
        monkeypatch.setattr(module, name, counting(getattr(module, name)))
    return found


def cells(page: PageSide) -> dict[tuple[str, str], Any]:
    """The answer for each cell that is not clean, when all stamps can be relied on."""
    for at in (*page.place.state.glob("vaults/*/forks/*/*"), *page.place.state.glob("vaults/*/forks/*")):
        while not is_settled(at.lstat().st_ctime_ns, time.time_ns()):
            give_way()
    while not is_settled((page.place.project / "f").stat().st_ctime_ns, time.time_ns()):
        give_way()
    found = page.get(page.project + "/matrix")
    assert (found["forks"], len(found["cells"])) == (["a", "b", "c"], 6)
    return {
        (cell["fork"], cell["other"]): cell["problem"] or [path["path"] for path in cell["paths"]]
        for cell in found["cells"]
        if cell["conflicts"] != 0
    }


def test_cells_are_computed_once_and_again_when_a_side_has_changed(
    place: Place, page: PageSide, computed: list[tuple[str, ...]]
) -> None:
    assert cells(page) == {("a", "b"): ["f"]}
    assert len(computed) == 6
    cells(page)  # a look may have written something
    computed.clear()
    assert cells(page) == {("a", "b"): ["f"]}
    assert computed == []
    place.write("f", TEXT.replace("8", "user"))
    assert cells(page) == {("a", "b"): ["f"], ("c", ""): ["f"]}
    cells(page)
    computed.clear()
    changed(place, "echo other > new", "b")
    assert cells(page) == {("a", "b"): ["f"], ("b", "c"): ["new"], ("c", ""): ["f"]}
    assert sorted(computed) == [("a", "b"), ("b",), ("b", "c")]


def test_a_decision_ends_a_conflict(place: Place, page: PageSide) -> None:
    place.write("f", TEXT.replace("8", "user"))
    assert ("c", "") in cells(page)
    session = place.session()
    (conflict,) = session.changes.conflicts("c")
    session.changes.decide("c", conflict, "theirs")
    assert ("c", "") not in cells(page)


def test_a_damaged_fork_and_a_late_pair_are_told_and_not_kept(
    place: Place, page: PageSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    (record,) = place.state.glob("vaults/*/forks/b/record")
    good = record.read_bytes()
    record.write_bytes(b"damaged")
    found = cells(page)
    assert found.keys() == {("b", ""), ("a", "b"), ("b", "c")}
    assert found["a", "b"] == "not compared: b cannot be read now"
    record.write_bytes(good)
    monkeypatch.setattr(time, "monotonic", iter(range(0, 1_000_000, 20)).__next__)
    assert set(cells(page).values()) == {module.LATE}
    monkeypatch.undo()
    assert cells(page) == {("a", "b"): ["f"]}


def test_forks_are_verified_by_a_job(place: Place, page: PageSide) -> None:
    place.write(".mudroom/policy.yaml", "verify:\n  command: grep -q a f\n  when: always\n")
    cells(page)
    job = page.job(page.project + "/matrix/verify", {})
    assert (job["state"], job["result"]) == ("done", {"verified": 5, "open": 0})
    found = page.get(page.project + "/matrix")
    assert found["verify"] == "/bin/sh -c 'grep -q a f'"
    verified = {(cell["fork"], cell["other"]): cell["verified"] for cell in found["cells"]}
    assert verified == {
        ("a", ""): True, ("b", ""): False, ("c", ""): False,
        ("a", "b"): None, ("a", "c"): True, ("b", "c"): False,
    }  # fmt: skip
    place.write(".mudroom/policy.yaml", "")
    answer = page.post(page.project + "/matrix/verify", {}, status=400)
    assert answer["error"] == "the policy has no verify command"
