"""Open a session on a project with its policy files: settings, host rules, command rules, and notes about them.

The command line and the library open sessions here. ``environ`` decides where the home, the state directory and the
policy files are (``policy/config.py:places``).
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
    answers_name,
    load_policy,
    places,
    project_settings,
    trusts_any,
)
from mudroom.session import Session, require_project
from mudroom.session.approval import CommandAnswers
from mudroom.session.confinement.host_approver import HostAnswers, PendingQuestion
from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mudroom.core.agent.card import AgentCard
    from mudroom.core.command.policy import CommandPolicy
    from mudroom.core.network.flow import FlowQuestion
    from mudroom.core.network.host_rules import HostRule
    from mudroom.policy.host_answers import HostRules
    from mudroom.session import Client
    from mudroom.session.sandboxes import CutOffCommand
    from mudroom.vault.forks.collection import Progress
    from mudroom.vault.store.store import Later


MOST_CHARACTERS = 60
"""Maximum length of a command in a note, in characters."""


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
    """Return a session on ``project``, with no approver set yet. Raise UsageError if the project cannot be staged or
    its policy cannot be read.

    ``adjust``: applies options to the policy files' settings.
    ``level``: the requested isolation level.
    ``agent``: the agent whose commands will run; None: the user's own commands.
    ``also``: host rules for this session, beside the project's.
    ``reads_policy`` False: for callers that neither run nor change anything and have to work with a broken policy file.
    ``needs_policy`` False: an unreadable policy is only a note; for callers that run nothing and apply nothing new.
    ``note``: called with one line for each part of the policy that does not hold, and for each command that was running
    when mudroom was killed.
    ``later``: as for ``Vault``.

    Without a policy, ``KEEPS_ALL`` is in force. Changes that a killed mudroom left are then not collected, because the
    secrets are not known.
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
        hosts=answers._replace(
            rules=current,
            loopback_rules=loopback_rules(real, locations.state, current, (*policy.hosts, *also), agent is not None),
            for_agent=held_if_possible,
        ),
        agent=agent,
        commands=CommandAnswers(CommandRules(project, environ) if agent is not None else None),
    )
    for command in session.sandboxes.collect_cut_off() if policy is not KEEPS_ALL else ():
        note(cut_off(command))
    return session


# --- settings ---


def with_shown(settings: Settings, paths: Sequence[str]) -> Settings:
    """Return the settings with these secrets shown, named as for ``--show``."""
    shown = (os.fsencode(path).removeprefix(b"./") for path in paths)
    return settings._replace(secrets_show=(*settings.secrets_show, *shown))


# --- rules ---


class CommandRules:
    """Return the command rules at the time of each call, so that an "always" answer holds for the rest of a session.
    Raise UsageError while a policy file cannot be parsed.

    A session's threads may call it at once without a lock: ``_known`` is replaced as a whole.
    """

    def __init__(self, project: bytes, environ: Mapping[bytes, bytes]) -> None:
        self._project, self._environ = project, environ
        self._known: tuple[tuple[bytes, ...], tuple[object, ...] | None, Loaded] = ((), None, Loaded())
        """The policy's files, their stamps (None: read them again), and the loaded policy."""

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
    """Return two functions: one returns the project's present host rules, one stores an answer. Most commands need no
    network, so imports wait until the first call."""
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
    project: bytes,
    state: bytes,
    rules: Callable[[], Sequence[HostRule]],
    given: Sequence[HostRule],
    is_agent: bool = False,
) -> Callable[[], Sequence[HostRule]]:
    """Return a function that returns the host rules if any may name this machine's loopback, or holds pushes, otherwise
    no rules. ``given``: the rules that do not come from answers stored on this machine. ``is_agent``: a preset or
    pattern may hold, too. Without stored answers, a call costs two failed open(2) calls."""
    words = (*LOOPBACK_WORDS, b"@", b"*") if is_agent else LOOPBACK_WORDS
    names = any(rule.hold or word.decode() in rule.pattern for rule in given for word in LOOPBACK_WORDS)
    names = names or (is_agent and held_if_possible(given) is not given)
    return lambda: rules() if names or answers_name(words, project, state) else ()


def held_if_possible(rules: Sequence[HostRule]) -> Sequence[HostRule]:
    """Return the rules for an agent's command (``held_for_agent``), or as they are where nothing can be held."""
    if not any(rule.action == "allow" for rule in rules):
        return rules
    from mudroom.core.network.preset import held_for_agent
    from mudroom.session.confinement.command_gate import can_inspect

    held = held_for_agent(rules)
    return held if held is not rules and can_inspect() else rules


def combined_rules(
    rules: Callable[[], Sequence[HostRule]], extra: tuple[HostRule, ...]
) -> Callable[[], Sequence[HostRule]]:
    """Return a function that returns ``rules`` and ``extra`` together. A deny in ``extra`` yields to an allow for the
    same host in ``rules``: a profile denies a registry to stop its agent's updates, and the user allows it for the
    project. While ``rules`` returns the same object, so does the function (``SessionGate`` relies on that)."""
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
    """Store an answer about a command as a rule for this machine."""
    from mudroom.policy import command_answers

    state = os.path.dirname(os.path.dirname(session.vault.path))
    note = time.strftime("asked %Y-%m-%d")
    command_answers.remember(session.project, pattern, note, "allow" if allow else "deny", state=state)


class QueueForHosts:
    """Ask about hosts in the queue (``host_approver.py:RemoteApprover``). Modules are loaded and files opened only for
    the first question."""

    def __init__(self, session: Session, *, anyway: bool) -> None:
        """``anyway``: wait even if no process that could answer is listening; one may start later."""
        self._session, self._anyway = session, anyway

    def begin(self, question: FlowQuestion) -> PendingQuestion:
        from mudroom.session.upkeep import HostApprover

        agent = self._session.actor.agent or ""
        return HostApprover(self._session.vault.approvals, agent, anyway=self._anyway).begin(question)


# --- notes ---


def cut_off(command: CutOffCommand) -> str:
    """Return a line about a command that was running when mudroom was killed."""
    words = command.holder if len(command.holder) <= MOST_CHARACTERS else command.holder[: MOST_CHARACTERS - 1] + "…"
    changes = "1 change" if command.changed == 1 else f"{command.changed:,} changes"
    name = command.fork
    ended = f"mudroom was killed while `{words}` ran in {name}"
    if words == "mudroom":  # mudroom itself held the lock, to collect the changes
        ended = f"the changes of the last command in {name} were left"
    return f"{ended}; collected: {changes} (mudroom diff {name})"
