"""The project and the fork that a monkey plays with, and everybody else who is at work there."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any, NamedTuple
from unittest import mock

from conftest import Listing, Place, listing, tick
from monkey.chance import Chance, Walk
from monkey.model import Entry, Wish, changed, in_repository, wrong_after, wrong_undone
from mudroom.errors import MudroomError
from mudroom.session import Session
from mudroom.stage.source import read_all
from mudroom.vault.apply.execution import Executor
from mudroom.vault.forks.open_fork import OpenFork

FORK = "agent"
TEXTS = ("text.txt", "code/a.py", "code/deep/b.py", "run.sh")
ODD = (r"a\nb", r"\033[31m", "<b>", "-x", r"\377\376", r"a\342\200\256b")
"""Names, as printf has them."""
LINES = 24
LIMIT = 1 << 20


def text(name: str) -> str:
    """All its lines are different, and from those of any other file."""
    return "".join(f"{name} {number}\n" for number in range(1, LINES + 1))


class Landing(NamedTuple):
    """An apply that has been, and what it made of what."""

    name: str
    before: Listing
    after: Listing


class World:
    def __init__(self, place: Place, walk: Walk) -> None:
        self.place, self.walk = place, walk
        self._fresh = 0
        self._holding: ExitStack | None = None
        for name in TEXTS:
            place.write(name, text(name))
        place.write("bin", b"\0first")
        place.write("gone", "to be removed\n")
        place.write("package.json", "{}\n")
        place.write(".git/HEAD", "ref: refs/heads/main\n")
        place.write(".git/config", "[core]\n")
        os.symlink("text.txt", place.project / "link")
        tick()
        self.session: Session = place.session()
        self.session.forks.new(FORK)
        self.tree = listing(place.project)
        """As it has to be."""
        self.landings: dict[str, Landing] = {}
        self.states: dict[str, str] = {}
        self.cut_off: dict[str, tuple[dict[str, Wish], Decided]] = {}
        """Applies whose process was killed when they were about to touch the project, and what they would have done."""
        self._is_mixed = False
        """Whether an apply was ended in the last step beside another: what each has changed is not known."""
        self.has_recovered = False
        """Whether one of those was ended in the last step."""

    # --- what is so ---

    def now(self) -> Listing:
        return listing(self.place.project)

    def look_at_applies(self) -> dict[str, str]:
        """Of each apply, its state, if that is another one than before. What somebody was killed in is ended by whoever
        has the vault alone next: that is looked at here, and is no news."""
        states = {one["apply"]: one["state"] for one in self.session.changes.applies()}
        news = {name: state for name, state in states.items() if self.states.get(name) != state}
        self.states, self._is_mixed = states, False
        self.has_recovered = bool(self.cut_off.keys() & news.keys())
        for name in self.cut_off.keys() & news.keys():
            self._note_end_of(name, news.pop(name), alone=not news)
        return news

    def _note_end_of(self, name: str, state: str, *, alone: bool) -> None:
        wishes, decided = self.cut_off.pop(name)
        if alone and state == "applied":
            wrong = wrong_after(self.tree, self.now(), wishes, decided)
            self.walk.require(wrong, f"{name} was cut off, and is finished as something else")
            self.note_landing(name)
        elif alone:
            self.require_still(f"{name} was cut off before it touched anything, and is {state}; that")
        else:
            self._is_mixed = True
        self.tree = self.now()  # of two at once nobody can tell which has done what

    def require_still(self, what: str) -> None:
        self.walk.require(changed(self.tree, self.now()), f"{what} changed the project")

    def note_landing(self, name: str) -> None:
        """What is there now is what this apply has made of what was there."""
        now = self.now()
        if not self._is_mixed:
            self.landings[name] = Landing(name, self.tree, now)
        self.tree = now

    def note_undone(self, name: str) -> None:
        now, landing = self.now(), self.landings.get(name)
        if landing is not None:
            wrong = wrong_undone(landing.before, landing.after, self.tree, now)
            if self.tree == landing.after:
                wrong = changed(landing.before, now)
            self.walk.require(wrong, f"what undoing {name} has left")
        self.tree = now

    def wishes(self) -> dict[str, Wish]:
        return wishes_of(self.session, FORK)

    def decided(self) -> Decided:
        return decided_of(self.session, FORK, self.tree)

    # --- what others do ---

    def outside(self, chance: Chance) -> None:
        """Something that nobody at the review has done."""
        what = chance.weighed({name: weight for name, (weight, _do) in OUTSIDE.items()})
        if self.is_held and chance.random() < 0.5:
            what = "another holds the vault"
        try:
            told = OUTSIDE[what][1](self, chance)
        except MudroomError as error:
            told = f"{error}"
        self.walk.say(f"outside: {what}: {told}")

    def fresh(self) -> str:
        self._fresh += 1
        return f"fresh {self._fresh}"

    def run(self, script: str) -> str:
        if self._holding is not None:
            return "somebody holds the vault"
        if self.session.vault.find(FORK) is None:
            self.session.forks.new(FORK)
        tick()
        result = self.session.run([b"sh", b"-c", script.encode()], fork=FORK)
        return f"{script} -> {result.exit_code}"

    def at_the_project(self, script: Callable[[], str]) -> str:
        """The user's own edit; what is there after it is as it has to be."""
        tick()
        try:
            return script()
        except OSError as error:
            return f"{error}"
        finally:
            self.tree = self.now()

    def hold(self) -> str:
        """Somebody else has the vault, until they let it go."""
        if self._holding is not None:
            return self.release()
        other = self.place.session()
        self._holding = ExitStack()

        def never(_who: str) -> None:
            raise MudroomError("somebody else holds it already")

        try:
            self._holding.enter_context(other.alone("somebody else", never))
        except MudroomError:
            self._holding = None
            raise
        return "held"

    def release(self) -> str:
        if self._holding is not None:
            self._holding.close()
            self._holding = None
        return "let go"

    @property
    def is_held(self) -> bool:
        return self._holding is not None

    def land(self, do: Callable[[Session], Any]) -> str:
        """An apply or an undo by somebody else, from beginning to end."""
        if self._holding is not None:
            return "somebody holds the vault"

        def busy(who: str) -> None:
            raise MudroomError(f"busy: {who}")

        with self.session.alone("somebody else", busy):
            pass  # what was cut off is ended
        self.look_at_applies()
        with self.session.alone("somebody else", busy):
            do(self.session)
        for name, state in self.look_at_applies().items():
            if state == "applied":
                self.note_landing(name)
            elif state == "undone":
                self.note_undone(name)
        self.tree = self.now()
        return "done"

    def close(self) -> None:
        self.release()


