"""The commands that are observed at a hunk: by the journal, and by the contents in the fork's layers."""

from __future__ import annotations

import json

import pytest

from conftest import Place
from mudroom.core.settings import Settings
from mudroom.ext.reasons.session import Observed, ObservedFile, Reasons
from mudroom.ext.reasons.telling import observed_lines, observed_to_json
from mudroom.session import Session

TEN = "".join(f"line {number}\n" for number in range(1, 41))


def run(session: Session, *scripts: str, fork: str = "f", checkpoint: bool = True) -> None:
    for number, script in enumerate(scripts):
        if checkpoint and number:
            session.forks.checkpoint(fork, f"c{number}")
        session.run([b"sh", b"-c", script.encode()], fork=fork)


def commands(seen: ObservedFile, row: Observed) -> list[str]:
    return [seen.steps[number].command[2] for number in row.blame.steps]


@pytest.fixture
def session(place: Place) -> Session:
    (place.project / "a").write_text(TEN)
    return place.session()


def test_each_hunk_of_a_file_knows_its_own_command_by_the_checkpoints(session: Session) -> None:
    first, second, third = "sed -i 's/line 2$/two/' a", "sed -i 's/line 20$/twenty/' a", "echo x > other"
    run(session, first, second, third)
    seen = Reasons(session, "f").of_file(b"a")
    assert [commands(seen, row) for row in seen.rows] == [[first], [second]]
    assert [row.blame.earlier for row in seen.rows] == [(1,), (0,)]
    line = observed_lines(Reasons(session, "f"), seen, seen.rows[1])[0]
    assert line.startswith("observed: changed by command 2 of 3 (`sh -c ") and "twenty" in line


def test_without_checkpoints_a_hunk_is_of_some_of_the_commands(session: Session) -> None:
    first, second = "sed -i 's/line 2$/two/' a", "sed -i 's/line 20$/twenty/' a"
    run(session, first, second, checkpoint=False)
    seen = Reasons(session, "f").of_file(b"a")
    assert [commands(seen, row) for row in seen.rows] == [[first, second]] * 2
    assert "changed by some of command 1 of 2" in observed_lines(Reasons(session, "f"), seen, seen.rows[0])[0]


def test_a_removed_block_is_of_the_command_that_removed_it(session: Session) -> None:
    second = "sed -i '/line 20$/d' a"
    run(session, "sed -i 's/line 2$/two/' a", second, "sed -i 's/line 38$/x/' a")
    seen = Reasons(session, "f").of_line(b"a", 20)
    assert commands(seen, seen.rows[0]) == [second]


def test_a_hunk_of_two_commands_names_both(session: Session) -> None:
    first, second = "sed -i 's/line 2$/two/' a", "sed -i -e 's/line 4$/four/' -e '/line 6$/d' a"
    run(session, first, second, "echo x > b")
    seen = Reasons(session, "f").of_file(b"a")
    (row,) = seen.rows
    assert commands(seen, row) == [first, second] and row.blame.is_certain
    assert "some of" not in observed_lines(Reasons(session, "f"), seen, row)[0]


def test_a_line_that_was_changed_twice_is_of_the_second_command(session: Session) -> None:
    run(session, "sed -i 's/line 2$/two/' a", "sed -i 's/^two$/2/' a", "chmod 700 a")
    seen = Reasons(session, "f").of_file(b"a")
    assert commands(seen, seen.rows[0]) == ["sed -i 's/^two$/2/' a"]


def test_a_rollback_takes_its_commands_away(session: Session) -> None:
    run(session, "echo 1 >> a")
    session.forks.checkpoint("f", "c")
    run(session, "echo 2 >> a")
    session.forks.rollback("f", "c")
    run(session, "echo 3 > b")
    seen = Reasons(session, "f").of_file(b"a")
    assert commands(seen, seen.rows[0]) == ["echo 1 >> a"]
    assert len(seen.steps) == 2


def test_commands_of_a_parent_and_of_an_earlier_name_count(session: Session) -> None:
    run(session, "echo 1 >> a")
    session.forks.checkpoint("f", "c")
    run(session, "echo 2 >> a")
    session.forks.new("child", parent="f", at="c")
    run(session, "echo 3 > b", fork="child")
    session.forks.rename("child", "renamed")
    seen = Reasons(session, "renamed").of_file(b"a")
    assert [step.command[2] for step in seen.steps] == ["echo 1 >> a", "echo 3 > b"]
    assert commands(seen, seen.rows[0]) == ["echo 1 >> a"]


def test_a_fork_with_the_name_of_a_discarded_one_has_none_of_its_commands(session: Session) -> None:
    run(session, "echo 1 >> a")
    session.forks.discard("f")
    run(session, "echo 2 >> a")
    assert [step.command[2] for step in Reasons(session, "f").of_file(b"a").steps] == ["echo 2 >> a"]


