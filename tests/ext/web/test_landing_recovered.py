"""An apply by the page's API that finishes first what a crash had left: both are told."""

from __future__ import annotations

from typing import Any

import pytest
from pageside import PageSide, changed, cut_off

from conftest import Place, listing
from mudroom.errors import MudroomError
from mudroom.vault.journal.journal import Journal


@pytest.fixture
def page(place: Place) -> PageSide:
    return PageSide(place)


def names(place: Place) -> set[str]:
    return set(listing(place.project))


def test_what_a_crash_had_left_is_told(place: Place, page: PageSide, monkeypatch: pytest.MonkeyPatch) -> None:
    changed(place, "echo 1 > a", "first")
    changed(place, "echo 2 > b", "second")
    cut_off(place, monkeypatch, "first")
    assert names(place) == set()
    landed = page.apply("second")
    assert landed["remarks"] == [
        {"id": "", "path": "apply u1 of first", "text": "was cut off in the middle; it is finished now"}
    ]
    assert names(place) == {"a", "b"}


def test_what_was_finished_first_is_told_with_what_did_not_happen(
    place: Place, page: PageSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed(place, "echo 1 > a")
    cut_off(place, monkeypatch)
    job = page.job(f"{page.project}/forks/agent-1/apply", {"reviewed": page.fingerprint("agent-1")})
    assert (job["state"], job["problem"]["code"]) == ("failed", "recovered")
    first, _stop, more = job["problem"]["error"].partition(". ")
    assert first == "apply u1 of agent-1 was cut off in the middle; it is finished now"
    assert more.startswith("Nothing more was applied: ")
    assert names(place) == {"a"}


def test_what_was_finished_first_is_told_with_what_has_landed_and_is_not_recorded(
    place: Place, page: PageSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed(place, "echo 1 > a", "first")
    changed(place, "echo 2 > b", "second")
    cut_off(place, monkeypatch, "first")
    body = {"reviewed": page.fingerprint("second")}
    append = Journal.append

    def failing(journal: Journal, kind: str, *words: Any, **more: Any) -> None:
        if (kind, names(place)) == ("apply", {"a", "b"}):
            raise MudroomError("the journal cannot be written")
        append(journal, kind, *words, **more)

    monkeypatch.setattr(Journal, "append", failing)
    job = page.job(f"{page.project}/forks/second/apply", body)
    first, _stop, more = job["problem"]["error"].partition(". ")
    assert first == "apply u1 of first was cut off in the middle; it is finished now"
    assert more == "u2 has been applied; after that: the journal cannot be written"
    assert names(place) == {"a", "b"}
