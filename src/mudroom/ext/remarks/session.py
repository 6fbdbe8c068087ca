"""A reviewer's remarks about one fork: written, listed with their lines, sent in rounds.

Before the remarks of a round are handed over, the fork gets the checkpoint ``round-N``. The second look is at what
changed since: ``mudroom diff FORK@round-N FORK``.
"""

from __future__ import annotations

import os
import time
from binascii import b2a_base64
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from msgspec import structs

from mudroom.core.text.linediff import is_binary, split_lines
from mudroom.core.tree.path import show, show_path
from mudroom.core.tree.review_tags import TEXT_LIMIT
from mudroom.errors import ForkMoved, MudroomError, Refused, UsageError
from mudroom.ext.remarks.core.carry import carry
from mudroom.ext.remarks.core.listing import ListedRemarks, first_line, remark_lines
from mudroom.ext.remarks.core.prompt import LARGEST, LocatedRemark, prompt_of
from mudroom.ext.remarks.core.value import RemarkAnswer, ReviewRemark, SentRemark, SentState, Side, checked
from mudroom.ext.remarks.store import RemarkStore, StoredRemarks, digest_of
from mudroom.ext.review.roots import ReviewRoot, root_holding, root_of, roots_of
from mudroom.ext.review.rows import open_sides
from mudroom.session import Session
from mudroom.stage.source import read_all
from mudroom.vault.forks.open_fork import OpenFork

ROUND = "round-"


class Handing(NamedTuple):
    """Remarks on the way to an agent."""

    round: int
    point: str
    """The checkpoint made before; empty if a command runs in the fork."""
    remarks: tuple[LocatedRemark, ...]
    prompt: str
    settle: Callable[[SentState | None], None]
    """Say what has become of them; None: the agent was not started."""


