"""Random sequences of commands that are shown secrets and of others that are not: nobody reads what is not for him, and
the review has the changes of those that were shown a secret, and of nobody else."""

from __future__ import annotations

import copy
import os
import random
from pathlib import Path
from typing import Any, Literal

import pytest

from archived import archived
from conftest import Place
from mudroom.core.settings import Settings
from mudroom.session import Session
from tiers import examples

pytestmark = pytest.mark.both_users

BASE: dict[str, Value] = {
    ".env": (b"TOKEN=hunter2\n", 0o600),
    "conf/.env": (b"TOKEN=hunter2\n", 0o640),
    "conf/a.pem": (b"hunter2\n", 0o644),
}
SHOWN = Settings(secrets_show=(b".env", b"*.pem"))
ONE = Settings(secrets_show=(b".env",))
PLAIN = Settings()

Value = tuple[bytes, int] | str | None
"""Content and mode of a file; "directory"; None: there is nothing."""


class Model:
    """What the fork holds at the paths of secrets by commands that were shown them."""

    def __init__(self) -> None:
        self.shown: dict[str, Value] = {}
        self.lost: set[str] = set()
        self.frozen: dict[str, Value] | None = None
        self.started = False

    def view(self, path: str, project: dict[str, Value]) -> Value:
        return self.shown[path] if path in self.shown else project[path]


def deed(chance: random.Random, number: int, may: bool) -> tuple[str, str]:
    path = chance.choice(sorted(BASE))
    kind = chance.choice(
        [
            "read", "touch", "append", "append", "chmod", "rm", "replace", "mkdir", "rmconf", "newconf", "round",
            "other", "rewrite",
        ]
    )  # fmt: skip
    word = f"hun''ter2 {number}" if may else f"own {number}"
    scripts = {
        "read": "true",
        "touch": f"touch {path}",
        "append": f"mkdir -p conf; echo {word} >> {path}",
        "chmod": f"chmod 604 {path}",
        "rm": f"rm -rf {path}",
        "replace": f"mkdir -p conf; rm -rf {path}; echo {word} > x; chmod 644 x; mv x {path}",
        "rewrite": f"[ ! -f {path} ] || echo {word} > {path}",
        "mkdir": f"mkdir -p conf; rm -rf {path}; mkdir {path}; echo {word} > {path}/in"
        if not may
        else f"mkdir -p conf; rm -rf {path}; mkdir {path}",
        "rmconf": "rm -rf conf",
        "newconf": f"rm -rf conf; mkdir conf; echo {word} > conf/.env; chmod 644 conf/.env",
        "round": "[ ! -d conf ] || { mv conf conf2; mv conf2 conf; }",
        "other": f"echo {number} >> file",
    }
    if kind == "mkdir" and not may:
        kind = "read"  # an apply of what others have put into a directory at the path is refused
    return f"{kind} {path} {word}".replace("''", ""), scripts[kind]


def expect(
    kind: str, path: str, word: bytes, shown: dict[str, Value], view: dict[str, Value], all_shown: set[str]
) -> None:
    """Change the model."""
    was: Any = view[path]
    may = path in all_shown
    conf = [p for p in BASE if p.startswith("conf/")]
    if kind == "touch" and may:
        shown[path] = was if was is not None else (b"", 0o644)
    if kind in ("append", "rewrite") and may and was != "directory":
        if kind == "rewrite" and was is None:
            return
        before = was if was is not None else (b"", 0o644)
        shown[path] = ((before[0] if kind == "append" else b"") + word + b"\n", before[1])
    if kind == "chmod" and may and was is not None:
        shown[path] = (was[0], 0o604) if was != "directory" else "directory"
    if kind == "rm" and may:
        shown[path] = None
    if kind == "replace" and may:
        shown[path] = (word + b"\n", 0o644)
    if kind == "mkdir" and may:
        shown[path] = "directory"
    if kind in ("rmconf", "newconf"):
        for p in conf:
            if p in all_shown:
                shown[p] = None
    if kind == "newconf" and "conf/.env" in all_shown:
        shown["conf/.env"] = (word + b"\n", 0o644)


def values(root: Path) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for path in BASE:
        at = root / path
        if at.is_dir():
            found[path] = "directory"
        elif at.exists():
            found[path] = (at.read_bytes(), at.stat().st_mode & 0o777)
        else:
            found[path] = None
    return found


def allowed_by(settings: Settings) -> set[str]:
    return {path for path in BASE if settings is SHOWN or (settings is ONE and path.endswith(".env"))}


def killed(*_arguments: object, **_options: object) -> None:
    raise ZeroDivisionError


