"""Sign a commit as git would, with the user's own program and key: git-config(1), gpg.* and user.signingKey.

The program is taken from the user's own settings files alone. A command may have written those of the repository.
"""

from __future__ import annotations

import os
import shutil
import subprocess

from mudroom.core.tree.path import show
from mudroom.errors import UsageError
from mudroom.ext.commits.git.user_settings import UserSettings
from mudroom.typing import NamedTuple

_PATIENCE = 120
"""Seconds in which a person may be asked for a passphrase."""
_PROGRAMS = {b"openpgp": b"gpg", b"x509": b"gpgsm", b"ssh": b"ssh-keygen"}
USE_GIT = "apply without a commit, then git commit"


class Signer(NamedTuple):
    """``argv`` reads a text, and writes its signature."""

    argv: tuple[bytes, ...]
    header: bytes

    def signed(self, text: bytes) -> bytes:
        """Return a commit with its signature. Raise UsageError if the program makes none."""
        try:
            done = subprocess.run(self.argv, input=text, capture_output=True, check=False, timeout=_PATIENCE)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UsageError(f"{show(self.argv[0])} does not sign: {error}", "git commit -S") from error
        if done.returncode or not done.stdout.startswith(b"-----BEGIN "):
            why = (done.stderr.strip().splitlines() or [b"no signature"])[-1].decode(errors="replace")
            raise UsageError(f"{show(self.argv[0])} does not sign: {why}", "git commit -S")
        head, _blank, message = text.partition(b"\n\n")
        signature = done.stdout.rstrip(b"\n").replace(b"\n", b"\n ")
        return b"%s\n%s %s\n\n%s" % (head, self.header, signature, message)


def signer(settings: UserSettings, identity: bytes, id_length: int) -> Signer | None:
    """Return the signer of commits, or None if commit.gpgSign is not set. Raise UsageError without its program or key.
    ``id_length``: bytes of the repository's object ids."""
    if not settings.flag(b"commit", b"gpgsign", default=False):
        return None
    kind = settings.value(b"gpg", b"format") or b"openpgp"
    if kind not in _PROGRAMS:
        raise UsageError(f"gpg.format is {show(kind)}, with which mudroom cannot sign", USE_GIT)
    own = settings.own_value(b"gpg", b"program", kind)
    if own is None and kind == b"openpgp":
        own = settings.own_value(b"gpg", b"program")
    program = shutil.which(os.fsdecode(own or _PROGRAMS[kind]))
    if program is None:
        raise UsageError(f"commit.gpgSign is set, and {show(own or _PROGRAMS[kind])} is not installed", USE_GIT)
    key = settings.value(b"user", b"signingkey")
    if kind == b"ssh":
        path = settings.expanded(key or b"")
        if not os.path.isfile(path):
            hint = "git config --global user.signingKey ~/.ssh/id_ed25519.pub"
            raise UsageError("commit.gpgSign is set, and user.signingKey names no file", hint)
        words: tuple[bytes, ...] = (b"-Y", b"sign", b"-n", b"git", b"-f", path)
    else:
        words = (b"--status-fd=2", b"-bsau", key or identity)
    return Signer((os.fsencode(program), *words), b"gpgsig" if id_length == 20 else b"gpgsig-sha256")