class Remarks:
    """A fork's remarks. Owner: the caller, in one thread; the files on disk have a lock of their own."""

    def __init__(self, session: Session, fork: str) -> None:
        """Raise UsageError if the fork does not exist."""
        self._session = session
        self.fork = session.vault.fork(fork).name
        self._store = RemarkStore(session.vault.fork(fork))

    # --- reading ---

    def listed(self) -> ListedRemarks:
        """Return the remarks with the place of their lines in the fork as it is."""
        stored = self._store.read()
        return self._listed(stored, is_sending=self._store.is_sending())

    def _listed(self, stored: StoredRemarks, *, is_sending: bool) -> ListedRemarks:
        texts = self._texts({(remark.place, remark.side) for remark in stored.remarks.values() if remark.first})
        located = tuple(self._located(name, remark, texts) for name, remark in stored.remarks.items())
        sent = [remark.sent for remark in stored.remarks.values() if remark.sent is not None]
        last = max((one.round for one in sent), default=0)
        point = f"{ROUND}{last}"
        state = self._session.vault.fork(self.fork).state
        lost = ("unknown",) if is_sending else ("unknown", "sending")
        cut_off = [
            name
            for name, remark in stored.remarks.items()
            if remark.sent is not None and remark.sent.state in lost and not remark.settled
        ]
        is_there = last > 0 and state.checkpoint(point) is not None
        return ListedRemarks(located, stored.damaged, last, point if is_there else "", tuple(cut_off))

    def _located(
        self, name: str, remark: ReviewRemark, texts: Mapping[tuple[bytes, Side], bytes | None]
    ) -> LocatedRemark:
        if not remark.first:
            return LocatedRemark(name, remark)
        now, before = texts[remark.place, remark.side], self._store.text(remark.version)
        lines = split_lines(before if before is not None else now or b"")
        was = tuple(lines[remark.first - 1 : remark.until])
        if now is None or (before is None and remark.version) or remark.until > len(lines):
            is_gone = now is None and before is not None and not self._hides(remark.place)
            return LocatedRemark(name, remark, "outdated" if is_gone else "unknown", remark.first, remark.until, was)
        there = split_lines(now)
        found = carry(lines, there, remark.first, remark.until)
        shown = was if found.state == "outdated" else tuple(there[found.first - 1 : found.last])
        return LocatedRemark(name, remark, found.state, found.first, found.last, shown)

    def _roots(self, paths: Iterable[bytes]) -> list[ReviewRoot]:
        """Return the projects in which these paths may lie, the fork's own first."""
        own = [ReviewRoot(self._session, self.fork, b"")]
        try:
            return roots_of(self._session, self.fork) if any(path.startswith(b"/") for path in paths) else own
        except MudroomError:
            return own  # a part is missing: its texts cannot be read

    def _hides(self, path: bytes) -> bool:
        root = root_holding(self._roots((path,)), path)
        return root is not None and root.session.forks.secrets.hides(root.inner(path))

    def _texts(self, wanted: set[tuple[bytes, Side]]) -> dict[tuple[bytes, Side], bytes | None]:
        """Return texts of the fork and its originals; None for what is no readable text. A secret is not read."""
        found: dict[tuple[bytes, Side], bytes | None] = dict.fromkeys(wanted)
        roots = self._roots(path for path, _side in wanted)
        for root in roots:
            mine = {(root.inner(path), side) for path, side in wanted if root_holding(roots, path) == root}
            found |= {(root.outer(path), side): text for (path, side), text in _texts_in(root, mine).items()}
        return found

    # --- writing ---

    def add(
        self,
        path: bytes,
        first: int,
        last: int,
        text: str,
        *,
        side: Side = "new",
        suggestion: str | None = None,
    ) -> str:
        """Keep a remark, and return its name. ``path`` empty: about the whole; ``first`` 0: about the file. Raise
        UsageError if the fork has no such lines."""
        name = path.decode("utf-8", "replace")
        encoded = _base64(path) if name.encode() != path else ""
        remark = checked(ReviewRemark(text, name, encoded, first, last, side, suggestion, time=_now()))
        if path:
            self._require_file(path)
        with self._store.locked():
            if first:
                remark = self._anchored(remark, self._texts({(path, side)})[path, side])
            name = self._store.free_name()
            self._store.save(name, remark)
        return name

    def answer(self, name: str, text: str, *, is_agent: bool = False) -> None:
        """Add to a thread. A reviewer's answer to lines that have changed is about the lines as they are now."""
        with self._changing(name) as (remark, save):
            if is_agent and remark.sent is None:
                raise self._unknown(name)
            answers = (*remark.answers, RemarkAnswer(text, "agent" if is_agent else "reviewer", _now()))
            changed = structs.replace(remark, answers=answers, settled=remark.settled and is_agent)
            located = self._located_now(name, remark)
            if not is_agent and located.where == "answered":
                changed = structs.replace(changed, first=located.first, last=located.last, suggestion=None)
                texts = self._texts({(remark.place, remark.side)})
                changed = self._anchored(changed, texts[remark.place, remark.side])
            save(checked(changed))

    def settle(self, name: str, *, is_settled: bool = True) -> None:
        with self._changing(name) as (remark, save):
            save(structs.replace(remark, settled=is_settled))

    def remove(self, name: str) -> None:
        with self._store.locked() as stored:
            self._require(stored, name)
            self._store.remove(name)
            self._store.drop_texts({remark.version for other, remark in stored.remarks.items() if other != name})

    def take(self, name: str) -> None:
        """Replace a remark's lines by its suggestion, as a change of the fork, and settle the remark. Raise UsageError
        if the lines are not there as they were, or another writer has changed the file meanwhile."""
        with self._changing(name) as (remark, save):
            if remark.suggestion is None:
                raise UsageError(f"{name} suggests no lines", f"mudroom comment {self.fork} lists the remarks")
            if not self._session.forks.is_at_rest(self.fork):
                raise UsageError(f"a command is running in {self.fork}", "take the suggestion when it has ended")
            root, shown = root_of(self._session, self.fork, remark.place), show_path(remark.place)
            path, forks = root.inner(remark.place), root.session.forks
            if forks.secrets.hides(path):
                raise UsageError(f"{shown} is a secret, which is not read", "edit it in the project")
            files = forks.files(root.fork)
            try:
                # fails if another writer was between read and write
                with files.changing() as tree, tree.create(path) as draft:
                    before = tree.read(path)
                    located = self._located(name, remark, {(remark.place, "new"): _text_only(before)})
                    if located.where != "here":
                        raise UsageError(
                            f"the lines of {name} are not as they were: {located.label}",
                            f"mudroom comment {self.fork} shows what became of them",
                        )
                    lines = split_lines(before)
                    lines[located.first - 1 : located.last] = _suggested(remark.suggestion, located.lines)
                    after = b"".join(lines)
                    draft.write(after)
                forks.flush(root.fork)
                is_ours = files.read(path) == after
            except OSError as error:
                raise UsageError(
                    f"{shown}: {error.strerror}", f"mudroom comment {self.fork} lists the remarks"
                ) from None
            if not is_ours:
                raise UsageError(
                    f"{shown}: another writer has changed it in the fork meanwhile, and that version stays",
                    "look at it again",
                )
            save(structs.replace(remark, settled=True))

    # --- sending ---

    @contextmanager
    def handing(
        self, state: SentState, *, again: bool = False, most: int = LARGEST, expected: str | None = None
    ) -> Iterator[Handing]:
        """Yield the remarks that were not sent yet, marked durably as sent in a new round in this state. After the
        block they are ``unknown`` unless ``Handing.settle`` was called. ``again``: those, too, of which it is not known
        whether the agent has read them. ``most``: bytes of the prompt. ``expected``: its id. Raise UsageError if there
        is nothing to send."""
        with self._store.sending():
            listed = self._listed(self._store.read(), is_sending=False)
            prompt = self.prompt(listed, again=again, most=most)
            if expected not in (None, prompt_id(prompt)):
                raise Refused(
                    "the remarks are not those that were checked", f"mudroom send {self.fork} --print shows them"
                )
            point = self._checkpoint(listed.round)
            number = int(point.removeprefix(ROUND)) if point else listed.round + 1
            with self._store.locked() as stored:
                chosen = self._chosen(self._listed(stored, is_sending=False), again=again)
                if prompt_of(chosen) != prompt:
                    raise UsageError("the remarks or their files have changed just now", f"mudroom send {self.fork}")
                for one in chosen:
                    sent = SentRemark(number, one.remark.texts, state)
                    self._store.save(one.name, structs.replace(one.remark, sent=sent))
            settled: list[SentState | None] = []

            def settle(outcome: SentState | None) -> None:
                settled.append(outcome)
                self._settle_round(chosen, number, outcome)

            try:
                yield Handing(number, point, tuple(chosen), prompt, settle)
            finally:
                if not settled:
                    self._settle_round(chosen, number, "unknown")

    def new_since(self, listed: ListedRemarks) -> frozenset[bytes] | None:
        """Return the paths that have changed since the last round; None if its checkpoint is not there."""
        if not listed.point:
            return None
        found: set[bytes] = set()
        for root in roots_of(self._session, self.fork):
            with root.session.forks.compare(f"{root.fork}@{listed.point}", root.fork) as compared:
                found.update(root.outer(change.path) for change in compared.changeset.changes)
        return frozenset(found)

    def prompt(self, listed: ListedRemarks | None = None, *, again: bool = False, most: int = LARGEST) -> str:
        """Return the prompt of what is not sent yet. Raise UsageError if that is nothing, or too much."""
        listed = listed or self.listed()
        if listed.cut_off and not again:
            raise UsageError(
                f"it is not known whether the agent has read {', '.join(listed.cut_off)}: the last sending was cut off",
                f"mudroom send {self.fork} --again sends them, mudroom comment {self.fork} --settle NAME does not",
            )
        chosen = self._chosen(listed, again=again)
        if not chosen:
            hint = f"mudroom comment {self.fork} PATH:LINE TEXT writes one"
            raise UsageError(f"{self.fork} has no remarks that were not sent", hint)
        prompt = prompt_of(chosen)
        if len(prompt.encode()) > most:
            raise UsageError(
                f"the remarks are {len(prompt.encode()):,} bytes together, and {most:,} can be sent",
                f"mudroom comment {self.fork} --settle NAME leaves one out",
            )
        return prompt

    def _chosen(self, listed: ListedRemarks, *, again: bool) -> list[LocatedRemark]:
        lost = [one for one in listed.remarks if again and one.name in listed.cut_off]
        return [*listed.unsent, *lost]

    def _checkpoint(self, last: int) -> str:
        """Freeze the fork's files, and return the checkpoint's name; empty while a command runs in the fork."""
        forks = self._session.forks
        if not forks.is_at_rest(self.fork):
            return ""
        state, number = self._session.vault.fork(self.fork).state, last + 1
        while state.checkpoint(f"{ROUND}{number}") is not None:
            number += 1
        return forks.checkpoint(self.fork, f"{ROUND}{number}").name

    def _settle_round(self, chosen: Sequence[LocatedRemark], number: int, outcome: SentState | None) -> None:
        with self._store.locked() as stored:
            for one in chosen:
                remark = stored.remarks.get(one.name)
                if remark is None or remark.sent is None or remark.sent.round != number:
                    continue  # removed, or sent again meanwhile
                sent = one.remark.sent if outcome is None else structs.replace(remark.sent, state=outcome)
                self._store.save(one.name, structs.replace(remark, sent=sent))

    def fetched(self, *, again: bool = False) -> str:
        """Return the prompt of the remarks that wait for an agent's own look, and mark them as sent; empty if none
        wait. ``again``: those that were sent before, too."""
        states: tuple[SentState, ...] = ("waiting", "sent") if again else ("waiting",)
        if not any(_is_in(remark, states) for remark in self._store.read().remarks.values()):
            return ""
        with self._store.locked() as stored:
            listed = self._listed(stored, is_sending=True)
            chosen = [_as_sent(one) for one in listed.remarks if _is_in(one.remark, states)]
            for one in chosen:
                assert one.remark.sent is not None
                sent = structs.replace(one.remark.sent, state="sent")
                if one.remark.sent.state == "waiting":
                    self._store.save(one.name, structs.replace(stored.remarks[one.name], sent=sent))
        return prompt_of(chosen) if chosen else ""

    # --- internals ---

    @contextmanager
    def _changing(self, name: str) -> Iterator[tuple[ReviewRemark, Callable[[ReviewRemark], None]]]:
        with self._store.locked() as stored:
            yield self._require(stored, name), lambda remark: self._store.save(name, remark)

    def _require(self, stored: StoredRemarks, name: str) -> ReviewRemark:
        remark = stored.remarks.get(name)
        if remark is None:
            raise self._unknown(name)
        return remark

    def _unknown(self, name: str) -> UsageError:
        return UsageError(
            f"{self.fork} has no remark {show(os.fsencode(name))}", f"mudroom comment {self.fork} lists them"
        )

    def _located_now(self, name: str, remark: ReviewRemark) -> LocatedRemark:
        texts = self._texts({(remark.place, remark.side)} if remark.first else set())
        return self._located(name, remark, texts)

    def _require_file(self, path: bytes) -> None:
        """Raise UsageError unless the fork has the file, or has removed it."""
        root = root_of(self._session, self.fork, path)
        vault, inner = root.session.vault, root.inner(path)
        with OpenFork(vault, vault.fork(root.fork)) as opened:
            entry = opened.merged().look(inner)
        if entry is not None and entry.kind == "directory":
            raise UsageError(f"{show_path(path)} is a directory", "name a file in it")
        record = root.session.forks.known_record(root.fork)
        changes = record.changeset.changes if record is not None else ()
        if entry is None and not any(change.path == inner for change in changes):
            raise UsageError(
                f"{self.fork} has no file {show_path(path)}", f"mudroom diff {self.fork} --stat lists the changed ones"
            )

    def _anchored(self, remark: ReviewRemark, text: bytes | None) -> ReviewRemark:
        """Return the remark with the text that its lines are counted in. Hold the lock."""
        shown = show_path(remark.place)
        if text is None:
            whose = "the original of " if remark.side == "old" else ""
            raise UsageError(
                f"{whose}{shown} has no lines to show: it is a secret, large, or no text",
                f"mudroom comment {self.fork} {shown} TEXT is about the file",
            )
        count = len(split_lines(text))
        if remark.until > count:
            raise UsageError(f"{shown} has {count:,} lines, and none {remark.until:,}", f"mudroom diff {self.fork}")
        return structs.replace(remark, version=self._store.keep_text(text))