class Run:
    def __init__(self, place: Place, seed: int, log: list[str]) -> None:
        self.place, self.log = place, log
        self.chance = random.Random(seed)
        for path, value in BASE.items():
            assert isinstance(value, tuple)
            place.write(path, *value)
        place.write("conf/readme", "r\n")
        place.write("file", "f\n")
        self.project: dict[str, Value] = dict(BASE)
        self.models: dict[str, Model] = {"f": Model()}
        self.points: dict[tuple[str, str], Model] = {}
        self.copies = self.chance.random() < 0.4
        self.applied: list[dict[str, Value]] = []
        self.number, self.is_over = 0, False
        if self.copies:
            self.command("f", SHOWN, "copy", "other .env x", "true")

    def session(self, settings: Settings = PLAIN) -> Session:
        return self.place.session(settings)

    def command(self, fork: str, settings: Settings, view: Literal["overlay", "copy"], name: str, script: str) -> None:
        model = self.models[fork]
        allowed = allowed_by(settings)
        if view == "copy" and model.frozen is None:
            model.frozen = {p: (v if p in allowed else None) for p, v in self.project.items()}
            model.lost |= set(BASE) - allowed - set(model.shown)
        base = model.frozen if model.frozen is not None else self.project
        kind, path, word = name.split(" ", 2)
        before = {p: model.view(p, base) for p in BASE}
        session = self.session(settings._replace(view=view))
        try:
            show = "; ".join(
                f"echo; echo '@{p}'; "
                f"[ -d {p} ] && echo DIR || {{ [ -e {p} ] && echo $(stat -c %a {p}) && cat {p} || echo NONE; }}"
                for p in BASE
            )
            grep = "echo; echo @grep; grep -rs hunter[2] . | head -3"
            out = session.run([b"sh", b"-c", f"{show}; {grep}; {script}; {show}; {grep}".encode()], fork=fork).stdout
        finally:
            session.close()
        expect(kind, path, word.encode(), model.shown, before, allowed)
        after = {p: model.view(p, base) for p in BASE}
        first, last = self.read(out)
        for told, known in ((first, before), (last, after)):
            for p in BASE:
                if p in allowed and p not in model.lost:
                    assert told[p] == known[p], f"{fork}: {p} reads {told[p]}, not {known[p]}"
                elif p not in allowed:
                    assert b"hunter2" not in repr(told[p]).encode(), f"{fork}: {p} leaks {told[p]}"
        if not allowed:
            assert b"hunter2" not in out, out

    def read(self, out: bytes) -> list[dict[str, Value]]:
        found: list[dict[str, Value]] = []
        for half in out.split(b"\n@.env\n")[1:]:
            row: dict[str, Value] = {}
            for part in (b"@.env\n" + half).split(b"\n@"):
                name, _, rest = part.removeprefix(b"@").partition(b"\n")
                if name.decode() in BASE:
                    if rest.startswith(b"DIR\n"):
                        row[name.decode()] = "directory"
                    elif rest.startswith(b"NONE\n"):
                        row[name.decode()] = None
                    else:
                        mode, _, content = rest.partition(b"\n")
                        row[name.decode()] = (content, int(mode, 8))
            found.append(row)
        return found

    def check(self) -> None:
        assert values(self.place.project) == self.project, (values(self.place.project), self.project)
        for fork, model in self.models.items():
            session = self.session(PLAIN)
            try:
                changes = {c.path.decode(): c for c in session.changes.of(fork).changes}
                for p in BASE:
                    if p in model.lost:
                        continue
                    changed = p in model.shown and model.shown[p] != self.project[p]
                    assert (p in changes) == changed, (
                        f"{fork}: review of {p}: {changes.get(p)}, shown {model.shown.get(p)}"
                    )
                    if changed:
                        value, staged = model.shown[p], changes[p].staged
                        assert (staged is None) == (value is None), f"{fork}: {p} {staged} {value}"
                        if isinstance(value, tuple):
                            assert (
                                staged is not None
                                and staged.kind == "file"
                                and staged.size == len(value[0])
                                and staged.mode == value[1]
                            ), f"{fork}: {p} {staged} {value}"
                handle = session.vault.fork(fork)
                for name in () if self.copies else handle.state.references:
                    tree = Path(os.fsdecode(handle.layer(name) + b"/tree"))
                    held = [
                        x
                        for x in tree.rglob("*")
                        if x.is_file() and not x.is_symlink() and b"hunter2" in x.read_bytes()
                    ]
                    assert not held, held
            finally:
                session.close()

    def step(self) -> None:
        self.number += 1
        chance = self.chance
        fork = chance.choice(sorted(self.models))
        act = chance.choices(
            [
                "command", "checkpoint", "rollback", "fork", "forkat", "apply", "undo", "tool", "export", "discard",
                "crash",
            ],
            [60, 8, 6, 4, 4, 5, 2, 5, 3, 2, 4],
        )[0]  # fmt: skip
        model = self.models[fork]
        if act in ("command", "crash"):
            settings = chance.choice([SHOWN, SHOWN, ONE, PLAIN, PLAIN])
            view: Literal["overlay", "copy"] = "copy" if self.copies and chance.random() < 0.7 else "overlay"
            name, script = deed(chance, self.number, settings is not PLAIN)
            if settings is ONE and "pem" in name:
                name, script = name.replace("conf/a.pem", ".env"), script.replace("conf/a.pem", ".env")
            whose = "SHOWN" if settings is SHOWN else "ONE" if settings is ONE else "PLAIN"
            self.log.append(f"{act} {fork} {whose} {view}: {script}")
            if act == "crash":
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr("mudroom.session.own_sandbox.gather", killed)
                    with pytest.raises(ZeroDivisionError):
                        self.command(fork, settings, view, name, script)
                base = model.frozen if model.frozen is not None else self.project
                shown = allowed_by(settings)
                kind, path, word = name.split(" ", 2)
                expect(kind, path, word.encode(), model.shown, {p: model.view(p, base) for p in BASE}, shown)
            else:
                self.command(fork, settings, view, name, script)
        else:
            self.log.append(f"{act} {fork}")
            session = self.session(PLAIN)
            try:
                getattr(self, act)(session, fork, model)
            finally:
                session.close()
        if not self.is_over:
            self.check()

    def checkpoint(self, session: Session, fork: str, model: Model) -> None:
        session.forks.checkpoint(fork, f"p{self.number}")
        self.points[fork, f"p{self.number}"] = copy.deepcopy(model)

    def rollback(self, session: Session, fork: str, model: Model) -> None:
        points = [p for f, p in sorted(self.points) if f == fork]
        if points:
            point = self.chance.choice(points)
            self.log[-1] += f" {point}"
            frozen, lost = model.frozen, model.lost
            session.forks.rollback(fork, point)
            self.models[fork] = copy.deepcopy(self.points[fork, point])
            self.models[fork].frozen = frozen
            self.models[fork].lost |= lost

    def fork(self, session: Session, fork: str, model: Model) -> None:
        if len(self.models) < 3:
            name = f"g{self.number}"
            session.forks.new(name, parent=fork)
            self.models[name] = copy.deepcopy(model)

    def forkat(self, session: Session, fork: str, model: Model) -> None:
        points = [p for f, p in sorted(self.points) if f == fork]
        if points and len(self.models) < 3:
            name = f"g{self.number}"
            point = self.chance.choice(points)
            self.log[-1] += f" {point} {name}"
            session.forks.new(name, parent=fork, at=point)
            self.models[name] = copy.deepcopy(self.points[fork, point])
            self.models[name].frozen = model.frozen
            self.models[name].lost |= model.lost

    def apply(self, session: Session, fork: str, model: Model) -> None:
        if model.lost or len(self.models) > 1:
            return
        before = dict(self.project)
        if not session.changes.of(fork).changes:
            return
        applied = session.changes.apply(fork).applied
        assert not applied.conflicts, applied.conflicts
        for p, value in model.shown.items():
            self.project[p] = value
        self.applied.append(before)
        self.is_over = not all(isinstance(value, tuple) for value in self.project.values())  # it is no secret then

    def undo(self, session: Session, _fork: str, _model: Model) -> None:
        if len(self.models) == 1 and self.applied and any(a != self.project for a in self.applied[-1:]):
            session.changes.undo()
            self.project, self.is_over = self.applied.pop(), True  # the fork does not hold the changes again

    def tool(self, session: Session, fork: str, _model: Model) -> None:
        files = session.forks.files(fork)
        assert files.search("hunter2") == []
        path = self.chance.choice(sorted(BASE))
        self.log[-1] += f" {path}"
        try:
            files.write(path, f"own {self.number}\n")
        except IsADirectoryError:
            self.log[-1] += " (a directory)"

    def export(self, session: Session, fork: str, _model: Model) -> None:
        assert b"hunter2" not in archived(session, fork)

    def discard(self, session: Session, fork: str, _model: Model) -> None:
        if len(self.models) > 1:
            session.forks.discard(fork)
            del self.models[fork]
            self.points = {k: v for k, v in self.points.items() if k[0] != fork}


def sequence(place: Place, seed: int, steps: int) -> None:
    log: list[str] = []
    try:
        run = Run(place, seed, log)
        run.session().forks.new("f") if not run.copies else None
        for _ in range(steps):
            if not run.is_over:
                run.step()
    except Exception as error:
        raise AssertionError(f"seed {seed}\n" + "\n".join(log) + f"\n{type(error).__name__}: {error}") from error


@pytest.mark.parametrize("number", range(examples(16)))
def test_sequences(place: Place, number: int) -> None:
    sequence(place, number, 12)