Decided = dict[str, list[Entry | None] | None]


def wishes_of(session: Session, fork: str) -> dict[str, Wish]:
    """All that a fork holds, each as a whole."""
    found: dict[str, Wish] = {}
    with OpenFork(session.vault, session.vault.fork(fork)) as opened:
        ground, staged = opened.ground(), opened.staged()
        for change in session.changes.of(fork).changes:
            path, base, new = change.path, change.base, change.staged
            was = ground.read_original(path, base, LIMIT) if base is not None and base.kind == "file" else None
            is_ = read_all(staged, path, LIMIT) if new is not None and new.kind == "file" else None
            found[os.fsdecode(path)] = Wish(
                entry_of(base, was),
                entry_of(new, is_),
                source=os.fsdecode(change.source),
                known=change.original_known and (base is None or base.kind != "file" or was is not None),
            )
    return found


def decided_of(session: Session, fork: str, tree: Listing) -> Decided:
    """What was said of its conflicts. None: lines that somebody has put together."""
    found: Decided = {}
    for one in session.changes.conflicts(fork):
        path = os.fsdecode(one.path)
        if one.decided:
            theirs = entry_of(one.theirs.entry, one.theirs.content)
            options: Decided = {"ours": [tree.get(path)], "theirs": [theirs], "delete": [None]}
            found[path] = options.get(one.take)
    return found


def entry_of(entry: Any, content: bytes | None) -> tuple[str, int, bytes] | None:
    if entry is None:
        return None
    if entry.kind == "symlink":
        return ("symlink", 0, entry.target)
    kind = entry.kind if entry.kind in ("file", "directory") else "special"
    return (kind, entry.mode & 0o7777, content or b"")


# --- one by one ---


