"""Whether a command may run at all: classify, decide, ask. Nothing is run here.

Rules of this file:
1. Only what an agent runs is judged; the user's own commands are the user's decision.
2. Nobody to ask is a refusal. So is an approver that fails, and an answer to something that has changed since.
3. Nothing is locked while somebody thinks: what was asked about is compared with what is there once the fork is ours.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from mudroom.core.command.verdict import Verdict
from mudroom.core.tree import stack
from mudroom.core.tree.path import show
from mudroom.errors import MudroomError, UsageError
from mudroom.granting import Grant, granted
from mudroom.starting import Starting
from mudroom.vault.forks import stacking
from mudroom.vault.forks.open_fork import OpenFork
from mudroom.vault.store.fork import Fork

if TYPE_CHECKING:
    from mudroom.core.agent.card import AgentCard
    from mudroom.core.approval.approval import CommandAnswer, CommandApprover, CommandQuestion, Remember
    from mudroom.core.command.policy import CommandPolicy
    from mudroom.core.command.verdict import Classification

_STEM = 40
"""Letters of a checkpoint's name that come from the command."""
_READ = 4096
"""Bytes of each word that are looked at for that."""
_SHELLS = ("sh", "bash", "dash", "zsh", "ksh")


class Case(NamedTuple):
    """A command, what was decided about it, and what somebody said who was asked."""

    verdict: Verdict
    question: CommandQuestion | None = None
    answer: CommandAnswer | None = None

    @property
    def allowed(self) -> bool:
        if self.verdict.action == "require_approval":
            return self.answer is not None and self.answer.allow
        return self.verdict.action != "deny"

    @property
    def final(self) -> Verdict:
        """With what came of the question."""
        if self.answer is None:
            return self.verdict
        said = f"{'approved' if self.answer.allow else 'refused'} by {self.answer.by or 'the approver'}"
        more = f" ({self.answer.reason})" if self.answer.reason else ""
        return self.verdict._replace(reason=f"{self.verdict.reason}; {said}{more}")

    def changed(self) -> Case:
        """The answer was about something else."""
        assert self.answer is not None
        return self._replace(answer=self.answer._replace(allow=False, keep=False, reason=CHANGED))


CHANGED = "what it would run has changed since it was approved: run it again to be asked about that"
OWN = Case(Verdict())
"""A command of the user's own."""


def checkpoint_stem(argv: Sequence[bytes], known: Collection[str] = ()) -> str:
    """What a checkpoint before this command is called, but for its number: ``before-rm-rf-build``. Names are shown in
    more places than commands are, so no secret gets into one; ``known``: values that are secrets."""
    from mudroom.core.text.redaction import redact, redact_words

    words = [show(word[:_READ]) for word in argv]
    if len(words) > 2 and words[0].rpartition("/")[2] in _SHELLS and words[1] in ("-c", "-lc"):
        words = redact(words[2].strip().partition("\\n")[0], known).split(" ")
    else:
        words = redact_words(words, known)
    line = " ".join((words[0].rpartition("/")[2], *words[1:]))
    stem = re.sub(r"[^A-Za-z0-9_.]+", "-", line).strip("-.")[:_STEM].rstrip("-.")
    return f"before-{stem}" if stem else "before"


