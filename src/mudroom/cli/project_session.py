"""From the words of a command line to a session: which project, which state directory, which settings."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from mudroom.cli.terminal.approver import set_command_approver, set_host_approver
from mudroom.cli.terminal.context import Context
from mudroom.core.settings import Loaded, Settings
from mudroom.core.tree.path import relpath, show
from mudroom.errors import FULL, MudroomError, UsageError
from mudroom.policy.config import LOOPBACK_WORDS, answers_name_loopback, load_policy, places, trusts_any
from mudroom.session import Client, Session, find_project, policy_above, require_project
from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mudroom.cli.terminal.approver import Ask
    from mudroom.core.agent.card import AgentCard
    from mudroom.core.command.policy import CommandPolicy
    from mudroom.core.network.host_rules import HostRule
    from mudroom.policy.host_answers import HostRules
    from mudroom.session.sandboxes import CutOffCommand


MOST_CHARACTERS = 60
"""Characters of a command that a note shows."""
MOST_LEFT_OUT = 3
"""Items of a policy that a note names."""


def working_directory() -> bytes:
    try:
        return os.getcwdb()
    except FileNotFoundError:
        raise UsageError("the current directory does not exist any more", "cd to one that does") from None


def project_of(context: Context) -> bytes:
    """Return the project as a real path."""
    if context.project is not None:
        return os.path.realpath(context.project)
    home = places(context.environ).home
    return find_project(os.path.realpath(working_directory()), home)


def with_shown(settings: Settings, paths: Sequence[str]) -> Settings:
    """Return the settings with the secrets that ``--show`` names shown."""
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
    """Return a session on the project of the command line.

    ``adjust`` applies the options of the command line to the settings of the policy files; ``level`` is its isolation
    level. ``agent`` is the agent whose commands will run, None: the user's own commands. ``ask`` says how approvals and
    hosts are asked about. ``also`` are host rules for this session, beside those of the project. ``reads_policy`` False
    is for verbs that neither run nor change anything and have to work with a broken policy file; the defaults hold
    then.
    """
    locations = places(context.environ)
    project = project_of(context)
    rules, remember = host_answers(project, context)
    real = require_project(project, locations.state, locations.home)[0]  # before its policy is read
    policy = settings_of(context, real) if reads_policy else Settings()
    current = combined_rules(rules, tuple(also)) if also else rules
    session = Session.open(
        project,
        state=locations.state,
        home=locations.home,
        environ=context.environ,
        settings=adjust(policy),
        policy=policy,
        client=client,
        progress=context.terminal.progress,
        waiting=context.terminal.tell_waiting,
        level=level,
        card=card,
        rules=current,
        remember=remember,
        loopback_rules=loopback_rules(real, current, (*policy.hosts, *also)),
        agent=agent,
        commands=_Commands(project, context) if agent is not None else None,
    )
    for command in session.sandboxes.collect_cut_off():
        context.terminal.note(cut_off(command))
    set_host_approver(ask, context, session)
    if session.actor.agent is not None:
        set_command_approver(ask, context, session)
    return session


def cut_off(command: CutOffCommand) -> str:
    """Return one line about a command that was running when mudroom was killed."""
    words = command.holder if len(command.holder) <= MOST_CHARACTERS else command.holder[: MOST_CHARACTERS - 1] + "…"
    changes = "1 change" if command.changed == 1 else f"{command.changed:,} changes"
    name = command.fork
    return f"mudroom was killed while `{words}` ran in {name}; collected: {changes} (mudroom diff {name})"


class _Commands:
    """Return the command rules as of the call, so that an answer of "always" counts for the rest of a session. Raise
    UsageError while a policy file cannot be parsed.

    ``_known`` is replaced as a whole, without a lock: several threads of a session call it.
    """

    def __init__(self, project: bytes, context: Context) -> None:
        self._project, self._environ = project, context.environ
        self._known: tuple[tuple[bytes, ...], tuple[object, ...] | None, Loaded] = ((), None, Loaded())
        """The files of the policy, their stamps (None: read it again), and what was read."""

    def __call__(self) -> CommandPolicy:
        from mudroom.policy.cache import stamp

        files, stamps, loaded = self._known
        now = tuple(map(stamp, files))
        if stamps is None or now != stamps:
            self._known = files, None, loaded
            loaded = load_policy(self._project, self._environ)
            is_known = bool(files) and loaded.files == files
            self._known = loaded.files, now if is_known else None, loaded
        return loaded.settings.commands


def settings_of(context: Context, project: bytes) -> Settings:
    """Return the settings of all policy files, the project's as far as it is trusted. Print a note about the rest."""
    loaded = load_policy(project, context.environ)
    if loaded.left_out:
        context.terminal.note(left_out(loaded))
    above = policy_above(project, places(context.environ).home)
    if above is not None:
        context.terminal.note(not_above(project, above))
    return loaded.settings


def not_above(project: bytes, above: bytes) -> str:
    """Return one line that says whose policy does not apply here."""
    return f"{show(project)} is a project of its own: the policy of {show(above)}, in which it lies, does not hold here"


def left_out(loaded: Loaded) -> str:
    """Return one line that says which part of the project's policy is not trusted, and what to do."""
    items = list(dict.fromkeys(item.text for item in loaded.left_out))
    files = dict.fromkeys(("/" + item.at).rpartition("/.mudroom/")[2].rpartition(":")[0] for item in loaded.left_out)
    more = f" and {len(items) - MOST_LEFT_OUT} more" if len(items) > MOST_LEFT_OUT else ""
    shown = "; ".join(item if len(item) < 80 else item[:79] + "…" for item in items[:MOST_LEFT_OUT])
    where = ", ".join(".mudroom/" + name for name in list(files)[:MOST_LEFT_OUT])
    return f"not taken from {where}, {loaded.why}: {shown}{more} (mudroom policy trust shows all and asks)"