def _edit_of_the_fork(world: World, chance: Chance) -> str:
    name, fresh, line = chance.one(TEXTS), world.fresh(), int(chance.random() * LINES) + 1
    what = chance.weighed({"line": 6, "lines": 3, "new": 2, "gone": 1, "mode": 1, "bin": 1, "link": 0.5, "git": 0.7,
                           "hook": 0.3, "move": 0.3, "later": 0.7, "dir": 0.5, "odd": 0.5})  # fmt: skip
    name_of = fresh.replace(" ", "-")
    return world.run({
        "line": f"sed -i '{line}s/.*/{fresh}/' {name}",
        "lines": f"sed -i -e '2s/.*/{fresh} a/' -e '{line}s/.*/{fresh} b/' -e '20s/.*/{fresh} c/' {name}",
        "new": f"mkdir -p d1/d2; echo {fresh} > {chance.one(('', 'code/', 'd1/d2/'))}{name_of}",
        "gone": f"rm -f {chance.one((*TEXTS, 'gone', 'bin', 'link'))}",
        "mode": f"chmod {chance.one(('755', '644', '600'))} {name}",
        "bin": f"printf '\\000{fresh}' > bin",
        "link": f"ln -sfn {name_of} link",
        "git": f"mkdir -p .git/objects; echo {fresh} > .git/objects/{name_of}",
        "hook": f"mkdir -p .git/hooks; echo {fresh} > .git/hooks/post-commit; chmod 755 .git/hooks/post-commit",
        "move": f"mv {name} {name_of}",
        "later": f"echo '{{\"x\": \"{fresh}\"}}' > package.json",
        "dir": f"mkdir -p empty/{name_of}",
        "odd": f"echo {fresh} > \"$(printf -- '{chance.one(ODD)}')\"",
    }[what])  # fmt: skip


def _edit_of_the_project(world: World, chance: Chance) -> str:
    name, fresh, line = chance.one(TEXTS), world.fresh(), int(chance.random() * LINES)
    path = world.place.project / name
    what = chance.weighed({"line": 6, "gone": 0.5, "bin": 1, "new": 1, "mode": 0.5, "back": 1})

    def edit() -> str:
        if what == "line" and path.is_file():
            found = path.read_text().splitlines(keepends=True)
            if found:
                found[line % len(found)] = fresh + "\n"
            path.write_text("".join(found))
        elif what == "gone":
            path.unlink(missing_ok=True)
        elif what == "bin":
            world.place.write("bin", b"\0" + fresh.encode())
        elif what == "new":
            world.place.write(fresh.replace(" ", "-"), fresh)
        elif what == "mode" and path.is_file():
            path.chmod(0o755)
        elif what == "back" and not path.exists():
            world.place.write(name, text(name))
        return f"{what} {name} {line}"

    return world.at_the_project(edit)


def _apply_of_another(world: World, chance: Chance) -> str:
    paths = [change.path for change in world.session.changes.of(FORK).changes]
    some = [path for path in paths if chance.random() < 0.4]
    return world.land(lambda session: session.changes.apply(FORK, some, reviewed=session.changes.fingerprint(FORK)))


def _undo_of_another(world: World, _chance: Chance) -> str:
    return world.land(lambda session: session.changes.undo())


def _redo_of_another(world: World, _chance: Chance) -> str:
    return world.land(lambda session: session.changes.redo())


def _killed(world: World, _chance: Chance) -> str:
    """Another begins to apply all there is, and is killed before the project is touched."""
    if world.is_held:
        return "somebody holds the vault"
    world.land(lambda _session: None)
    wanted = {path: wish for path, wish in world.wishes().items() if not in_repository(path)}
    decided, session, known = world.decided(), world.session, set(world.states)
    killing = mock.patch.object(Executor, "run", side_effect=KeyboardInterrupt)
    with suppress(KeyboardInterrupt), session.alone("somebody who is killed"), killing:
        session.changes.apply(FORK, reviewed=session.changes.fingerprint(FORK))
    names = world.look_at_applies().keys() - known
    world.cut_off |= dict.fromkeys(names, (wanted, decided))
    return f"{names}"


def _discard(world: World, _chance: Chance) -> str:
    return world.land(lambda session: session.forks.discard(FORK))


def _checkpoint(world: World, _chance: Chance) -> str:
    if world.is_held:
        return "somebody holds the vault"
    return world.session.forks.checkpoint(FORK, world.fresh().replace(" ", "-")).name


def _hold(world: World, _chance: Chance) -> str:
    return world.hold()


OUTSIDE: dict[str, tuple[float, Callable[[World, Chance], str]]] = {
    "the agent": (8, _edit_of_the_fork),
    "the user": (4, _edit_of_the_project),
    "another applies": (0.7, _apply_of_another),
    "another undoes": (0.4, _undo_of_another),
    "another redoes": (0.2, _redo_of_another),
    "another discards": (0.4, _discard),
    "another is killed": (0.4, _killed),
    "a checkpoint": (0.7, _checkpoint),
    "another holds the vault": (0.8, _hold),
}
"""How often, and what."""
