"""``mudroom ls --matrix --verify``: where the policy's verify command passes, and how long that holds."""

from __future__ import annotations

import json
import os
import time
from contextlib import closing
from pathlib import Path

import pytest

from box import if_namespaces
from clocks import give_way
from conftest import Place
from mudroom.core.settings import Settings
from mudroom.ext.attempts.session import verdict as module
from mudroom.ext.attempts.session.matrix import MatrixCell, matrix
from mudroom.ext.attempts.session.verdict import known_verdict, verify_cells, with_verdicts
from mudroom.sandbox.client.cancellation import Cancellation
from mudroom.session import Session
from mudroom.stage.stamp import is_settled
from test_vault_verb import Cli

pytestmark = if_namespaces
VERIFY = (b"sh", b"-c", b'test "$(cat one two three 2>/dev/null | wc -l)" -lt 3 && ! grep -q bad one')
NAMES = ["a", "b", "c"]
Found = dict[tuple[str, str], bool | None]


@pytest.fixture
def session(place: Place) -> Session:
    """Each fork adds a line to another file; the project has one, so that each passes alone, and no pair."""
    place.write("one", "1\n")
    session = place.session(Settings(verify=VERIFY))
    for name, file in zip(NAMES, ("two", "three", "one"), strict=True):
        assert session.run([b"sh", b"-c", b"echo %s >> %s" % (name.encode(), file.encode())], fork=name).exit_code == 0
    settle(place)
    return session


def settle(place: Place) -> None:
    """Wait until all stamps can be relied on."""
    for at in (
        *place.state.glob("vaults/*/forks/*/*"),
        *place.state.glob("vaults/*/forks/*"),
        *place.project.iterdir(),
    ):
        while not is_settled(at.lstat().st_ctime_ns, time.time_ns()):
            give_way()


def verified(session: Session, budget: float = module.BUDGET) -> list[MatrixCell]:
    with closing(Cancellation()) as cancellation:
        return verify_cells(session, matrix(session, NAMES), cancellation, budget=budget)


def verdicts(cells: list[MatrixCell]) -> Found:
    return {(cell.one, cell.other): cell.verified for cell in cells}


EXPECTED: Found = {("a", ""): True, ("b", ""): True, ("c", ""): True, ("a", "b"): False, ("a", "c"): False}


def test_verdicts_are_found_kept_and_end(place: Place, session: Session) -> None:
    before = {fork.name for fork in session.vault.forks()}
    cells = verified(session)
    assert verdicts(cells) == EXPECTED | {("b", "c"): False}
    assert {fork.name for fork in session.vault.forks()} == before, "nothing is left of it"
    settle(place)
    again = with_verdicts(place.session(Settings(verify=VERIFY)), matrix(session, NAMES))
    assert verdicts(again) == verdicts(cells), "another process has them, too"
    other = place.session(Settings(verify=(b"true",)))
    assert set(verdicts(with_verdicts(other, matrix(other, NAMES))).values()) == {None}, "another command"
    assert session.run([b"sh", b"-c", b"echo bad > two"], fork="a").exit_code == 0
    settle(place)
    after = verdicts(with_verdicts(session, matrix(session, NAMES)))
    assert {pair for pair, passed in after.items() if passed is None} == {("a", ""), ("a", "b"), ("a", "c")}
    place.write("one", "bad\n")
    settle(place)
    assert verdicts(with_verdicts(session, matrix(session, NAMES)))["c", ""] is None, "the project has changed it"


def test_an_apply_ends_all_verdicts(place: Place, session: Session) -> None:
    verified(session)
    session.forks.new("d")
    session.run([b"sh", b"-c", b"echo d > d"], fork="d")
    with session.alone("a test"):
        session.changes.apply("d", reviewed=None)
    settle(place)
    assert set(verdicts(with_verdicts(session, matrix(session, NAMES))).values()) == {None}


def test_without_time_nothing_runs(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_passes", lambda *_words: pytest.fail("it runs"))
    assert set(verdicts(verified(session, budget=-1)).values()) == {None}


def test_a_cut_file_is_computed_again(place: Place, session: Session) -> None:
    verified(session)
    Path(os.fsdecode(session.vault.path), "verdicts").write_text('{"x": [tr')
    assert verdicts(with_verdicts(session, matrix(session, ["a"]))) == {("a", ""): None}


def test_a_try_knows_them(place: Place, session: Session) -> None:
    verified(session)
    settle(place)
    verdict = known_verdict(session, "b", "a", VERIFY)
    assert verdict is not None and not verdict.passed, "in either order"
    assert known_verdict(session, "b", "a", (b"true",)) is None


def test_the_verb(place: Place) -> None:
    cli = Cli(place)
    place.write("one", "1\n")
    place.write(".mudroom/policy.yaml", "verify:\n  command: grep -q 1 one\n")
    for name, word in (("a", "11"), ("b", "2")):
        assert cli("exec", "--fork", name, "--", "sh", "-c", f"echo {word} > one; echo > {name}").returncode == 0
    settle(place)
    done = cli("ls", "--matrix", "--verify")
    assert (done.returncode, done.stdout.splitlines()[:3]) == (
        3,
        ["   project  a", "a  passes", "b  fails    1 conflict"],
    )
    verifying, again, said = done.stderr.splitlines()
    assert (verifying, again) == ("note: verifying a (1 of 2)", "note: verifying b (2 of 2)")
    assert said.startswith("note: passes, fails: /bin/sh -c 'grep -q 1 one', since 20")
    rows = json.loads(cli("ls", "--matrix", "--json").stdout)["pairs"]
    assert [row["verified"] for row in rows] == [True, False, None]
    assert cli("discard", "a").returncode == 0
    assert cli("ls", "--matrix", "--verify").returncode == 5
    wrong = cli("ls", "--verify")
    assert (wrong.returncode, wrong.stderr) == (
        125,
        "mudroom: --verify is for --matrix (mudroom ls --matrix --verify)\n",
    )


def test_without_a_verify_command(place: Place) -> None:
    done = Cli(place)("ls", "--matrix", "--verify")
    assert (done.returncode, done.stderr) == (
        125,
        "mudroom: the policy has no verify command (verify: {command: make test} in .mudroom/policy.yaml)\n",
    )


def test_two_forks_of_the_home_conflict(place: Place) -> None:
    (place.home / ".bashrc").write_text("a\n")
    session = place.session()
    home = [os.fsencode(place.home)]
    names = [session.run([b"sh", b"-c", b"echo %d > ~/.bashrc" % word], roots=home).fork for word in (1, 2)]
    path = os.fsencode(place.home / ".bashrc")
    assert [cell.conflicts for cell in matrix(session, names)] == [(), (), (path,)]
    (place.home / ".bashrc").write_text("mine\n")
    assert [cell.conflicts for cell in matrix(session, names)] == [(path,), (path,), (path,)]
