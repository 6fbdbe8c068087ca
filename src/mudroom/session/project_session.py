"""A session on a project as its policy files say: settings, host rules, command rules, and notes about them.

The command line and the library open sessions here. ``environ`` is the environment in which home, state directory and
policy files are found (``policy/config.py:places``).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence

from mudroom.core.settings import Loaded, Settings
from mudroom.errors import UsageError
from mudroom.policy.config import (
    KEEPS_ALL,
    LOOPBACK_WORDS,
    answers_name_loopback,
    load_policy,
    places,
    project_settings,
    trusts_any,
)
from mudroom.session import Session, require_project
from mudroom.session.approval import CommandAnswers
from mudroom.session.confinement.host_approver import HostAnswers
from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mudroom.core.agent.card import AgentCard
    from mudroom.core.command.policy import CommandPolicy
    from mudroom.core.network.flow import FlowAnswer, FlowQuestion
    from mudroom.core.network.host_rules import HostRule
    from mudroom.policy.host_answers import HostRules
    from mudroom.session import Client
    from mudroom.session.confinement.host_approver import PendingQuestion
    from mudroom.session.sandboxes import CutOffCommand
    from mudroom.session.upkeep import HostApprover
    from mudroom.vault.forks.collection import Progress
    from mudroom.vault.store.store import Later


MOST_CHARACTERS = 60
"""Characters of a command that a note shows."""


def open_project(
    project: bytes,
    environ: Mapping[bytes, bytes],
    *,
    note: Callable[[str], None] = lambda _text: None,
    client: Client | None = None,
    progress: Progress | None = None,
    waiting: Callable[[str], None] = lambda _holder: None,
    later: Later | None = None,
    adjust: Callable[[Settings], Settings] = lambda settings: settings,
    level: int | None = None,
    card: AgentCard | None = None,
    agent: str | None = None,
    also: Sequence[HostRule] = (),
    reads_policy: bool = True,
    needs_policy: bool = True,
) -> Session:
    """Return a session on ``project``. No approver is set yet. Raise UsageError if the project cannot be staged or its
    policy cannot be read.

    ``adjust`` applies options to the settings of the policy files; ``level`` is the isolation level that was asked for.
    ``agent`` is the agent whose commands will run, None: the user's own commands. ``also`` are host rules for this
    session, beside those of the project. ``reads_policy`` False is for callers that neither run nor change anything and
    have to work with a broken policy file. ``needs_policy`` False: a policy that cannot be read is a note; for callers
    that run nothing and apply nothing new. Either way ``KEEPS_ALL`` holds then, and what a killed mudroom has left is
    not collected, because the secrets are not known. ``note`` is called with one line about each part of
    the policy that does not hold, and about each command that a killed mudroom has left. ``later``: of ``Vault``.
    """
    locations = places(environ)
    answers = host_answers(project, environ)
    real = require_project(project, locations.state, locations.home)[0]  # before its policy is read
    policy = KEEPS_ALL
    if reads_policy:
        try:
            policy = project_settings(real, environ, note)
        except UsageError as error:
            if needs_policy:
                raise
            note(f"the policy is not in force: {error}")
    current = combined_rules(answers.rules, tuple(also)) if also else answers.rules
    session = Session.open(
        project,
        state=locations.state,
        home=locations.home,
        environ=environ,
        settings=adjust(policy),
        policy=policy,
        client=client,
        progress=progress,
        waiting=waiting,
        later=later,
        level=level,
        card=card,
        hosts=answers._replace(rules=current, loopback_rules=loopback_rules(real, current, (*policy.hosts, *also))),
        agent=agent,
        commands=CommandAnswers(CommandRules(project, environ) if agent is not None else None),
    )
    for command in session.sandboxes.collect_cut_off() if policy is not KEEPS_ALL else ():
        note(cut_off(command))
    return session


# --- settings ---


def with_shown(settings: Settings, paths: Sequence[str]) -> Settings:
    """Return the settings with these secrets shown, named as by ``--show``."""
    shown = (os.fsencode(path).removeprefix(b"./") for path in paths)
    return settings._replace(secrets_show=(*settings.secrets_show, *shown))


# --- rules ---


class CommandRules:
    """Return the command rules as of the call, so that an answer of "always" counts for the rest of a session. Raise
    UsageError while a policy file cannot be parsed.

    ``_known`` is replaced as a whole, without a lock: several threads of a session call it.
    """

    def __init__(self, project: bytes, environ: Mapping[bytes, bytes]) -> None:
        self._project, self._environ = project, environ
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


def host_answers(project: bytes, environ: Mapping[bytes, bytes]) -> HostAnswers:
    """Return the project's host rules as they are now, and what stores an answer. Most commands need
    no network, so imports wait until either is called."""
    answers: list[HostRules] = []
    files: tuple[bytes, ...] = ()

    def policy() -> Sequence[HostRule]:
        nonlocal files
        loaded = load_policy(project, environ)
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
                    state=places(environ).state,
                    trusts_all=trusts_any(environ),
                )
            )
        return answers[0]

    def current_rules() -> Sequence[HostRule]:
        return host_rules()()

    def remember(rule: HostRule) -> None:
        host_rules().remember(rule)

    return HostAnswers(current_rules, remember)


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
    object as long as ``rules`` returns the same object (``SessionGate`` relies on that)."""
    cache: list[tuple[Sequence[HostRule], Sequence[HostRule]]] = []

    def both() -> Sequence[HostRule]:
        current = rules()
        if not cache or cache[0][0] is not current:
            allowed = {rule.pattern for rule in current if rule.action == "allow"}
            kept = (rule for rule in extra if rule.action != "deny" or rule.pattern not in allowed)
            cache[:] = [(current, (*current, *kept))]
        return cache[0][1]

    return both


def remember_command(session: Session, pattern: str, allow: bool) -> None:
    """Write the rule of an answer about a command, for this machine."""
    from mudroom.policy import command_answers

    state = os.path.dirname(os.path.dirname(session.vault.path))
    note = time.strftime("asked %Y-%m-%d")
    command_answers.remember(session.project, pattern, note, "allow" if allow else "deny", state=state)


class QueueForHosts:
    """Ask in the queue about hosts (``host_approver.py:RemoteApprover``). Imports and files wait until there is a
    question."""

    def __init__(self, session: Session, *, anyway: bool) -> None:
        """``anyway``: wait even if no process that may answer is listening, because one may start."""
        self._session, self._anyway = session, anyway

    def __call__(self, question: FlowQuestion, over: int) -> FlowAnswer:
        return self._approver()(question, over)

    def begin(self, question: FlowQuestion) -> PendingQuestion:
        return self._approver().begin(question)

    def _approver(self) -> HostApprover:
        from mudroom.session.upkeep import HostApprover

        return HostApprover(self._session.vault.approvals, self._session.actor.agent or "", anyway=self._anyway)


# --- notes ---


def cut_off(command: CutOffCommand) -> str:
    """Return one line about a command that was running when mudroom was killed."""
    words = command.holder if len(command.holder) <= MOST_CHARACTERS else command.holder[: MOST_CHARACTERS - 1] + "…"
    changes = "1 change" if command.changed == 1 else f"{command.changed:,} changes"
    name = command.fork
    ended = f"mudroom was killed while `{words}` ran in {name}"
    if words == "mudroom":  # it was going to collect them
        ended = f"the changes of the last command in {name} were left"
    return f"{ended}; collected: {changes} (mudroom diff {name})"