def test_file_tools_are_a_step(session: Session) -> None:
    session.forks.new("f")
    session.forks.files("f").write(b"new", b"text\n")
    session.forks.flush("f")
    seen = Reasons(session, "f").of_file(b"new")
    assert "command 1 of 1 by file tools," in observed_lines(Reasons(session, "f"), seen, seen.rows[0])[0]


def test_a_change_that_no_command_made_is_said_to_be_unknown(session: Session) -> None:
    run(session, "echo 1 > b", "echo x > z")
    layer = session.vault.fork("f").layer(session.vault.fork("f").state.upper) + b"/tree/a"
    with open(layer, "w") as stream:
        stream.write(TEN.replace("line 2\n", "two\n"))
    run(session, "true")
    journal = session.vault.journal
    seen = Reasons(session, "f").of_file(b"a")
    lines = observed_lines(Reasons(session, "f"), seen, seen.rows[0])
    assert journal.examine().problems == []
    assert "command 3 of 3" in lines[0], "the command that ran meanwhile: it is observed, not a cause"


def test_a_journal_without_paths_is_read(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mudroom.session.run.changed_paths", lambda *_what: {})
    run(session, "echo 1 >> a")
    seen = Reasons(session, "f").of_file(b"a")
    (line,) = observed_lines(Reasons(session, "f"), seen, seen.rows[0])
    assert line.startswith("observed: no command: 1 command of this fork recorded no paths")


def test_rows_that_a_newer_mudroom_wrote_otherwise_are_read(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = {
        "paths": [["a", "modified"], 3, ["a", "modified", None], ["\ud800", "added", ""], ["b", "made", "x"]],
        "paths_left_out": "many",
    }
    monkeypatch.setattr("mudroom.session.run.changed_paths", lambda *_what: odd)
    run(session, "echo 1 >> a")
    seen = Reasons(session, "f").of_file(b"a")
    assert seen.rows[0].blame.steps == ()
    assert "none of this fork's commands" in observed_lines(Reasons(session, "f"), seen, seen.rows[0])[0]


def test_a_path_beyond_the_bound_is_told_by_its_new_directory(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mudroom.vault.forks.collection.MOST_PATHS", 2)
    run(session, "mkdir -p m/n; for f in 1 2 3; do echo $f > m/n/$f; done; echo z >> a")
    seen = Reasons(session, "f").of_file(b"m/n/2")
    assert len(seen.rows[0].blame.steps) == 1


def test_a_file_that_is_no_text_is_of_its_last_command(session: Session) -> None:
    run(session, "printf 'a\\0b' > bin", "printf 'a\\0c' > bin")
    seen = Reasons(session, "f").of_file(b"bin")
    assert commands(seen, seen.rows[0]) == ["printf 'a\\0c' > bin"] and not seen.rows[0].blame.since


def test_two_commands_at_once_are_both_possible(session: Session) -> None:
    started = session.start([b"sh", b"-c", b"until test -e go; do sleep 0.01; done; echo b >> a"], fork="f")
    run(session, "echo go > go; until test -e done; do echo d > done; done", checkpoint=False)
    started.wait(60)
    seen = Reasons(session, "f").of_file(b"a")
    assert {seen.steps[number].kind for number in seen.rows[0].blame.steps} >= {"background"}


@pytest.mark.parametrize("view", ["overlay", "copy"])
def test_the_answer_as_data_has_the_same(place: Place, view: str) -> None:
    (place.project / "a").write_text(TEN)
    session = place.session(Settings(view=view))  # type: ignore[arg-type]
    run(session, "echo 1 >> a")
    reasons = Reasons(session, "f")
    seen = reasons.of_file(b"a")
    told = observed_to_json(reasons, seen, seen.rows[0])
    assert json.loads(json.dumps(told)) == told
    assert (told["path"], told["of"], told["since"], told["turn"]) == ("a", 1, False, None)
    assert told["commands"][0]["command"] == ["sh", "-c", "echo 1 >> a"]


def test_what_a_command_reached_is_told(session: Session) -> None:
    run(session, "echo 1 >> a")
    flow = {"host": "example.org", "port": 443, "verdict": "allow", "started": session.forks.clock() - 10}
    began = Reasons(session, "f").of_file(b"a").steps[0].began
    session.vault.journal.append("flow", "f", flow | {"started": began + 1}, time=session.forks.clock())
    seen = Reasons(session, "f").of_file(b"a")
    assert seen.rows[0].hosts == ("example.org:443",)


def test_odd_names_and_secrets_do_not_reach_the_terminal(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEPLOY_TOKEN", "correct-horse-battery")
    session = place.session()
    run(session, "echo correct-horse-battery > \"$(printf 'n\\033[31m')\"")
    reasons = Reasons(session, "f")
    seen = reasons.of_file(b"n\x1b[31m")
    text = str(observed_to_json(reasons, seen, seen.rows[0]))
    assert "\x1b" not in text and "battery" not in text
