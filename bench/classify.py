"""What it costs to tell what a command is and to decide: over the table of commands of the tests.

Beside it what others do at most about a line: ask bash whether it is one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

from bench.measure import Contestant, Finding, Series, against, at_most, interleave, seconds_of, timed
from bench.place import Scale
from mudroom.core.command.policy import CommandPolicy, decide
from mudroom.core.command.program.classification import classify_line, classify_words
from mudroom.core.command.verdict import Classification, Verdict

_Command = TypeVar("_Command")
_TABLE = Path(__file__).parent.parent / "tests" / "core" / "commands.txt"
_SHELL = frozenset("'\"|;&<>$(){}[]`*~#=!␤\\")
_LIMIT = at_most(0.001, "1 ms")
_LOAD = "from mudroom.core.command.program.classification import classify_words as c; c([b'ls'])"
_LOAD_GRAMMAR = "from mudroom.core.command.program.classification import classify_line as c; c(b'ls | cat')"


def classifying(_base: bytes, scale: Scale) -> Iterator[Finding]:
    lines = [row.partition("| ")[2] for row in _TABLE.read_text().splitlines() if row and not row.startswith("#")]
    argvs = [line.encode().split() for line in lines if not _SHELL & set(line)]
    texts = [line.replace("␤", "\n").encode() for line in lines]
    policy = CommandPolicy()
    rounds = max(2, scale.commands // 10)

    def of_words() -> list[float]:
        return [seconds_of(partial(_decided, classify_words, argv, policy)) for argv in argvs]

    def of_lines() -> list[float]:
        return [seconds_of(partial(_decided, classify_line, text, policy)) for text in texts]

    of_words(), of_lines()
    words = Series(tuple(value for _round in range(rounds) for value in of_words()))
    line = Series(tuple(value for _round in range(rounds) for value in of_lines()))
    asked = interleave([timed("bash -n -c", ["bash", "-n", "-c", "git status && ls | head"])], rounds)
    yield Finding("classify", f"classify and decide, {len(argvs)} programs", words, _LIMIT)
    yield Finding("classify", f"classify and decide, {len(texts)} lines", line, _LIMIT, against(asked, ["bash -n -c"]))
    found = interleave([_process("pass"), _process(_LOAD), _process(_LOAD_GRAMMAR)], rounds)
    yield Finding("classify", "a process that classifies a program", found[_LOAD], None, against(found, ["pass"]))
    yield Finding("classify", "a process that classifies a line", found[_LOAD_GRAMMAR], None, against(found, ["pass"]))


def _decided(classify: Callable[[_Command], Classification], command: _Command, policy: CommandPolicy) -> Verdict:
    return decide(classify(command), policy)


def _process(program: str) -> Contestant:
    return timed(program, [sys.executable, "-c", program])