def _texts_in(root: ReviewRoot, wanted: set[tuple[bytes, Side]]) -> dict[tuple[bytes, Side], bytes | None]:
    """Return texts of one project, as ``Remarks._texts`` does."""
    session = root.session
    session.forks.secrets.look()
    found: dict[tuple[bytes, Side], bytes | None] = dict.fromkeys(wanted)
    open_ones = [(path, side) for path, side in wanted if not session.forks.secrets.hides(path)]
    with OpenFork(session.vault, session.vault.fork(root.fork)) as opened:
        merged = opened.merged()
        for path, side in open_ones:
            entry = merged.look(path)
            if side == "new" and entry is not None and entry.kind == "file":
                with suppress(OSError):  # it was replaced since
                    found[path, side] = _text_only(read_all(merged, path, TEXT_LIMIT))
    olds = [path for path, side in open_ones if side == "old"]
    if olds:
        with open_sides(session, root.fork) as sides:
            for path in olds:
                pair = sides.find(path)
                with suppress(OSError, ForkMoved):
                    old = sides.read(pair, "old", TEXT_LIMIT) if pair is not None else None
                    found[path, "old"] = _text_only(old)
    return found


def notes_of(session: Session, fork: str, path: bytes) -> list[str]:
    """Return a line for each open remark about a file."""
    listed = Remarks(session, fork).listed()
    mine = (one for one in listed.remarks if one.remark.place == path and not one.remark.settled)
    return [next(remark_lines(one, listed.cut_off)) + ": " + first_line(one) for one in mine]


