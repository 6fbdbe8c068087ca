"""Classes against execution: lines run in a sandbox, and none does what its classes do not admit (decision 0053).

``python -m tests.conformance.classes`` runs more of them, for as long as it is told.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from command_files import HOSTILE, KNOWN_DISAGREEMENTS
from conformance.classes.__main__ import told
from conformance.classes.comparison import effects
from conformance.classes.runner import SYSTEM_PATH, Line, Ran, Runner
from conformance.classes.search import Report, classes_of, judge, lines_of, search
from conformance.classes.survey import installed, survey
from tiers import SEED

SEEN: dict[str, tuple[str, ...]] = {
    "ls": (),
    "git status": (),
    "git diff": (),
    "grep -r readme .": (),
    "cat ~/.ssh/id_ed25519": (),
    "echo x > new.out": ("changed",),
    "chmod 600 README.md": ("changed",),
    "mv notes.txt other.txt": ("changed",),
    "gzip notes.txt": ("changed",),
    "git stash": ("changed",),
    "git add notes.txt && rm notes.txt": ("changed",),
    "rm notes.txt": ("changed", "lost"),
    "git clean -f": ("changed", "lost"),
    "git checkout-index -f -a": ("changed", "lost"),
    "git branch -D topic": ("changed", "lost"),
    "./evil": ("ran",),
    "PATH=bin:$PATH ls": ("ran",),
    "LD_PRELOAD=./evil.so ls": ("ran",),
    "git -c core.fsmonitor=./evil status": ("ran",),
    "(setsid sleep 60 &) ; setsid sleep 60 & ./evil": ("ran",),
    "cat < /dev/tcp/127.0.0.1/8080": ("dialled",),
    "echo x > /dev/udp/192.0.2.1/53": ("dialled",),
    "echo x >> ~/.bashrc": ("outside",),
    "chmod -R 000 .": ("changed",),
    "rm -rf -- * .[a-z]*": ("changed", "lost"),
    "cat README.md notes.txt": (),
}
"""Lines, in this order, and what is observed of them: each finds the project as if no other had run."""


def ran_by_line(ran: Iterable[Ran]) -> dict[str, Ran]:
    return {one.line.text: one for one in ran}


@pytest.mark.slow
def test_effects_are_seen_and_classes_admit_them() -> None:
    """The table above, then hostile lines that are drawn daily."""
    drawn = random.Random(SEED).sample(HOSTILE, 40)
    hostile = [Line(line.split()[0].decode(), line.decode()) for _classes, line in drawn if b"kill" not in line]
    with Runner() as runner:
        found = ran_by_line(runner.run([*(Line(text.split()[0], text) for text in SEEN), *hostile]))
    seen = {text: effects(found[text].seen, text) if text in found else () for text in SEEN}
    assert seen == SEEN
    assert found["cat ~/.ssh/id_ed25519"].seen.secret
    _counts, disagreements = judge([found[line.text] for line in hostile if line.text in found], is_known)
    assert not disagreements, "\n".join(told(Report(len(hostile), 1, _counts, tuple(disagreements)), SEED))
    assert sum(_counts.values()) > len(hostile) / 4, "they were run"


@pytest.mark.deep
@pytest.mark.slow
def test_a_line_with_a_terminal_and_one_that_ends_the_harness() -> None:
    lines = [
        Line("git", "GIT_PAGER=./evil git log", terminal=True),
        Line("sh", "kill -9 $PPID"),
        Line("sleep", "sleep 60"),
        Line("echo", "echo x > new.out"),
    ]
    with Runner(limit=0.5) as runner:
        found = ran_by_line(runner.run(lines))
        assert runner.count == len(lines)
    assert found["GIT_PAGER=./evil git log"].seen.ran == ("evil",)
    assert found["kill -9 $PPID"].seen.end == "harness"
    assert found["echo x > new.out"].seen.changed == ("new.out",)


def test_an_interruption_is_told_as_one_and_leaves_no_directory() -> None:
    """It leaves the work directory of an overlay, which has mode 0 (as does a launcher that is killed)."""
    with pytest.raises(KeyboardInterrupt), Runner() as runner:
        work = runner.top / "state" / "work" / "work"
        work.mkdir(parents=True)
        work.chmod(0)
        raise KeyboardInterrupt
    assert not runner.top.exists()


@pytest.mark.slow
def test_lines_are_made_of_the_options_that_a_program_has_here() -> None:
    words = [words for words in installed(SYSTEM_PATH) if words == ("sort",)]
    with Runner() as runner:
        (program,) = survey(runner, words)
    assert {"--output", "--compress-program", "-o"} <= {option.name for option in program.options}
    lines = list(lines_of(program, random.Random(1)))
    assert len(lines) > 100
    assert not any({"unknown", "host_escape_risk"}.intersection(classes_of(line.text)) for line in lines)


@pytest.mark.deep
@pytest.mark.limit(900)
def test_every_hostile_line_does_no_more_than_its_classes_admit() -> None:
    with Runner() as runner:
        ran = list(runner.run([Line(line.split()[0].decode(), line.decode()) for _classes, line in HOSTILE]))
    counts, disagreements = judge(ran, is_known)
    assert not disagreements, "\n".join(told(Report(len(HOSTILE), 1, counts, tuple(disagreements)), SEED))


@pytest.mark.deep
@pytest.mark.limit(900)
def test_generated_lines_do_no_more_than_their_classes_admit() -> None:
    with Runner() as runner:
        report = search(runner, seconds=120, seed=SEED, path=SYSTEM_PATH, known=is_known)
    assert report.lines > 1000
    assert not report.disagreements, "\n".join(told(report, SEED))


def is_known(line: str) -> bool:
    return line.encode() in KNOWN_DISAGREEMENTS
