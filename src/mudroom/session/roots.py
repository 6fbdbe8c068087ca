"""The parts of a fork in other projects: staged beside its own files while a command runs, and collected with them.

Rules in this file:
1. Each part is an ordinary fork of its project, with that project's own secrets, policy and journal. Only its name is
   tied to the first project's fork (``vault/forks/ties.py``).
2. Locks of another project are waited for only shortly (``busy``): two commands may name two projects in another order.
"""

from __future__ import annotations

import functools
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress

from mudroom.core.confinement.cache_place import CACHES
from mudroom.core.confinement.spec import Bind, Overlay, StagedRoot
from mudroom.core.result import RootResult
from mudroom.core.tree.change import Changeset
from mudroom.core.tree.credential_stores import store_places
from mudroom.core.tree.path import ancestors, is_below, show
from mudroom.errors import ForkGone, MudroomError, Unsupported, UsageError
from mudroom.sandbox.host.home import HiddenHome, hidden_in_home
from mudroom.session.forks import use_of
from mudroom.session.parts import Part, TiedForks, free_part_name, new_part
from mudroom.session.users import is_shared
from mudroom.stage import disk
from mudroom.stage.beneath import directory
from mudroom.stage.source import OpenSource
from mudroom.stage.views.overlay import OverlayView
from mudroom.stage.views.preflight import keeps_marks, mounts, no_overlay, spanned
from mudroom.typing import TYPE_CHECKING, Any, NamedTuple
from mudroom.vault.forks.collection import (
    CollectedCommand,
    changed_paths,
    gather,
    recorded_changes,
    shown_view,
    with_objects,
)
from mudroom.vault.forks.flatten import unstack
from mudroom.vault.forks.open_fork import OpenFork
from mudroom.vault.forks.ties import ROOTS, Tie, tie, ties_of
from mudroom.vault.moment import command_start
from mudroom.vault.store.fork import Fork
from mudroom.vault.store.store import Vault, project_of

if TYPE_CHECKING:
    from mudroom.core.clock import CommandStart
    from mudroom.session.confinement.grant import Grant
    from mudroom.session.forks import Forks
    from mudroom.session.order import Order, Outcome
    from mudroom.vault.turn import Turn


def busy(tied: Tie, holder: str) -> None:
    """Raise MudroomError: a lock of another project would have to be waited for."""
    raise MudroomError(f"{tied.label()} is in use: {holder}", "try again when that has ended")


def require_stageable(tied: Tie, vault: Vault) -> None:
    """Raise Unsupported if no overlay can be laid over another project."""
    why = no_overlay(vault.source) or spanned(vault.source, mounts())
    if not why and not keeps_marks(vault.path):
        why = "the file system of its state has no xattrs"
    if why:
        raise overlay_needed(f"{tied.label()}: {why}")


def overlay_needed(found: str) -> Unsupported:
    hint = "mudroom doctor says what this machine has; --level 1, or the policy's run.home: private"
    return Unsupported("a second project or the home beside the first", "a kernel overlay at level 1", found, hint)


_TOLD = 6
"""Most names of what is left out of the home that a note has."""


class StagedPart(NamedTuple):
    tied: Tie
    session: Any
    vault: Vault
    """With the mask for the command."""
    fork: Fork
    is_new: bool
    hidden: HiddenHome
    """What is left out of the home; nothing for another project."""

    def staged(self, view: OverlayView) -> StagedRoot:
        shown = view.mount()
        assert isinstance(shown, Overlay)
        own = self.vault.source + b"/.mudroom"
        read = with_objects(self.vault, self.fork, self.session.actor.settings._replace(read=())).read
        binds = [Bind(path, path) for path in read]
        if os.path.isdir(own) and not os.path.islink(own):
            binds.append(Bind(own, own))
        root = StagedRoot(self.vault.source, shown, tuple(binds), os.path.isdir(own + b"/apply"))
        return root._replace(emptied=self.hidden.emptied, covered=self.hidden.covered)


def tidy_home(fork: Fork, home: bytes, own: Sequence[bytes] = ()) -> None:
    """Remove from a fork of the home the empty directories and files that its sandbox has made as places of caches and
    agents' stores. ``own``: further places. Hold the fork's lock."""
    mounted = (*(place for place, _name in CACHES), *store_places(), *own)
    places = {above for place in mounted for above in (place, *ancestors(place))}
    with suppress(FileNotFoundError), closing(OpenSource(fork.upper, is_layer=True)) as upper:
        for path in sorted(places, key=len, reverse=True):
            if not os.path.lexists(home + b"/" + path):
                above, _slash, name = path.rpartition(b"/")
                with suppress(OSError), directory(upper.root, above) as opened:
                    if stat.S_ISDIR((made := disk.stat_at(opened, name)).st_mode):
                        disk.rmdir(opened, name)
                    elif stat.S_ISREG(made.st_mode) and not made.st_size:
                        disk.unlink(opened, name)


