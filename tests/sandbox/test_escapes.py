"""The escape suite against every backend: no attempt succeeds. A table lists attempts that a backend cannot prevent by
its nature."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Callable, Iterator

import pytest

from box import ENVIRONMENT, KINDS, NAMESPACES, Box
from conformance import document
from conformance.escapes import benchmark, tiers
from conformance.escapes.attempt import TABLE
from conformance.escapes.known import NOT_HELD
from conformance.escapes.outside import Range
from conformance.escapes.tools import TOOLS, runner
from conformance.outside import Outcome, able, got_out, mistaken
from mudroom.errors import MudroomError
from mudroom.sandbox.client.capture import CapturedOutput, attend
from mudroom.sandbox.client.held import hold
from mudroom.sandbox.client.invocation import Invocation
from mudroom.sandbox.client.launcher_client import LauncherClient, SpawnedLauncher
from tiers import daily

pytestmark = [pytest.mark.both_users, pytest.mark.alone]

ABSENT = (
    "Function not implemented", "Address family not supported by protocol", "Operation not supported",
    "No such file or directory", "No such device", "Protocol not supported", "Socket type not supported",
    "Invalid argument",
)  # fmt: skip
"""Answers of a kernel that was built without the feature."""
AROUND_US: tuple[str, ...] = (
    ()
    if NAMESPACES
    else (
        "Operation not permitted",
        "Permission denied",
        "Read-only file system",
        "Cannot assign requested address",
        "",
    )
)
"""Answers of a container's own profile, hidden files and missing network."""

PLAIN = [kind for kind in KINDS if " " not in kind]
"""Ways to confine a command that are tried on every change; of the others one a day is."""


@pytest.fixture
def place() -> Iterator[Range]:
    with Range() as place:
        yield place


def boxed(box: Box, kind: str) -> Callable[[list[str]], str]:
    def run(argv: list[str]) -> str:
        nonlocal kind
        plan, kind = box.prepared(kind), kind.partition(" ")[0]  # what is prepared stays so
        return box.run("exec " + shlex.join(argv), plan)[1]

    return run


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.parametrize("kind", [*PLAIN, *daily(kind for kind in KINDS if kind not in PLAIN)])
def test_nothing_gets_out(place: Range, kind: str) -> None:
    client = LauncherClient(SpawnedLauncher())
    client.start()  # now: it inherits a descriptor that was left open by mistake
    try:
        box = Box(place.root, client)
        shutil.copytree(place.project, box.copy, dirs_exist_ok=True)
        project = sorted(place.project.iterdir())
        outcomes = place.try_all(boxed(box, kind), list(TABLE))
    finally:
        client.close()
    assert mistaken(outcomes) == {}
    held = {name for name in got_out(outcomes) if name not in NOT_HELD.get(kind.partition(" ")[0], {})}
    assert {name: outcomes[name].evidence for name in held} == {}
    assert sorted(place.project.iterdir()) == project


@pytest.mark.slow
@pytest.mark.parametrize("kind", daily(PLAIN))
def test_nothing_gets_out_of_a_command_that_joins_another(place: Range, kind: str) -> None:
    """As all of the above, beside one that is there already."""
    client = LauncherClient(SpawnedLauncher())
    client.start()
    box = Box(place.root, client)
    shutil.copytree(place.project, box.copy, dirs_exist_ok=True)
    where = os.fsencode(box.copy if kind == "bare" else box.project)
    sandboxes = [hold(client, box.prepared(kind))]

    def beside(argv: list[str], output: CapturedOutput, other: CapturedOutput) -> None:
        words = [os.fsencode(word) for word in argv]
        first = sandboxes[-1].run(Invocation([b"sleep", b"1000"], ENVIRONMENT, other.descriptors), where)
        running = sandboxes[-1].run(Invocation(words, ENVIRONMENT, output.descriptors), where)
        attend(running, output, None, lambda: None)
        first.close()

    def joined(argv: list[str]) -> str:
        """An attempt may end the sandbox that it is in, and all in it: without namespaces it can end its init."""
        with CapturedOutput(None, None, None, 1 << 20) as output, CapturedOutput(None, None, None, 1) as other:
            try:
                beside(argv, output, other)
            except MudroomError:
                sandboxes.append(hold(client, box.prepared(kind)))
                beside(argv, output, other)
            return "".join(stream.data.decode() for stream in output.streams)

    try:
        outcomes = place.try_all(joined, list(TABLE))
    finally:
        for one in sandboxes:
            one.end()
        client.close()
    assert mistaken(outcomes) == {}
    held = {name for name in got_out(outcomes) if name not in NOT_HELD.get(kind, {})}
    assert {name: outcomes[name].evidence for name in held} == {}


