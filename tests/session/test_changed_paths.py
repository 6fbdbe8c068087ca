"""The journal has the paths that each command changed, with the digests of their contents."""

from __future__ import annotations

import os
from typing import Any

import pytest

from conftest import Place
from mudroom.core.journal.event import data_of
from mudroom.core.journal.event_filter import EventFilter
from mudroom.core.settings import Settings
from mudroom.session import Session
from mudroom.vault.forks import collection
from mudroom.vault.forks.collection import digest_of


def events(session: Session, kind: str = "run") -> list[dict[str, Any]]:
    return [data_of(event) for event in session.vault.journal.events(where=EventFilter((kind,)))]


def run(session: Session, script: str) -> dict[str, Any]:
    session.run([b"sh", b"-c", script.encode()], fork="f")
    return events(session)[-1]


def test_each_command_has_its_own_paths_with_kind_and_digest(place: Place) -> None:
    (place.project / "old").write_text("old\n")
    (place.project / "gone").write_text("gone\n")
    session = place.session()
    first = run(session, "echo one > a; echo more >> old; rm gone; mkdir d; echo two > d/b")
    assert first["paths"] == [
        ["a", "added", digest_of(b"one\n")],
        ["d", "added", ""],
        ["gone", "deleted", ""],
        ["old", "modified", digest_of(b"old\nmore\n")],
        ["d/b", "added", digest_of(b"two\n")],
    ]
    assert "paths_left_out" not in first
    assert run(session, "chmod 755 a; echo 3 >> d/b")["paths"] == [
        ["a", "mode", digest_of(b"one\n")],
        ["d/b", "modified", digest_of(b"two\n3\n")],
    ]
    assert "paths" not in run(session, "cat a; touch -r a a"), "a command that changes nothing has no paths"


def test_what_a_checkpoint_has_sealed_is_not_the_next_commands(place: Place) -> None:
    session = place.session()
    run(session, "echo 1 > a; echo 1 > b")
    session.forks.checkpoint("f", "c")
    assert [row[0] for row in run(session, "echo 2 > b")["paths"]] == ["b"]


def test_a_change_that_is_taken_back_is_one(place: Place) -> None:
    (place.project / "a").write_text("a\n")
    session = place.session()
    run(session, "rm a; echo b > b")
    assert run(session, "echo a > a; rm b")["paths"] == [["a", "added", ""], ["b", "deleted", ""]]


def test_the_paths_are_bounded_and_those_left_out_are_counted(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collection, "MOST_PATHS", 3)
    monkeypatch.setattr(collection, "LARGEST", 4)
    told = run(place.session(), "mkdir m; for n in 1 2 3 4 5; do echo $n > m/$n; done; echo large > z; echo s > y")
    assert [row[0] for row in told["paths"]] == ["m", "y", "z"], "the nearest to the top"
    assert told["paths"][2] == ["z", "added", ""]
    assert told["paths_left_out"] == 5


def test_secrets_are_not_told(place: Place) -> None:
    told = run(place.session(), "echo KEY=value123456 > .env; echo a > a")
    assert [row[0] for row in told["paths"]] == ["a"]
    assert told["paths_left_out"] == 1


def test_file_tools_have_their_paths(place: Place) -> None:
    session = place.session()
    session.forks.new("f")
    session.forks.files("f").write(b"new", b"text\n")
    session.forks.flush("f")
    (edit,) = events(session, "edit")
    assert edit["paths"] == [["new", "added", digest_of(b"text\n")]]


def test_a_command_in_the_background_has_its_paths(place: Place) -> None:
    session = place.session()
    session.start([b"sh", b"-c", b"echo b > b"], fork="f").wait(60)
    (ended,) = events(session, "background_end")
    assert ended["paths"] == [["b", "added", digest_of(b"b\n")]]


def test_a_name_that_is_no_text_is_kept(place: Place) -> None:
    told = run(place.session(), "echo a > \"$(printf 'a\\377')\"")
    assert os.fsencode(told["paths"][0][0]) == b"a\xff"


def test_a_fork_on_a_copy_has_paths(place: Place) -> None:
    session = place.session(Settings(view="copy"))
    run(session, "echo 1 > a; echo 1 > b")
    assert run(session, "echo 2 > b")["paths"] == [["b", "modified", digest_of(b"2\n")]]
