"""The host around a pair: a project for both, the two programs, and the judgement from what they have done."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import stat
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from mudroom.stage.layers.layer import remove_tree

from ...outside import plant, starting  # noqa: TID252 - the package has another name inside
from .groups import GROUPS
from .landing import LANDINGS, TOP, reviewed
from .pair import BITS, EXPECTED, LOWER, PAIRS, PATIENCE, PLACES, RIGHT, TRIED, digest, word
from .side import Program, Side

WINDOW = 0.8
"""Seconds in which the taker tries: the giver is there already. Where nothing confines, milliseconds are enough."""
_PROXY = 3128


class Meeting(NamedTuple):
    """What came of one pair."""

    evidence: str
    """How they met; empty if they did not."""
    error: str
    """What the taker was told."""


class Ground:
    """A home with a project, made for one test; ``close`` removes it."""

    def __init__(self) -> None:
        assert GROUPS, "the modules of the groups fill the table"
        self.root = Path(tempfile.mkdtemp(prefix="pair-", dir="/var/tmp"))
        self.key = "pair" + secrets.token_hex(6)
        self.secret = "SECRET" + secrets.token_hex(16)
        self.handing = 0.7
        """Seconds in which the giver tries to hand over descriptors of what lands."""
        self.home, self.state = self.root / "home", self.root / "state"
        self.projects = (self.home / "project", self.home / "another")
        for directory in (self.root / "beside", self.state):
            directory.mkdir()
        for path in PLACES.values():
            if path.startswith("{home}"):
                Path(path.format(home=self.home)).mkdir(parents=True, exist_ok=True)
        for project in self.projects:
            self._furnish(project)

    @property
    def project(self) -> Path:
        return self.projects[0]

    def _furnish(self, project: Path) -> None:
        plant("escapes", project)
        (project / LOWER).mkdir()
        (project / ".mudroom").mkdir()
        for number in range(BITS):
            (project / LOWER / f"bit{number:02}").write_text("as it was\n")
        told = {"home": str(self.home), "project": str(project), "root": str(self.root), "state": str(self.state)}
        (project / "pair.json").write_text(json.dumps({**told, "proxy": _PROXY}))

    def argv(self, *words: str) -> list[str]:
        return starting("escapes.pairs.inside", " ".join(words))

    def close(self) -> None:
        for path in self.left():
            path.unlink(missing_ok=True)
        remove_tree(os.fsencode(self.root))

    def left(self) -> list[Path]:
        """Return what programs have made in directories of the machine; root's can in more of them than a user's."""
        places = [Path(place.format(uid=os.getuid())) for place in PLACES.values() if place.startswith("/")]
        return [path for place in places for path in place.glob(f"{self.key}*")]

    def __enter__(self) -> Ground:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


# --- meeting ---


def meet(
    ground: Ground,
    giving: Side,
    taking: Side,
    window: float = WINDOW,
    expected: Collection[str] = (),
    tried: Collection[str] = PAIRS.keys(),
) -> dict[str, Meeting]:
    """Run both at once and return what came of every pair that is ``tried``. Those ``expected`` to meet are waited for
    longer."""
    with _turn():
        return _meet(ground, giving, taking, window, expected, tried)


@contextmanager
def _turn() -> Iterator[None]:
    """Files of the system are signals, and there is one set of them: of several pairs on a machine, which may be of
    several users, one is tried at a time."""
    held = os.open("/usr/share", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
        fcntl.flock(held, fcntl.LOCK_UN)
    finally:
        os.close(held)


def _meet(
    ground: Ground, giving: Side, taking: Side, window: float, expected: Collection[str], tried: Collection[str]
) -> dict[str, Meeting]:
    giver = giving.start(ground.argv("give", ground.key, ground.secret))
    try:
        up = wait(giver, "up")[-1]["up"]
        assert isinstance(up, dict)
        told = {**up, RIGHT: digest(word(ground.secret)), EXPECTED: sorted(expected), TRIED: list(tried)}
        output = taking.run(ground.argv("take", ground.key, str(window), json.dumps(told)))
        refused = {str(line["name"]): str(line["error"]) for line in lines(giver.output()) if "name" in line}
    finally:
        giver.end()
    answers = {line["name"]: line for line in lines(output) if "name" in line}
    missing = sorted(set(tried) - set(answers))
    if missing:
        raise AssertionError(f"the taker did not answer: {missing[:5]}, {output[-500:]}")
    return {name: _judge(ground, answers[name], refused.get(name, "")) for name in tried}


def _judge(ground: Ground, told: dict[str, object], refused: str) -> Meeting:
    value, error = told["value"], str(told["error"] or refused)
    if refused.startswith("mistaken"):
        error = refused
    if value == word(ground.secret):
        return Meeting("a word of 16 bits", error)
    if isinstance(value, str) and ground.secret in value:
        return Meeting("the secret", error)
    if value == f"claim {ground.key}":
        return Meeting("the call was not refused", error)
    return Meeting("", error)


def lines(output: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in output.splitlines() if line.startswith("{") and line.endswith("}")]


def wait(program: Program, key: str, value: object = None) -> list[dict[str, object]]:
    """Return the lines of a program once it has printed one with this key. Raise AssertionError if it ends first."""
    until = time.monotonic() + PATIENCE
    while True:
        ended = program.ended()
        found = [line for line in lines(program.output()) if key in line and value in (None, line[key])]
        if found:
            return found
        if ended or time.monotonic() > until:
            raise AssertionError(f"it did not say {key}: {program.output()[-2000:]}")
        time.sleep(0.005)


# --- landing ---


class Accomplice:
    """The program that keeps descriptors of what lands, in the background of another fork."""

    def __init__(self, ground: Ground, side: Side, giver: str = "") -> None:
        """``giver``: the directory of the giver's fork in mudroom's state, which can be guessed."""
        self.ground, self.side = ground, side
        theirs = {"their_home": f"{giver}/private/home", "their_tmp": f"{giver}/private/tmp"}
        theirs["their_project"] = f"{giver}/copy/work"
        self.program = side.start(ground.argv("keep", ground.key, "-", json.dumps(theirs)))
        wait(self.program, "up")

    def holds(self) -> int:
        """Return how many descriptors it was given."""
        return next((int(str(line["got"])) for line in lines(self.program.output()) if "got" in line), 0)

    def settle(self) -> None:
        """Wait until it has been given descriptors."""
        wait(self.program, "got")

    def hurry(self) -> None:
        """Let it act as soon as it is given something, and go on until ``after``."""
        for phase in ("before", "during"):
            self.side.touch(f"phase-{phase}")

    def act(self, phase: str) -> None:
        """Begin a phase. Return when it has acted; at once in the phase that goes on until the next."""
        if not self.holds():
            return
        self.side.touch(f"phase-{phase}")
        if phase == "after":
            wait(self.program, "acted", "during")
        if phase != "during":
            wait(self.program, "acted", phase)

    def end(self) -> None:
        self.program.end()


def changed(top: Path, names: Iterable[str] = LANDINGS) -> dict[str, str]:
    """Return which attempts have changed what landed below ``top``, each with how."""
    found = {name: _difference(top / TOP / name, name) for name in names}
    return {name: how for name, how in found.items() if how}


def _difference(place: Path, name: str) -> str:
    try:
        names = sorted(os.listdir(place))
        deep = sorted(os.listdir(place / "deep")) if "deep" in names else []
        if (names, deep) != (["deep", "file"], ["file"]):
            return f"there is {names}"
        info = os.lstat(place / "file")
        attributes = [key for key in os.listxattr(place / "file", follow_symlinks=False) if key.startswith("user.")]
        content = (place / "file").read_bytes()
    except OSError as error:
        return error.strerror or repr(error)
    if content != reviewed(name):
        return f"its content is {content[:20]!r}"
    if stat.S_IMODE(info.st_mode) & ~0o777 or info.st_mode & 0o002:
        return f"its mode is {stat.S_IMODE(info.st_mode):o}"
    if info.st_mtime < 1000:
        return "its time is another"
    return f"it has {attributes}" if attributes else ""