@pytest.mark.root
@pytest.mark.slow
def test_nothing_gets_out_of_mudroom_run(place: Range) -> None:
    tool = next(tool for tool in TOOLS if tool.name == "mudroom")
    outcomes = place.try_all(runner(tool, place), list(TABLE))
    assert mistaken(outcomes) == {}
    kept = {name: how for name, how in got_out(outcomes).items() if NAMESPACES or name not in NOT_HELD["bare"]}
    assert kept == {}
    refused = [outcome for outcome in outcomes.values() if outcome.error and outcome.error != "no answer"]
    assert len(refused) > len(TABLE) / 2, "they were tried"


@pytest.mark.slow
def test_without_a_sandbox_they_get_out(place: Range) -> None:
    """A control of every attempt, to prove that the test above can fail; attempts whose feature the kernel lacks are
    left out."""
    tool = next(tool for tool in TOOLS if tool.name == "none")
    reader, writer = os.pipe()
    with open(reader, "rb", buffering=0) as ours, open(writer, "wb", buffering=0) as theirs:
        theirs.write(b"for its reader")
        outcomes = place.try_all(runner(tool, place), able(TABLE))
        assert ours.read(100) == b"for its reader", "other tests of root's, or of another user, wait for theirs"
    assert mistaken(outcomes) == {}
    failed = {name: outcome.error for name, outcome in outcomes.items() if not outcome.evidence}
    assert {name: error for name, error in failed.items() if error not in (*ABSENT, *AROUND_US)} == {}
    assert len(outcomes) - len(failed) > (200 if NAMESPACES else 150)


def test_the_table_is_complete() -> None:
    assert len(TABLE) >= 120
    assert all(attempt.tries for attempt in TABLE.values())
    assert {name for held in NOT_HELD.values() for name in held} <= set(TABLE)
    assert all(reason for held in NOT_HELD.values() for reason in held.values())


def test_what_stock_systems_reported_stands_in_the_document_with_its_reason() -> None:
    text = (document.FOLDER / "ESCAPES.md").read_text()
    assert tiers.SECTION.of(text).count("\n| ") > 2 and "nobody knows" not in text


def test_every_scenario_of_a_benchmark_has_attempts_or_a_reason() -> None:
    named = {name for scenario in benchmark.all_scenarios() for name in scenario.attempts}
    assert named <= set(TABLE)
    assert all(scenario.attempts or scenario.why for scenario in benchmark.all_scenarios())
    text = (document.FOLDER / "ESCAPES.md").read_text()
    assert benchmark.SECTION.keep(text, text) == text


def test_attempts_that_all_sandboxes_hold_are_one_row() -> None:
    names = ("plain_write", "truncate", "plain_read")
    cells = (["**out**", "·", "·"], ["-", "·", "·"], ["**out**", "·", "**out**"])
    found = list(document.rows([TABLE[name] for name in names], ["none", "ours", "theirs"], cells, "none"))
    assert [row.split(" | ")[0] for row in found] == ["| plain_read", "| *2 held by all*"]
    assert found[1].endswith("(landlock(7): not handled before ABI 3) | | **1** | · | · |"), found[1]
    assert all(f"{name}: {TABLE[name].tries}" in found[1] for name in names[:2])
    assert len(list(document.rows([TABLE[name] for name in names], ["none", "ours", "theirs"], cells, ""))) == 3


def test_a_section_of_tiers_takes_the_place_of_the_old_one() -> None:
    outcomes = {name: Outcome(name, "seen" * (name == "look"), "") for name in ("look", "watch")}
    line = json.dumps(tiers.report("somewhere", outcomes, namespaces=False)._asdict())
    (report,) = tiers.read(["noise\n", line])
    assert (report.tried, report.answered, report.out) == (2, 2, {"look": "seen"})
    once = tiers.SECTION.put("# Head\n", tiers.section([report]))
    assert tiers.SECTION.put(once, tiers.section([report])) == once
    assert once.startswith("# Head\n") and f"somewhere ({report.user}) | {NOT_HELD['bare']['look']} |" in once
