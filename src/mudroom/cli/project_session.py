"""From the words of a command line to a session: which project, which state, which settings."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mudroom.cli.terminal.approver import ask_about_hosts_by, ask_by
from mudroom.cli.terminal.context import Context
from mudroom.core.settings import Loaded, Settings
from mudroom.core.tree.path import relpath, show
from mudroom.errors import FULL, MudroomError, UsageError
from mudroom.policy.config import load_policy, places, trusts_any
from mudroom.session import Client, Session, find_project, policy_above, require_project

if TYPE_CHECKING:
    from mudroom.cli.terminal.approver import Ask
    from mudroom.core.agent.card import AgentCard
    from mudroom.core.command.policy import CommandPolicy
    from mudroom.core.network.host_rules import HostRule
    from mudroom.policy.host_answers import HostRules


MOST_LEFT_OUT = 3
"""Items of a policy that are named before a command."""


def working_directory() -> bytes:
    try:
        return os.getcwdb()
    except FileNotFoundError:
        raise UsageError("the current directory does not exist any more", "cd to one that does") from None


def project_of(context: Context) -> bytes:
    """The project, as a real path."""
    if context.project is not None:
        return os.path.realpath(context.project)
    home = places(context.environ).home
    return find_project(os.path.realpath(working_directory()), home)


def with_shown(settings: Settings, paths: Sequence[str]) -> Settings:
    """With the secrets that ``--show`` names."""
    shown = (os.fsencode(path).removeprefix(b"./") for path in paths)
    return settings._replace(secrets_show=(*settings.secrets_show, *shown))


def open_session(
    context: Context,
    *,
    client: Client | None = None,
    adjust: Callable[[Settings], Settings] = lambda settings: settings,
    level: int | None = None,
    card: AgentCard | None = None,
    agent: str | None = None,
    ask: Ask | None = None,
    also: Sequence[HostRule] = (),
    reads_policy: bool = True,
) -> Session:
    """``adjust``: what the command line has to say about the settings of the policy file, ``level`` about isolation.
    ``agent``: whose commands will run, None: the user's own. ``ask``: whom about what needs an approval, and hosts.
    ``also``: rules of the gate for this session, beside those of the project. ``reads_policy``: False for what neither
    runs nor changes anything and can be done whatever is wrong in a policy file; the defaults hold."""
    place = places(context.environ)
    project = project_of(context)
    rules, remember = standing(project, context)
    real = require_project(project, place.state, place.home)[0]  # before its policy is read
    policy = settings_of(context, real) if reads_policy else Settings()
    session = Session.open(
        project,
        state=place.state,
        home=place.home,
        environ=context.environ,
        settings=adjust(policy),
        policy=policy,
        client=client,
        progress=context.terminal.progress,
        level=level,
        card=card,
        rules=beside(rules, tuple(also)) if also else rules,
        remember=remember,
        agent=agent,
        commands=_Commands(project, context) if agent is not None else None,
    )
    ask_about_hosts_by(ask, context, session)
    if session.actor.agent is not None:
        ask_by(ask, context, session)
    return session


class _Commands:
    """The rules for commands as they are now, when called: an answer of "always" counts for the rest of a session.
    Raises UsageError as long as a policy file cannot be understood."""

    def __init__(self, project: bytes, context: Context) -> None:
        self._project, self._environ = project, context.environ
        self._files: tuple[bytes, ...] = ()
        self._stamps: tuple[object, ...] | None = None
        self._loaded = Loaded()

    def __call__(self) -> CommandPolicy:
        from mudroom.policy.cache import stamp

        now = tuple(map(stamp, self._files))
        if self._stamps is None or now != self._stamps:
            self._stamps = None
            self._loaded = load_policy(self._project, self._environ)
            known = bool(self._files) and self._loaded.files == self._files
            self._stamps, self._files = now if known else None, self._loaded.files
        return self._loaded.settings.commands


def settings_of(context: Context, project: bytes) -> Settings:
    """What all policy files say together, as far as the project's is trusted; what is left out of it is said."""
    loaded = load_policy(project, context.environ)
    if loaded.left_out:
        context.terminal.note(left_out(loaded))
    above = policy_above(project, places(context.environ).home)
    if above is not None:
        context.terminal.note(not_above(project, above))
    return loaded.settings


def not_above(project: bytes, above: bytes) -> str:
    """One line for people: whose policy does not hold here."""
    return f"{show(project)} is a project of its own: the policy of {show(above)}, in which it lies, does not hold here"