def sent_paths(session: Session, fork: str) -> frozenset[bytes]:
    """Return the paths with open remarks that were sent to the agent."""
    remarks = RemarkStore(session.vault.fork(fork)).read().remarks.values()
    return frozenset(
        remark.place for remark in remarks if remark.path and remark.sent is not None and not remark.settled
    )


def prompt_id(prompt: str) -> str:
    """Return the text by which a prompt that was looked at is named."""
    return digest_of(prompt.encode())[:16]


def _is_in(remark: ReviewRemark, states: Sequence[SentState]) -> bool:
    return not remark.settled and remark.sent is not None and remark.sent.state in states


def _as_sent(one: LocatedRemark) -> LocatedRemark:
    """Return a remark without the texts that the reviewer has not sent yet."""
    assert one.remark.sent is not None
    answers = one.remark.answers
    told = [answer for at, answer in enumerate(answers) if at < one.remark.sent.told - 1 or answer.by == "agent"]
    return one._replace(remark=structs.replace(one.remark, answers=tuple(told)))


def _suggested(suggestion: str, instead: Sequence[bytes]) -> list[bytes]:
    """Return a suggestion's lines, with the line endings of those that they replace."""
    if not suggestion:
        return []
    is_crlf = all(line.endswith(b"\r\n") for line in instead)
    ends = instead[-1].endswith(b"\n")
    content = suggestion.replace("\r\n", "\n").removesuffix("\n").encode()
    content = content.replace(b"\n", b"\r\n") if is_crlf else content
    return [content + (b"\r\n" if is_crlf else b"\n") if ends else content]


def _text_only(content: bytes | None) -> bytes | None:
    return None if content is None or is_binary(content) else content


def _base64(path: bytes) -> str:
    return b2a_base64(path, newline=False).decode()


def _now() -> int:
    return time.time_ns()
