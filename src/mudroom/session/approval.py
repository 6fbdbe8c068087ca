"""Approve a command: classify, decide, ask. No command is run here.

Rules in this file:
1. Only an agent's commands are judged; the user's own commands are the user's decision.
2. A command is refused if there is no approver, if the approver fails, or if the command has changed since the answer.
3. A sandbox's protections make a verdict milder only if they are in force for this command. This is checked again once
   the fork is taken (``holds``), and when a sandbox falls back (``own_sandbox.py``).
4. While the approver decides, no lock is held and no fork is made. Once the fork is taken, the approved command is
   compared with the present command (``holds``).
"""

from __future__ import annotations

import _thread
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from mudroom.core.command.policy import STRICTNESS, CommandPolicy, decide, exact_pattern, has_rule, rules_of_pattern
from mudroom.core.command.verdict import ACTIONS, Classification, Verdict
from mudroom.core.confinement.environment import select_variables
from mudroom.core.result import text, verdict_to_json
from mudroom.core.tree.path import show
from mudroom.errors import ForkGone, MudroomError
from mudroom.session.actor import Actor
from mudroom.session.confinement.grant import PLAIN
from mudroom.session.forks import Forks
from mudroom.session.machine import Machine
from mudroom.session.order import OWN, Case, Order, ProtectionLost
from mudroom.session.users import is_shared
from mudroom.stage.layers.union import Union
from mudroom.stage.source import OpenSource, Source
from mudroom.typing import TYPE_CHECKING, NamedTuple
from mudroom.vault.forks.open_fork import OpenFork
from mudroom.vault.store.fork import Fork

if TYPE_CHECKING:
    from mudroom.core.approval.approval import CommandAnswer, CommandApprover, CommandQuestion, Remember
    from mudroom.core.command.protection import Protections


class CommandAnswers(NamedTuple):
    """How questions about an agent's commands are answered."""

    rules: Callable[[], CommandPolicy] | None = None
    """Called for each command; None: the settings' rules, and rules learned from "always" answers."""
    approver: CommandApprover | None = None
    """Asked about a command that needs approval; None: the command is refused."""
    remember: Remember | None = None
    """Stores a rule, as written in the policy file."""


UNASKED = CommandAnswers()


class _Judgement(NamedTuple):
    verdict: Verdict
    classified: Classification
    relies: bool
    """Whether the sandbox's protections made the classes milder."""