class StagedRoots:
    """The parts of one command's fork. Owner: the thread that runs the command."""

    def __init__(self, forks: Forks, fork: Fork, parts: Sequence[StagedPart], places: Sequence[bytes]) -> None:
        """``places``: in the home, where the command has an agent's own copies."""
        self._places = places
        self._forks, self._fork, self._parts = forks, fork, parts
        self._views: list[tuple[OpenFork, OverlayView]] = []
        self._open = ExitStack()
        self._started: list[CommandStart] = []
        self.results: tuple[RootResult, ...] = ()
        self._befores: list[Changeset] = []
        self.paths: list[dict[str, Any]] = []
        """Of each result the paths that the command changed (``changed_paths``)."""

    @property
    def turns(self) -> list[Turn]:
        return [part.session.vault.turn for part in self._parts]

    @property
    def works(self) -> list[tuple[bytes, bytes]]:
        """The work directories of the mounts."""
        return [view.work for _opened, view in self._views]

    def prepare(self) -> tuple[StagedRoot, ...]:
        """Make the directories of the mounts, anew for each attempt to run the command. Return the mounts."""
        self.close()
        for part in self._parts:
            if part.fork.state.layers and is_below(part.vault.path, part.vault.source):
                unstack(part.vault, part.fork)
            opened = self._open.enter_context(OpenFork(part.vault, part.fork))
            view = shown_view(part.vault, part.fork, opened, "overlay", None)
            assert isinstance(view, OverlayView)
            view.prepare()
            self._views.append((opened, view))
        return tuple(part.staged(view) for part, (_opened, view) in zip(self._parts, self._views, strict=True))

    def close(self) -> None:
        self._views.clear()
        self._open.close()

    def checkpoint(self, name: str) -> None:
        """Freeze the parts before a command. The fork is frozen afterwards."""
        parts = [Part(part.vault, part.fork, part.tied) for part in self._parts]
        TiedForks(self._forks.vault, self._fork, parts).freeze(name, self._forks.clock(), automatic=True)

    def begin(self, called: int) -> None:
        """Record that the command begins."""
        self._started = [command_start(part.vault.path, called) for part in self._parts]
        self._befores = [recorded_changes(part.fork) for part in self._parts]
        for part, started in zip(self._parts, self._started, strict=True):
            part.fork.begin(started)

    def end(self) -> None:
        """Record that the command has not begun after all."""
        for part in self._parts:
            part.fork.end()

    def collect(self, command: CollectedCommand) -> tuple[RootResult, ...]:
        """Record the parts' changes after the command."""
        results = []
        rows = zip(self._parts, self._views, self._started, self._befores, strict=True)
        for part, (opened, view), started, before in rows:
            view.unmounted()
            if part.tied.is_home:
                tidy_home(part.fork, part.tied.path, self._places)
            changeset = gather(part.fork, opened, view, command, started)
            part.fork.end()
            part.session.forks.tools.refresh(part.fork)
            hides = part.session.forks.secrets.hides
            self.paths.append(changed_paths(part.session.vault, part.fork, before, changeset, hides))
            results.append(RootResult(part.tied.path, part.tied.label(), part.tied.is_home, changeset))
        self.results = tuple(results)
        return self.results

    def kept(self, *, is_unnamed: bool) -> list[Tie]:
        """Return the ties that the fork has after the command: a new part goes if the command has not run, and from an
        unnamed fork if the command has not changed it."""
        changed = [bool(result.changeset.changes or result.changeset.remarks) for result in self.results]
        rows = zip(self._parts, changed or [False] * len(self._parts), strict=True)
        may_go = is_unnamed or not changed
        return [part.tied for part, is_changed in rows if is_changed or not (part.is_new and may_go)]