def host_answers(
    project: bytes, context: Context
) -> tuple[Callable[[], Sequence[HostRule]], Callable[[HostRule], None]]:
    """Return two functions: the project's host rules as they are now, and one that stores an answer. Most commands need
    no network, so imports wait until either is called."""
    answers: list[HostRules] = []
    files: tuple[bytes, ...] = ()

    def policy() -> Sequence[HostRule]:
        nonlocal files
        loaded = load_policy(project, context.environ)
        files = loaded.files
        return loaded.settings.hosts

    def host_rules() -> HostRules:
        if not answers:
            from mudroom.policy.host_answers import HostRules

            answers.append(
                HostRules(
                    project,
                    policy,
                    lambda: time.strftime("asked %Y-%m-%d"),
                    lambda: files,
                    state=places(context.environ).state,
                    trusts_all=trusts_any(context.environ),
                )
            )
        return answers[0]

    def current_rules() -> Sequence[HostRule]:
        return host_rules()()

    def remember(rule: HostRule) -> None:
        host_rules().remember(rule)

    return current_rules, remember


def loopback_rules(
    project: bytes, rules: Callable[[], Sequence[HostRule]], given: Sequence[HostRule]
) -> Callable[[], Sequence[HostRule]]:
    """Return a function that returns the host rules if one of them may name this machine's loopback, otherwise none.
    ``given``: the rules that do not come from the answers of this machine. A project without answers costs a failed
    open(2)."""
    names = any(word.decode() in rule.pattern for rule in given for word in LOOPBACK_WORDS)
    return lambda: rules() if names or answers_name_loopback(project) else ()


def combined_rules(
    rules: Callable[[], Sequence[HostRule]], extra: tuple[HostRule, ...]
) -> Callable[[], Sequence[HostRule]]:
    """Return a function with both kinds of rules. A deny of ``extra`` yields to an allow of the same host in ``rules``:
    a profile denies a registry for its agent's updates, and the user allows it for the project. The result is the same
    object as long as ``rules`` returns the same object (``Gateway`` relies on that)."""
    cache: list[tuple[Sequence[HostRule], Sequence[HostRule]]] = []

    def both() -> Sequence[HostRule]:
        current = rules()
        if not cache or cache[0][0] is not current:
            allowed = {rule.pattern for rule in current if rule.action == "allow"}
            kept = (rule for rule in extra if rule.action != "deny" or rule.pattern not in allowed)
            cache[:] = [(current, (*current, *kept))]
        return cache[0][1]

    return both


@contextmanager
def full_disk_hint(session: Session, fork: str | None = None) -> Iterator[None]:
    """Around a command: if the disk is full, raise MudroomError that names the fork to discard. ``fork`` None: the
    newest fork, which was made for the command."""
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
def exclusive(session: Session, context: Context, command: str) -> Iterator[None]:
    """Hold the vault's lock. Wait for its holder, with a message; then recover applies that a crash cut off."""
    started = time.strftime("%H:%M:%S")
    holder = f"`{command}` (process {os.getpid()}, since {started})"
    print_line = context.terminal.say
    with session.alone(
        holder,
        context.terminal.tell_waiting,
        lambda: print_line("stopping the agents that run in this project; they go on afterwards"),
    ) as recovered:
        for recovery in recovered:
            print_recovered(context, recovery.name, recovery.fork, recovery.outcome)
        yield


def print_remarks(session: Session, context: Context) -> None:
    """Print what has not been said yet: a mount that could not be made again, or one that had ended."""
    for remark in session.forks.unsaid():
        context.terminal.note(remark)


def end_mount(session: Session, fork: str) -> None:
    """Unmount a fork if it is mounted."""
    if fork in session.forks.mounts():
        session.forks.unmount(fork)


_RECOVERED = {
    "deferred": "was cut off before it touched the project; the fork is whole: mudroom apply {fork}",
    "finished": "was cut off in the middle; it is finished now (mudroom undo {name} takes it back)",
    "undone": "was being undone when it was cut off; that is finished now",
}


def print_recovered(context: Context, name: str, fork: str, outcome: str) -> None:
    context.terminal.note(f"apply {name} of {fork} " + _RECOVERED[outcome].format(name=name, fork=fork))


def project_paths(words: list[str], session: Session) -> list[bytes]:
    """Return paths of the command line, which are relative to the current directory, as paths of the project."""
    here = os.path.realpath(working_directory())
    inside = here[len(session.project) + 1 :] if here.startswith(session.project + b"/") else b""
    paths: list[bytes] = []
    for word in words:
        path = os.fsencode(word)
        if path.startswith(session.project + b"/"):
            path = path[len(session.project) + 1 :]
        elif not path.startswith(b"/"):
            path = os.path.normpath(os.path.join(inside, path))
        try:
            paths.append(relpath(path))
        except ValueError as error:
            raise UsageError(str(error)) from error
    return paths


def only_fork(session: Session, name: str | None) -> str:
    """Return the fork that is named, or the only fork there is. Raise UsageError if the choice is not clear."""
    if name is not None:
        return session.vault.fork(name).name
    forks = session.vault.forks()
    if len(forks) == 1:
        return forks[0].name
    if not forks:
        raise UsageError(f"{show(session.project)} has no forks", "mudroom run --keep -- COMMAND makes one")
    raise UsageError("there are several forks", "name one of: " + ", ".join(fork.name for fork in forks))
