"""Runs one of the two where it is to be tried. Prints one line of JSON for each pair.

    python3 -I -S -B -c '…; from conformance.escapes.pairs.inside import main; main()' WORDS

``give KEY SECRET``: be met until killed. ``take KEY SECONDS TOLD``: try to meet, and end.
``hand KEY NAMES SECONDS``: make the files that land, hand their descriptors over, and end.
``keep KEY - PATHS``: take these, and act when ``phase-WHEN`` is in the project. Beside it is ``pair.json``.
``beside KEY NAME``: work on a script that the host starts meanwhile, until killed.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import time
from collections.abc import Generator
from typing import Any

from . import landing
from .descriptors import hand_over, make, take_over
from .groups import GROUPS
from .pair import EXPECTED, PAIRS, PATIENCE, PLACES, RIGHT, TRIED, World, is_word

LONGEST = 80
"""Seconds after which every part ends by itself."""
PAUSE = 0.03
"""Seconds between two acts during an apply: without it no apply would find the fork as it was reviewed."""


def main() -> None:
    assert GROUPS, "the modules of the groups fill the table"
    signal.alarm(LONGEST)
    role, key, *words = sys.argv[1].split(" ", 3)
    {"give": give, "take": take, "hand": hand, "keep": keep}[role](world(role, key, words), words)


def world(role: str, key: str, words: list[str]) -> World:
    with open("pair.json") as stream:
        told = json.load(stream)
    ours = {"their_home": os.environ.get("HOME", "/"), "their_tmp": os.environ.get("TMPDIR", "/tmp")}
    ours["their_project"] = os.getcwd()
    theirs = json.loads(words[1]) if role in ("take", "keep") else ours
    places = {name: path.format(**{**told, "uid": os.getuid(), **theirs}) for name, path in PLACES.items()}
    return World(role, key, words[0] if role == "give" else "", places, {}, told["state"], told["proxy"])


def say(**words: Any) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


class Running:
    """The parts of one side, each advanced in turn."""

    def __init__(self, parts: dict[str, Generator[None, None, Any]]) -> None:
        self.parts = parts
        self.ended: dict[str, tuple[Any, str]] = {}

    def turn(self) -> None:
        for name, part in list(self.parts.items()):
            try:
                next(part)
                continue
            except StopIteration as end:
                self.ended[name] = (end.value, "")
            except OSError as error:
                ours = "mistaken: " if error.errno == errno.EMFILE else ""
                self.ended[name] = (None, ours + (error.strerror or repr(error)))
            except Exception as error:  # noqa: BLE001 - whatever it is, it is told, and the test fails for it
                self.ended[name] = (None, f"mistaken: {error!r}")
            del self.parts[name]


def give(world: World, _words: list[str]) -> None:
    world.held.update(make(world))
    running = Running({name: pair.give(world) for name, pair in PAIRS.items()})
    bridge = hand_over(world)
    running.turn()
    running.turn()
    for name, (_value, error) in running.ended.items():
        say(name=name, error=error)
    paths = {"their_home": os.environ.get("HOME", "/"), "their_tmp": os.environ.get("TMPDIR", "/tmp")}
    say(up={**paths, "their_project": os.getcwd()})
    while True:
        running.turn()
        try:
            next(bridge)
        except StopIteration:
            bridge = hand_over(world)
        time.sleep(0.005)


def take(world: World, words: list[str]) -> None:
    """Refusals are tried again: a name may be there a moment later. So is a number that is not the giver's word:
    somebody else may have touched the same files, and a giver that is slow has said a part of it. It ends with the
    time, and not before all have met that are expected to, which takes a busy machine longer."""
    told = json.loads(words[1])
    right, expected = str(told[RIGHT]), list(told[EXPECTED])
    until, at_last = (time.monotonic() + seconds for seconds in (float(words[0]), PATIENCE))
    done: dict[str, tuple[Any, str]] = {}
    running = Running({name: PAIRS[name].take(world) for name in told[TRIED]})
    bridge = take_over(world)
    while running.parts:
        now = time.monotonic()
        if now >= (at_last if any(name in running.parts for name in expected) else until):
            break
        running.turn()
        next(bridge, None)
        for name, (value, error) in running.ended.items():
            done[name] = (value, error)
            is_over = is_word(value, right) if isinstance(value, int) else value is not None
            if not is_over and not error.startswith("mistaken"):
                running.parts[name] = PAIRS[name].take(world)
        running.ended.clear()
        time.sleep(0.02)
    for name in told[TRIED]:
        value, error = done.get(name, (None, "no answer in time"))
        say(name=name, value=value, error=error)


def hand(world: World, words: list[str]) -> None:
    world.held.update(landing.make(words[0].split(",")))
    until = time.monotonic() + float(words[1])
    bridge, taken = hand_over(world), False
    while time.monotonic() < until and not taken:
        try:
            next(bridge)
            time.sleep(0.005)
        except StopIteration as end:
            taken = bool(end.value)
    say(handed=taken)


def keep(world: World, _words: list[str]) -> None:
    bridge = take_over(world)
    next(bridge, None)
    say(up={})
    while not world.held and next(bridge, "over") is None:
        time.sleep(0.005)
    areas = {name: landing.mapped(world.held[name]) for name in world.held if name.startswith("mapped")}
    say(got=len(world.held))
    for phase in landing.WHEN:
        while not os.path.exists(f"phase-{phase}"):
            time.sleep(0.005)
        following = landing.WHEN[landing.WHEN.index(phase) + 1 :]
        names = [name for name in world.held if landing.LANDINGS[name].when == phase]
        while True:
            for name in names:
                _act(name, world, areas)
            if phase != "during" or os.path.exists(f"phase-{following[0]}"):
                break
            time.sleep(PAUSE)
        say(acted=phase)
    signal.pause()


def _act(name: str, world: World, areas: dict[str, Any]) -> None:
    try:
        landing.LANDINGS[name].act(world.held[name], areas.get(name))
    except OSError as error:
        if landing.LANDINGS[name].when != "during":
            say(name=name, error=error.strerror or repr(error))