@contextmanager
def staged_roots(forks: Forks, fork: Fork, order: Order, outcome: Outcome, settled: Any) -> Iterator[None]:
    """Hold a fork's parts in the order's other projects for the block, and make those that are new. Hold the fork's
    lock. ``settled``: as ``settled_vault``."""
    known = ties_of(fork)
    if outcome.mounted is not None or is_shared(fork):
        places = ", ".join(tied.label() for tied, _session in order.roots)
        raise UsageError(f"{fork.name} {use_of(fork)}, without {places}", "try again when it is at rest")
    if [tied for tied, _session in order.roots if tied.name] != list(known):
        raise MudroomError(f"{fork.name} has other parts than a moment ago", "try again")
    ties = list(known)
    try:
        with ExitStack() as stack:
            parts = [
                stack.enter_context(_part(*row, forks.vault, fork, order, outcome, settled)) for row in order.roots
            ]
            roots = outcome.roots = StagedRoots(forks, fork, parts, agent_places(order.grant))
            stack.callback(roots.close)
            if any(part.is_new for part in parts):
                ties = [part.tied for part in parts]
                tie(fork.path + ROOTS, ties)
            yield
    except BaseException:
        if ties != list(known):  # those that the command has not used are gone
            tie(fork.path + ROOTS, [tied for tied in ties if tied.is_there(fork)])
        raise
    finally:
        outcome.roots = None
    if (kept := roots.kept(is_unnamed=order.fork is None)) != ties:
        tie(fork.path + ROOTS, kept)
        for tied, (_asked, session) in zip(ties, order.roots, strict=True):
            if tied not in kept:
                session.forks.discard_unchanged(tied.name)


@contextmanager
def _part(
    tied: Tie, session: Any, first: Vault, fork: Fork, order: Order, outcome: Outcome, settled: Any
) -> Iterator[StagedPart]:
    """``fork``: of the first project. A part without a name is made."""
    require_stageable(tied, session.vault)
    forks, waiting = session.forks, functools.partial(busy, tied)
    name = tied.fork(fork).name if tied.name else free_part_name(session.vault, fork.name)
    make = functools.partial(new_part, session.vault, name, first, fork, forks.clock())
    with forks.taken(name, named=False, make=make) as (part, is_new), ExitStack() as held:
        if is_new == bool(tied.name):
            raise ForkGone(name)  # another process was quicker: the caller tries again
        held.enter_context(forks.locked(part, "mudroom run"))
        held.enter_context(forks.exclusive.turn(alone=False, waiting=waiting, is_users=order.quiet is not None))
        vault = settled(forks, part, None, order._replace(actor=session.actor), outcome, held, repairs=False)
        hidden = HiddenHome((), ())
        if tied.is_home:
            hidden = _hidden(tied, first, vault, order)
            reduced = session.machine.confinement.host.files  # git's settings that hold a credential
            hidden = hidden._replace(covered=(*hidden.covered, *(path for path, _content in reduced)))
            if is_new:
                outcome.note(_told(tied, hidden))
        yield StagedPart(tied._replace(name=name), session, vault, part, is_new, hidden)


def _hidden(tied: Tie, first: Vault, vault: Vault, order: Order) -> HiddenHome:
    """Return what a command does not see of the home: the projects that mudroom knows are among it, but not those that
    are staged."""
    vaults, home = os.path.dirname(vault.path), tied.path
    own = [os.path.dirname(vaults), home + b"/.config/mudroom"]
    staged = [first.project, *(other.path for other, _session in order.roots)]
    staged += [home + b"/" + place for place in agent_places(order.grant)]
    projects = [project_of(vaults + b"/" + name) for name in sorted(os.listdir(vaults))]
    others = [path for path in projects if path and path not in staged]
    shown = [home + path[1:] for path in order.actor.settings.credentials]
    return hidden_in_home(home, own, others, shown, staged)


def agent_places(grant: Grant) -> list[bytes]:
    """Return the places in the home, relative to it, at which an agent's command has the fork's own copies."""
    places = (place for staged in grant.staged for place in staged.places)
    return [place.path for place in places if place.source or place.is_directory]


def _told(tied: Tie, hidden: HiddenHome) -> str:
    names = [show(b"~" + path[len(tied.path) :]) for path in (*hidden.emptied, *hidden.covered)]
    more = f" and {len(names) - _TOLD} more" if len(names) > _TOLD else ""
    left_out = f"; left out of it: {', '.join(names[:_TOLD])}{more}" if names else ""
    return f"your home is staged: what is written there is a change to review{left_out}"


@contextmanager
def together(sessions: Sequence[tuple[Tie, Any]], what: str) -> Iterator[None]:
    """Have other projects' vaults alone for the block, recovered. Raise MudroomError if one is in use."""
    with ExitStack() as stack:
        for tied, session in sorted(sessions, key=lambda row: row[0].vault):
            stack.enter_context(session.alone(what, functools.partial(busy, tied)))
        yield
