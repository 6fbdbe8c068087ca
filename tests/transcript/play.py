"""Plays the steps with the real command line, and writes down what was typed and what came."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import forked
from transcript.steps import AGENT, FORK, Command, Verb

_ENOUGH = 12
"""Lines of output that are shown of one command."""


class Played(NamedTuple):
    step: Command | Verb
    typed: str
    shown: str
    exit_code: int
    result: dict[str, Any] | None
    """Of a command."""


class Stage:
    """A project with a home and a state directory of its own, below ``root``."""

    def __init__(self, root: Path) -> None:
        self.root, self.project = root, root / "ledger"
        self.project.mkdir()
        (root / "home").mkdir()
        self._environment = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(root / "home"),
            "MUDROOM_KEEPER": "0",
            "MUDROOM_STATE": str(root / "state"),
            "PYTHONPATH": os.pathsep.join(sys.path),
            "LC_ALL": "C.UTF-8",
        }
        self.waiting: list[str] = []
        """Questions that nobody has answered, newest last."""

    def mudroom(self, *words: str) -> subprocess.CompletedProcess[str]:
        return forked.run(words, cwd=self.project, env=self._environment, errors="replace", stdin=subprocess.DEVNULL)

    def play(self, step: Command | Verb) -> Played:
        if isinstance(step, Verb):
            words = [self.waiting[-1] if word == "{ID}" else word for word in step.words]
            done = self.mudroom(*words)
            return Played(
                step, " ".join(("mudroom", *words)), self._own(done.stdout + done.stderr), done.returncode, None
            )
        done = self.mudroom("exec", "--fork", FORK, "--agent", AGENT, "--json", "--", "bash", "-c", step.line)
        try:
            result = json.loads(done.stdout)
        except ValueError:
            raise AssertionError(f"{step.line}: no result: {done.stdout!r} {done.stderr!r}") from None
        found = re.search(r"mudroom approve (\w+)", result["verdict"]["reason"])
        if found is not None:
            self.waiting.append(found[1])
        return Played(step, step.line, self._own(_told(result)), done.returncode, result)

    def _own(self, text: str) -> str:
        """Without what is different each time."""
        return text.replace(str(self.root), "~").rstrip()


def _told(result: dict[str, Any]) -> str:
    lines = [*result["stdout"].splitlines(), *result["stderr"].splitlines()]
    lines += [f"[refused: {one['kind']} {one['target']}: {one['reason']}]" for one in result["denials"]]
    return "\n".join([*lines[:_ENOUGH], *([f"[{len(lines) - _ENOUGH} more lines]"] if len(lines) > _ENOUGH else [])])


def as_markdown(played: list[Played]) -> str:
    parts = []
    number = 0
    for one in played:
        step = one.step
        if isinstance(step, Verb):
            parts.append(
                f"**{step.who[0].upper()}{step.who[1:]}**{_why(step)}\n\n```\n$ {one.typed}\n{one.shown}\n```\n"
            )
            continue
        assert one.result is not None
        number += 1
        verdict = one.result["verdict"]
        told = f"{verdict['action'].replace('_', ' ')} · {', '.join(verdict['classes'])} · {verdict['reason']}"
        point = f" · checkpoint `{one.result['checkpoint']}`" if one.result["checkpoint"] else ""
        changed = one.result["changes"]["summary"]
        files = sum(changed[verb] for verb in ("added", "modified", "deleted", "renamed"))
        shown = f"\n{one.shown}" if one.shown else ""
        parts.append(
            f"**{number}.** {told} ({verdict['rule']}){point}{_why(step)}\n\n"
            f"```\n$ {one.typed}{shown}\n```\nexit {one.exit_code}, {files} files differ from the project\n"
        )
    return "\n".join(parts)


def _why(step: Command | Verb) -> str:
    return f" · *{step.why}*" if step.why else ""