class Approval:
    """``_lock`` guards ``_learned`` and ``_open``, the number of open questions. ``_answers`` is replaced as a
    whole."""

    def __init__(
        self,
        actor: Actor,
        machine: Machine,
        forks: Forks,
        answers: CommandAnswers,
    ) -> None:
        """``actor``: the session's own."""
        self.actor, self._machine, self._forks = actor, machine, forks
        self._answers = answers
        self._lock = _thread.allocate_lock()
        self._learned: CommandPolicy | None = None
        self._open = 0

    def ask_about(self, approver: CommandApprover | None, remember: Remember | None = None) -> None:
        """Set the approver; None: refuse commands that need approval. ``remember`` stores a rule."""
        self._answers = self._answers._replace(approver=approver, remember=remember)

    @property
    def is_asking(self) -> bool:
        """Whether a question about a command is open; its approver handles signals itself. Lock-free, because a signal
        handler calls it."""
        return self._open > 0

    def policy(self) -> CommandPolicy:
        """Return the present command rules."""
        rules = self._answers.rules
        return rules() if rules is not None else self._learned or self.actor.settings.commands

    # --- judging ---

    def decide_on(
        self, argv: Sequence[bytes], cwd: bytes | None = None, actor: Actor | None = None, *, at_level: bool = False
    ) -> Verdict:
        """Return the policy's verdict on an agent's command (default: this session's agent). The command is not run,
        and no approver is asked. ``at_level``: judge it as if this session ran it in its own sandbox; otherwise no
        sandbox protection makes the verdict milder."""
        actor = actor or self.actor
        grant = self._machine.granted(actor) if at_level else PLAIN
        order = Order(tuple(argv), cwd or self._forks.vault.project, actor, grant)
        return self._judged(order, lambda: not at_level).verdict

    def judge(self, order: Order) -> Case:
        """Return a command's case before it runs."""
        if order.actor.agent is None:
            return OWN
        judgement = self._judged(order, lambda: self._joins(order))
        return Case(judgement.verdict, relies=judgement.relies)

    def _joins(self, order: Order) -> bool:
        """Return whether the command would share its sandbox, as far as known before its fork is taken."""
        try:
            return _shares(order, None if order.fork is None else self._forks.vault.find(order.fork))
        except ForkGone:
            return True

    def _judged(self, order: Order, joins: Callable[[], bool]) -> _Judgement:
        """``joins``: returns whether the command shares its sandbox. No protection makes the verdict milder then:
        other commands' processes are inside, and another session may have made the sandbox in a weaker mode."""
        from mudroom.core.command.program.classification import classify_words

        classified, relies = classify_words(order.argv, project=self._forks.vault.project, cwd=order.cwd), False
        policy, agent = self.policy(), order.actor.agent
        has_aims = any(part.aims for part in classified.parts)
        if has_aims and not has_rule(policy, "host_escape_risk", agent) and not joins():
            from mudroom.core.command.program.aim import at_level

            classified, relies = at_level(classified, self.protections(order))
        return _Judgement(self._verdict(order, classified), classified, relies)

    def _verdict(self, order: Order, classified: Classification, bound: str = "") -> Verdict:
        verdict = decide(classified, self.policy(), order.actor.agent, bound)
        return _in_background(verdict, order) if order.stays else verdict

    def protections(self, order: Order) -> Protections:
        """Return the protections for a command that starts now in its own sandbox."""
        from mudroom.session.confinement.protections import Confined, protections_of
        from mudroom.vault.store.fork_mark import has_grants

        confinement, grant = self._machine.confinement, order.grant
        command = Confined(
            confinement.mode_contained if grant.level == 2 else confinement.mode,
            order.actor.settings,
            grant,
            self._forks.vault.project,
            confinement.home,
            confinement.variables,
            has_card=order.actor.card is not None,
            is_credited=self._forks.vault.has_credentials,
            host_rules=self._machine.host_answers.rules,
            has_grants=lambda: has_grants(self._forks.vault.path),
        )
        return protections_of(command, lambda: confinement.host)

    # --- asking ---

    def asked(self, order: Order, case: Case, name: str) -> Case:
        """Ask the approver if the verdict requires it, and return the case with the answer. ``name``: the command's
        fork, which need not exist yet."""
        if case.verdict.action != "require_approval":
            return case
        from mudroom.core.approval.approval import CommandAnswer, ask_approver
        from mudroom.core.approval.fingerprint import Uncovered

        try:
            question, kept = self._question_in(order, name)
        except Uncovered as error:
            return case._replace(answer=CommandAnswer(False, by="nobody", reason=str(error)))
        if kept.action != "require_approval":  # by a rule that is bound to this question; ``holds`` checks it again
            return Case(kept, question, CommandAnswer(kept.action != "deny", by=kept.rule), case.relies)
        _rules, approver, remember = self._answers
        with self._asking():
            answer = ask_approver(order.approver or approver, question)
        if answer.keep and question.pattern:
            answer = self._keep(question.rule(answer.allow), answer, remember)
        self._journal(name, question, answer)
        return Case(question.verdict, question, answer, case.relies)

    @contextmanager
    def _asking(self) -> Iterator[None]:
        with self._lock:
            self._open += 1
        try:
            yield
        finally:
            with self._lock:
                self._open -= 1

    def _keep(self, pattern: str, answer: CommandAnswer, remember: Remember | None) -> CommandAnswer:
        """Store the answer as a rule, at once in this session and in the policy for others. If the rule cannot be
        written, the answer holds for this command only."""
        if remember is not None:
            try:
                remember(pattern, answer.allow)
            except MudroomError as error:
                return answer._replace(keep=False, reason=f"the rule could not be written: {error}")
        added = rules_of_pattern(pattern, "allow" if answer.allow else "deny")
        with self._lock:
            rules = self._learned or self.actor.settings.commands
            self._learned = rules._replace(rules=(*rules.rules, *added))
        return answer

    def _question_in(self, order: Order, name: str) -> tuple[CommandQuestion, Verdict]:
        try:
            return self._question(order, self._forks.vault.find(name))
        except ForkGone:
            # Discarded meanwhile: the fork will be made from the present project. If another process has made it again
            # by then, with other files, ``holds`` refuses the command.
            return self._question(order, None)

    def _question(self, order: Order, fork: Fork | None) -> tuple[CommandQuestion, Verdict]:
        """Return the question, and the verdict with the rules that are bound to it. ``fork`` None: the fork will be
        made from the present project."""
        from mudroom.core.approval.approval import CommandQuestion
        from mudroom.core.approval.shown_question import holds_secrets

        agent = order.actor.agent
        from mudroom.core.command.pattern_text import bind

        verdict, classified, _relies = self._judged(order, lambda: _shares(order, fork))
        pattern = exact_pattern(classified, self.policy(), agent) or ""
        if pattern and holds_secrets(order.argv, self._forks.vault.secrets()):
            pattern = ""
        # no name for a new fork: it will have another name when the command is asked about again
        question = CommandQuestion(order.argv, order.cwd, order.fork or "", agent or "", verdict, pattern, "")
        mark, bound, files = self._mark(order, fork, question, classified)
        pattern = bind(pattern, bound) if pattern else ""
        question = question._replace(pattern=pattern, fingerprint=mark, files=files, terms=self._conditions(order)[0])
        return question, self._verdict(order, classified, bound)

    def _mark(
        self, order: Order, fork: Fork | None, question: CommandQuestion, classified: Classification
    ) -> tuple[str, str, tuple[tuple[bytes, str], ...]]:
        """Return a question's fingerprint; the digest to which "always" binds its rule, which is the fingerprint for
        any fork, agent and verdict; and the files that they cover."""
        from mudroom.core.approval.fingerprint import digests, fingerprint

        with self._reader(order, fork) as (read, strays):
            files = digests(classified.parts, question.command, question.cwd, read, strays, self._programs())
        terms, variables = self._conditions(order)
        any_place = question._replace(fork="", agent="", verdict=Verdict("require_approval", (), "", "", ""))
        level = order.grant.level
        mark, bound = (
            fingerprint(
                asked.command, asked.cwd, asked.fork, asked.agent, asked.verdict, level, files, terms, variables
            )
            for asked in (question, any_place)
        )
        return mark, bound, files

    def _programs(self) -> list[bytes]:
        """Return the directories of PATH in which a command may place a program: those in the project, and relative
        ones."""
        project = self._forks.vault.project
        places = self._machine.confinement.variables.get(b"PATH", b"").split(b":")
        return [
            place or b"." for place in places if not place.startswith(b"/") or (place + b"/").startswith(project + b"/")
        ]

    def _conditions(self, order: Order) -> tuple[tuple[str, ...], list[bytes]]:
        """Return a command's terms as shown to people, and the environment variables that decide which code runs, with
        values: those requested by name, and usual ones such as PATH."""
        from mudroom.core.approval.approval import terms_of
        from mudroom.core.command.variable import runs_code

        settings, grant = order.actor.settings, order.grant
        extra = (*settings.environment, *grant.variables)
        env = select_variables(self._machine.confinement.variables, home=b"", cwd=b"", network=False, extra=extra)
        named = {item.partition(b"=")[0] for item in extra} & env.keys()
        deciding = sorted(b"%s=%s" % (name, env[name]) for name in env if name in named or runs_code(name))
        terms = terms_of(
            grant.level,
            settings.network_at(grant.level),
            credentials=[*grant.credentials, *map(show, settings.credentials)],
            variables=[show(name) for name in named],
            shown=[show(path) for path in settings.secrets_show],
            read=[show(path) for path in settings.read],
            sockets=grant.abstract,
            graphics=grant.gpu,
            background=order.stays,
            image=grant.image,
            engine=settings.engine_beside,
        )
        return terms, deciding

    @contextmanager
    def _reader(
        self, order: Order, fork: Fork | None
    ) -> Iterator[tuple[Callable[[bytes, int], bytes | None], Callable[[bytes], bool]]]:
        """Yield two functions. The first reads a project file as a command in this fork sees it, through links, up to a
        limit. The second returns whether a path leads outside the project to a place where commands can write. All
        other outside paths are the host's own, and an agent's commands cannot change them."""
        from mudroom.stage.views.lookup import reader, strays

        settings, forks = order.actor.settings, self._forks
        project = forks.vault.project

        def writable(path: bytes) -> bool:
            return self._machine.confinement.is_writable(path, settings, order.grant)

        mask, _notes = forks.secrets.look(settings)
        if fork is not None and (fork.name in forks.tools or forks.tools.is_live(fork.name)):
            tree = forks.tools.tree(fork.name)
            yield reader(tree, project), strays(tree, project, writable)
            return
        if fork is None:
            with unforked(forks.vault.source, mask.layer) as shown:
                yield reader(shown, project), strays(shown, project, writable)
            return
        with OpenFork(forks.vault.masked(mask), fork) as opened:
            merged = opened.merged()
            yield reader(merged, project), strays(merged, project, writable)

    # --- after the fork is taken ---

    def holds(self, order: Order, case: Case, fork: Fork) -> bool:
        """Return whether the command is still as it was approved, and the policy does not deny it by now. A milder
        verdict is fine: an "always" answer has written a rule that allows it. Without a question, raise ProtectionLost
        if the verdict has become stricter. Hold the fork."""
        question = case.question
        if question is None and not case.relies:
            return True

        verdict, classified, _relies = self._judged(order, lambda: _shares(order, fork))
        if question is None:
            if STRICTNESS[verdict.action] > STRICTNESS[case.verdict.action]:
                raise ProtectionLost
            return True
        from mudroom.core.approval.fingerprint import Uncovered, still_applies

        try:
            mark, _bound, _files = self._mark(order, fork, question, classified)
        except Uncovered:
            return False
        return verdict.action != "deny" and still_applies(question, mark)

    def _journal(self, fork: str, question: CommandQuestion, answer: CommandAnswer) -> None:
        data = {
            "command": [text(word) for word in question.command],
            "cwd": text(question.cwd),
            "agent": question.agent,
            "verdict": verdict_to_json(question.verdict),
            "pattern": question.pattern,
            "fingerprint": question.fingerprint,
            **answer._asdict(),
        }
        self._forks.journal("approval", fork, data)


def _shares(order: Order, fork: Fork | None) -> bool:
    return order.stays or (fork is not None and is_shared(fork))


@contextmanager
def unforked(project: bytes, masking: bytes) -> Iterator[Source]:
    """Yield the project as a new fork would show it. ``masking``: the mask layer; empty: none."""
    with OpenSource(project) as base:
        if not masking:
            yield base
            return
        with Union((masking,), base) as masked:
            yield masked


def _in_background(verdict: Verdict, order: Order) -> Verdict:
    """Return the stricter of the command's verdict and the policy's rule for background commands."""
    action = order.actor.settings.background
    if ACTIONS.index(action) <= ACTIONS.index(verdict.action):
        return verdict
    return verdict._replace(action=action, rule="background", reason="it would go on in the background")
