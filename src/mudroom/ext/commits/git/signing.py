"""Signatures of the user's own git: one commit of an apply, and a fork's commits when they land (``git.sign``).

1. No key is in a sandbox, so a fork's commits are unsigned. A signature is part of a commit: a signed copy has another
   id, and so have copies of all commits after it. A copy differs in its ``gpgsig`` and ``parent`` lines alone.
2. Signed are new commits whose committer has the user's mail address. Those of others, and those that the fork has
   fetched, stay; after a signed commit they get its id as their parent. A signature that would break refuses.
3. A commit that landed signed before is found in the project's repository by its text, so a repeat is harmless.
4. Texts to sign are mudroom's own: header lines were checked (``check.py``). The program is from the user's settings.

Stashes, notes and signed tags keep the fork's commits: git itself rewrites none of them either.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Collection, Iterable, Mapping
from itertools import islice

from mudroom.core.git.blob import object_id
from mudroom.core.system.search_path import find_program
from mudroom.core.text.regex import regex
from mudroom.core.tree.path import show
from mudroom.errors import UsageError
from mudroom.ext.commits.git.history import COMMIT_LIMIT, History
from mudroom.ext.commits.git.repository import Repository
from mudroom.ext.commits.git.user_settings import UserFiles, UserSettings
from mudroom.typing import NamedTuple

_PATIENCE = 120
"""Seconds in which a person may be asked for a passphrase."""
_PROGRAMS = {b"openpgp": b"gpg", b"x509": b"gpgsm", b"ssh": b"ssh-keygen"}
USE_GIT = "apply without a commit, then git commit"
_AS_GIT = "nothing has landed: repeat it when it signs, or set git.sign: as-git in the policy"
_SIGNATURE = regex(rb"\ngpgsig(?:-sha256)? [^\n]*(?:\n [^\n]*)*")
_PARENT = regex(rb"(?<=\nparent )[0-9a-f]+")
_COMMITTER = regex(rb"\ncommitter [^<\n]*<([^>\n]*)> ")


class Signer(NamedTuple):
    """Signs a commit as git would, with the user's own program and key: git-config(1), gpg.* and user.signingKey.

    The program is taken from the user's own settings files alone. A command may have written those of the repository.
    ``argv`` reads a text, and writes its signature.
    """

    argv: tuple[bytes, ...]
    header: bytes
    mail: bytes
    """The user's mail address."""
    variables: Mapping[bytes, bytes] | None
    literal: bytes
    """A public ssh key instead of its file, or b"": the ssh agent has the private key."""
    hint: str

    def signed(self, text: bytes) -> bytes:
        """Return a commit with its signature. Raise UsageError if the program makes none."""
        with tempfile.NamedTemporaryFile() as key:
            key.write(self.literal)
            key.flush()
            argv = (*self.argv, b"-U", b"-f", os.fsencode(key.name)) if self.literal else self.argv
            try:
                done = subprocess.run(
                    argv, input=text, capture_output=True, check=False, timeout=_PATIENCE, env=self.variables
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                raise UsageError(f"{show(argv[0])} does not sign: {error}", self.hint) from error
        if done.returncode or not done.stdout.startswith(b"-----BEGIN "):
            lines = [line for line in done.stderr.strip().splitlines() if not line.startswith(b"[GNUPG:]")]
            why = show((lines or [b"no signature"])[-1])
            raise UsageError(f"{show(argv[0])} does not sign: {why}", self.hint)
        head, _blank, message = text.partition(b"\n\n")
        signature = done.stdout.rstrip(b"\n").replace(b"\n", b"\n ")
        return b"%s\n%s %s\n\n%s" % (head, self.header, signature, message)


def signer(
    user: UserFiles, live: Repository, hints: tuple[str, str] = (USE_GIT, "git commit -S"), *, always: bool
) -> Signer | None:
    """Return the signer of commits, or None if commit.gpgSign is not set and not ``always``. Raise UsageError without
    its program or key. ``hints``: for the user if it cannot sign, and if it fails later."""
    settings = UserSettings(user, live.place)
    if not always and not settings.flag(b"commit", b"gpgsign", default=False):
        return None
    why = "git.sign is on-landing, and" if always else "commit.gpgSign is set, and"
    kind = settings.value(b"gpg", b"format") or b"openpgp"
    if kind not in _PROGRAMS:
        raise UsageError(f"gpg.format is {show(kind)}, with which mudroom cannot sign", hints[0])
    own = settings.own_value(b"gpg", b"program", kind)
    if own is None and kind == b"openpgp":
        own = settings.own_value(b"gpg", b"program")
    program = find_program(os.fsdecode(settings.expanded(own or _PROGRAMS[kind])), user.variables or {})
    if program is None:
        raise UsageError(f"{why} {show(own or _PROGRAMS[kind])} is not installed", hints[0])
    key, identity = settings.value(b"user", b"signingkey"), settings.identity()
    words: tuple[bytes, ...] = (b"--status-fd=2", b"-bsau", key or identity)
    literal = b""
    if kind == b"ssh":
        words, path_of_key = (b"-Y", b"sign", b"-n", b"git"), settings.expanded(key or b"")
        if path_of_key.startswith((b"key::", b"ssh-")):
            literal = path_of_key.removeprefix(b"key::")
        elif os.path.isfile(path_of_key):
            words = (*words, b"-f", path_of_key)
        else:
            hint = "git config --global user.signingKey ~/.ssh/id_ed25519.pub"
            raise UsageError(f"{why} user.signingKey names no file", hint)
    header = b"gpgsig" if live.format.oid_length == 20 else b"gpgsig-sha256"
    mail = identity.rpartition(b"<")[2].removesuffix(b">")
    return Signer((os.fsencode(program), *words), header, mail, user.variables, literal, hints[1])


# --- a fork's commits ---


class CommitSigner:
    """Signs new commits of one fork's repository."""

    def __init__(self, live: Repository, history: History, user: UserFiles) -> None:
        self._live, self._history, self._user = live, history, user
        self.names: dict[bytes, bytes] = {}
        """Commits and tags in the project's repository, by their ids in the fork: those with another id."""
        self.objects: dict[bytes, tuple[bytes, bytes]] = {}
        """Kind and content of those that the project's repository lacks."""
        self.total = 0
        """Number of commits signed."""

    def sign(self, commits: Collection[bytes], fetched: Collection[bytes], tags: Iterable[bytes]) -> None:
        """Sign ``commits``, the new ones, parents first, but those ``fetched``; move annotated ``tags`` to them. Raise
        UsageError if a commit cannot be signed."""
        before = self._landed_before(commits)
        own = None
        for name in commits:
            data = self._history.content(name, b"commit")
            head, blank, message = data.partition(b"\n\n")
            parents = _PARENT.sub(lambda parent: self.names.get(parent[0], parent[0]), head)
            text = parents + blank + message
            if text in before:
                self.names[name] = before[text]
                continue
            own = own or signer(self._user, self._live, (_AS_GIT, _AS_GIT), always=True)
            committer, has_own = _COMMITTER.search(head), _SIGNATURE.search(head) is not None
            if has_own and parents != head:
                reason = f"the commit {name.decode()} is signed by another, and comes after one that you would sign"
                raise UsageError(reason, _AS_GIT)
            is_mine = committer is not None and own is not None and committer[1] == own.mail and name not in fetched
            if is_mine and own is not None and blank and not has_own:
                self._add(name, b"commit", own.signed(text))
                self.total += 1
            elif parents != head:
                self._add(name, b"commit", text)
        for tag in tags:
            self._retarget(tag)

    def _add(self, name: bytes, kind: bytes, data: bytes) -> None:
        made = object_id(kind, data, self._live.format.oid_length).hex().encode()
        self.names[name], self.objects[made] = made, (kind, data)

    def _retarget(self, name: bytes) -> None:
        *tags, target = self._history.tags(name)
        for tag in reversed(tags):
            data = self._history.content(tag, b"tag")
            if target not in self.names or b"\n-----BEGIN " in data:
                return
            self._add(tag, b"tag", data.replace(target, self.names[target], 1))
            target = tag

    def _landed_before(self, commits: Collection[bytes]) -> dict[bytes, bytes]:
        """Return signed commits of the project by their text without signature. None is older than the oldest new
        commit: it has the same time as in the fork."""
        oldest = min((self._history.commit(name).time for name in commits), default=1 << 63)
        before: dict[bytes, bytes] = {}
        for name in islice(self._history.live_since(oldest), COMMIT_LIMIT):
            head, blank, message = self._history.content(name, b"commit").partition(b"\n\n")
            text = _SIGNATURE.sub(b"", head)
            if text != head:
                before[text + blank + message] = name
        return before