class Deciding(Starting):
    """``agent``: whose commands these are; None: the user's own."""

    agent: str | None
    card: AgentCard | None
    level: int | None
    _home: bytes
    _new_id: Callable[[], str]
    _policy: Callable[[], CommandPolicy]
    _ask_about: CommandApprover | None
    _remember_command: Remember | None
    is_asking = False
    """Whether somebody is being asked about a command, who hears of signals by itself."""

    def granted(self) -> Grant:
        """At which level the next command runs, and which credentials are open to it. Raises Refused if the policy
        does, Unsupported if the machine cannot."""
        return granted(self.settings, self.card, self.level, self._home, self.confinement.variables)

    def _place(self, name: str | None) -> tuple[Fork, bool]:
        """The fork for a command, and whether it was made for it."""
        if name is None:
            return self.new_fork("run-" + self._new_id(), named=False), True
        try:
            return self.vault.fork(name), False
        except UsageError:
            return self.new_fork(name), True

    def _take_back(self, fork: Fork) -> None:
        """A fork that was made for a command which has not run."""
        if fork.state.named:  # its beginning is in the journal
            self.discard(fork.name)
        else:
            self._forget(fork.name)
            self.vault.discard(fork)

    def _take_back_unused(self, fork: Fork) -> None:
        """The same after an error, whichever: unless something has begun to run in it."""
        record = fork.record
        is_unused = record is None or not (record.command or record.changeset.changes)
        if is_unused and fork.interrupted is None and not fork.state.layers:
            self._take_back(fork)

    def ask_about(self, approver: CommandApprover | None, remember: Remember | None = None) -> None:
        """From here on this approver is asked; None: what has to be approved is refused. ``remember`` keeps a rule."""
        self._ask_about, self._remember_command = approver, remember

    def decide_on(self, argv: Sequence[bytes], cwd: bytes | None = None) -> Verdict:
        """What the policy says about a command of this session's agent. Nothing is run, and nobody is asked."""
        return self._judged(argv, cwd or self.project)[0]

    def _judged(self, argv: Sequence[bytes], cwd: bytes) -> tuple[Verdict, Classification]:
        from mudroom.core.command.policy import decide
        from mudroom.core.command.program.classification import classify_words

        classified = classify_words(argv, project=self.project, cwd=cwd)
        verdict = decide(classified, self._policy(), self.agent)
        return (self._in_background(verdict) if self._said.stays else verdict), classified

    def _in_background(self, verdict: Verdict) -> Verdict:
        """The stricter of what is said of a command and of all that are to stay."""
        from mudroom.core.command.verdict import ACTIONS

        action = self.settings.background
        if ACTIONS.index(action) <= ACTIONS.index(verdict.action):
            return verdict
        return verdict._replace(action=action, rule="background", reason="it would go on in the background")

    @contextmanager
    def _judged_in_background(self) -> Iterator[None]:
        """What this thread judges meanwhile is to stay in the background."""
        self._said.stays = True
        try:
            yield
        finally:
            self._said.stays = False

    def _case(self, argv: Sequence[bytes], cwd: bytes) -> Case:
        """Of a command that is about to run."""
        return OWN if self.agent is None else Case(self._judged(argv, cwd)[0])

    def _told(self, case: Case, argv: Sequence[bytes], cwd: bytes) -> Case:
        """For the result: of a command of the user's own, which nobody has judged, what it is."""
        if case is not OWN:
            return case
        from mudroom.core.command.program.classification import classify_words

        return Case(case.verdict._replace(classes=classify_words(argv, project=self.project, cwd=cwd).classes))

    def _asked(self, fork: Fork, name: str, argv: tuple[bytes, ...], cwd: bytes) -> Case:
        """The same, after whoever may answer has been asked. ``name``: of the fork; empty for one that was made for
        this command: it will have another name when it is asked about again."""
        from mudroom.core.approval.approval import CommandAnswer, asked
        from mudroom.core.approval.fingerprint import Uncovered

        try:
            question = self._question(fork, name, argv, cwd)
        except Uncovered as error:
            verdict = self._judged(argv, cwd)[0]
            return Case(verdict, None, CommandAnswer(False, by="nobody", reason=str(error)))
        self.is_asking = True
        try:
            answer = asked(self._ask_about, question)
        finally:
            self.is_asking = False
        if answer.keep and question.pattern:
            answer = self._keep(question.pattern, answer)
        self._journal_approval(fork.name, question, answer)
        return Case(question.verdict, question, answer)

    def _keep(self, pattern: str, answer: CommandAnswer) -> CommandAnswer:
        """The rule holds for this session at once, and where it is kept for all others; where it cannot be kept the
        answer holds for this command."""
        from mudroom.core.command.policy import rules_of_pattern

        if self._remember_command is not None:
            try:
                self._remember_command(pattern, answer.allow)
            except MudroomError as error:
                return answer._replace(keep=False, reason=f"the rule could not be written: {error}")
        commands = self.settings.commands
        added = rules_of_pattern(pattern, "allow" if answer.allow else "deny")
        self.settings = self.settings._replace(commands=commands._replace(rules=(*commands.rules, *added)))
        return answer

    def _question(self, fork: Fork, name: str, argv: tuple[bytes, ...], cwd: bytes) -> CommandQuestion:
        from mudroom.core.approval.approval import CommandQuestion
        from mudroom.core.command.policy import exact_pattern

        verdict, classified = self._judged(argv, cwd)
        pattern = exact_pattern(classified, self._policy(), self.agent) or ""
        asked = CommandQuestion(argv, cwd, name, self.agent or "", verdict, pattern, "")
        mark, files = self._mark(fork, asked, classified)
        return asked._replace(fingerprint=mark, files=files, terms=self._conditions()[0])

    def _mark(
        self, fork: Fork, asked: CommandQuestion, classified: Classification
    ) -> tuple[str, tuple[tuple[bytes, str], ...]]:
        """The fingerprint of a question, and the files that it covers."""
        from mudroom.core.approval.fingerprint import digests, fingerprint

        with self._reader(fork) as (read, strays):
            files = digests(classified.parts, asked.command, asked.cwd, read, strays)
        level, (terms, variables) = self._grant.level, self._conditions()
        mark = fingerprint(
            asked.command, asked.cwd, asked.fork, asked.agent, asked.verdict, level, files, terms, variables
        )
        return mark, files

    def _conditions(self) -> tuple[tuple[str, ...], list[bytes]]:
        """The terms on which a command would run just now, as people are shown them, and the variables that decide
        what is run, with their values: those that were asked for, and of the usual ones PATH and its like."""
        from mudroom.core.approval.approval import terms_of
        from mudroom.core.command.variable import runs_code
        from mudroom.core.confinement.environment import select

        settings, grant = self.settings, self._grant
        extra = (*settings.environment, *grant.variables)
        env = select(self.confinement.variables, home=b"", cwd=b"", network=False, extra=extra)
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
            background=self._said.stays,
            image=grant.image,
        )
        return terms, deciding

    @contextmanager
    def _reader(self, fork: Fork) -> Iterator[tuple[Callable[[bytes, int], bytes | None], Callable[[bytes], bool]]]:
        """Reads files of the project as a command in this fork would find them, through links, up to a limit, and says
        which paths lead to where commands write outside of it. All else there is the host's own, which no command of
        an agent can change."""
        from mudroom.stage.views.lookup import reader, strays

        def writable(path: bytes) -> bool:
            return self.confinement.is_writable(path, self.settings, self._grant)

        self.look_for_secrets()
        if fork.name in self._desk or self._desk.is_live(fork.name):
            tree = self._desk.tree(fork.name)
            yield reader(tree, self.project), strays(tree, self.project, writable)
            return
        with OpenFork(self.vault, fork) as opened:
            merged = opened.merged()
            yield reader(merged, self.project), strays(merged, self.project, writable)

    def _is_unchanged(self, case: Case, fork: Fork) -> bool:
        """Once the fork is ours: whether what was approved is what is going to run, and nothing stricter is said about
        it by now. (Something milder is: the rule that an answer of "always" has written.)"""
        asked = case.question
        if asked is None:
            return True
        from mudroom.core.approval.fingerprint import Uncovered, holds

        verdict, classified = self._judged(asked.command, asked.cwd)
        try:
            mark, _files = self._mark(fork, asked, classified)
        except Uncovered:
            return False
        return verdict.action != "deny" and holds(asked, mark)

    def _stem(self, argv: Sequence[bytes]) -> str:
        return checkpoint_stem(argv, frozenset(self.vault.secrets()))

    def _checkpoint_before(self, fork: Fork, argv: Sequence[bytes]) -> str:
        """Freeze what the fork holds, whose lock is ours; its name."""
        from mudroom.core.retention import surplus_checkpoints

        name = stack.free_name(fork.state, self._stem(argv))
        point = stacking.checkpoint(self.vault, fork, name, self._clock(), automatic=True)
        for old in surplus_checkpoints(fork.state, self.settings.keep_applies):
            fork.save(stack.without_checkpoint(fork.state, old))
        self.vault.journal.append("checkpoint", fork.name, {"checkpoint": name, "automatic": True}, time=self._clock())
        return point.name

    def _journal_approval(self, fork: str, question: CommandQuestion, answer: CommandAnswer) -> None:
        from mudroom.core.result import text, verdict_to_json

        data = {
            "command": [text(word) for word in question.command],
            "cwd": text(question.cwd),
            "agent": question.agent,
            "verdict": verdict_to_json(question.verdict),
            "pattern": question.pattern,
            "fingerprint": question.fingerprint,
            **answer._asdict(),
        }
        self.vault.journal.append("approval", fork, data, time=self._clock())