def left_out(loaded: Loaded) -> str:
    """One line for people: what of the project's policy is not believed, and what to do about it."""
    found = list(dict.fromkeys(one.text for one in loaded.left_out))
    files = dict.fromkeys(("/" + one.at).rpartition("/.mudroom/")[2].rpartition(":")[0] for one in loaded.left_out)
    more = f" and {len(found) - MOST_LEFT_OUT} more" if len(found) > MOST_LEFT_OUT else ""
    shown = "; ".join(one if len(one) < 80 else one[:79] + "…" for one in found[:MOST_LEFT_OUT])
    where = ", ".join(".mudroom/" + name for name in list(files)[:MOST_LEFT_OUT])
    return f"not taken from {where}, {loaded.why}: {shown}{more} (mudroom policy trust shows all and asks)"


def standing(project: bytes, context: Context) -> tuple[Callable[[], Sequence[HostRule]], Callable[[HostRule], None]]:
    """The project's host rules as they are now, and what keeps an answer. Most commands want nothing of the network:
    nothing is imported for them."""
    made: list[HostRules] = []
    files: tuple[bytes, ...] = ()

    def policy() -> Sequence[HostRule]:
        nonlocal files
        loaded = load_policy(project, context.environ)
        files = loaded.files
        return loaded.settings.hosts

    def standing() -> HostRules:
        if not made:
            from mudroom.policy.host_answers import HostRules

            made.append(
                HostRules(
                    project,
                    policy,
                    lambda: time.strftime("asked %Y-%m-%d"),
                    lambda: files,
                    state=places(context.environ).state,
                    trusts_all=trusts_any(context.environ),
                )
            )
        return made[0]

    def rules() -> Sequence[HostRule]:
        return standing()()

    def remember(rule: HostRule) -> None:
        standing().remember(rule)

    return rules, remember


def beside(rules: Callable[[], Sequence[HostRule]], more: tuple[HostRule, ...]) -> Callable[[], Sequence[HostRule]]:
    """Both; the very same object as long as the rules are (``Gateway``)."""
    last: list[tuple[Sequence[HostRule], Sequence[HostRule]]] = []

    def both() -> Sequence[HostRule]:
        found = rules()
        if not last or last[0][0] is not found:
            last[:] = [(found, (*found, *more))]
        return last[0][1]

    return both


@contextmanager
def telling_of_room(session: Session, fork: str | None = None) -> Iterator[None]:
    """Around a command: where there is no room for what it does, say which fork to throw away. ``fork``: None, the
    newest, which was made for it."""
    try:
        yield
    except OSError as error:
        forks = session.vault.forks()
        if error.errno not in FULL or (fork is None and not forks):
            raise
        name = fork or forks[-1].name
        raise MudroomError(
            f"{error.strerror}: {show(session.vault.path)} has no room for what the command did in {name}",
            f"mudroom discard {name} gives back what it holds; the project is as it was",
        ) from error


@contextmanager
def exclusive(session: Session, context: Context, what: str) -> Iterator[None]:
    """Hold the vault's lock. Waits for whoever has it, and says for whom; then deals with what a crash left."""
    started = time.strftime("%H:%M:%S")
    holder = f"`{what}` (process {os.getpid()}, since {started})"
    say = context.terminal.say
    with session.alone(
        holder,
        lambda other: say(f"waiting for {other} to end; Ctrl-C to give up"),
        lambda: say("stopping the agents that run in this project; they go on afterwards"),
    ) as found:
        for recovered in found:
            tell_recovered(context, recovered.name, recovered.fork, recovered.outcome)
        yield


_RECOVERED = {
    "deferred": "was cut off before it touched the project; the fork is whole: mudroom apply {fork}",
    "finished": "was cut off in the middle; it is finished now (mudroom undo {name} takes it back)",
    "undone": "was being undone when it was cut off; that is finished now",
}


def tell_recovered(context: Context, name: str, fork: str, outcome: str) -> None:
    context.terminal.note(f"apply {name} of {fork} " + _RECOVERED[outcome].format(name=name, fork=fork))


def project_paths(words: list[str], session: Session) -> list[bytes]:
    """Paths given on the command line, relative to the current directory, as paths of the project."""
    here = os.path.realpath(working_directory())
    inside = here[len(session.project) + 1 :] if here.startswith(session.project + b"/") else b""
    found: list[bytes] = []
    for word in words:
        raw = os.fsencode(word)
        if raw.startswith(session.project + b"/"):
            raw = raw[len(session.project) + 1 :]
        elif not raw.startswith(b"/"):
            raw = os.path.normpath(os.path.join(inside, raw))
        try:
            found.append(relpath(raw))
        except ValueError as error:
            raise UsageError(str(error)) from error
    return found


def only_fork(session: Session, name: str | None) -> str:
    """The fork that is meant: the one named, or the only one there is."""
    if name is not None:
        return session.vault.fork(name).name
    forks = session.vault.forks()
    if len(forks) == 1:
        return forks[0].name
    if not forks:
        raise UsageError(f"{show(session.project)} has no forks", "mudroom run --keep -- COMMAND makes one")
    raise UsageError("there are several forks", "name one of: " + ", ".join(fork.name for fork in forks))
