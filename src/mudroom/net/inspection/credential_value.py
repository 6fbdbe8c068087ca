"""Where the real values of credentials come from: read on the host, for the gate process and nobody else.

Rules of this file: no value is in a message. ``keyring`` is imported when a credential is from there.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from mudroom.core.network.placeholder import Credential, CredentialRule, with_value
from mudroom.core.tree.path import show
from mudroom.errors import MudroomError, Unsupported, UsageError

_LONGEST = 64 << 10


def reveal(wanted: Sequence[CredentialRule], environ: Mapping[bytes, bytes], home: bytes) -> tuple[Credential, ...]:
    """With the values, and new placeholders. ``environ``, ``home``: the user's; ``~/`` of a file is the home.

    Raises UsageError where one is not there or cannot be in a header, Unsupported where it is in a keyring and the
    library is missing."""
    found = []
    for one in wanted:
        without = f"mudroom net credential --remove {one.name} does without it"
        try:
            found.append(with_value(one, _READ[one.origin](one, environ, home), os.urandom(32)))
        except ValueError as error:
            raise UsageError(str(error), without) from error
        except MudroomError as error:
            error.hint = f"{error.hint}; {without}" if error.hint else without
            raise
    return tuple(found)


def variables(credentials: Sequence[Credential]) -> tuple[tuple[bytes, bytes], ...]:
    """What the sandbox has instead."""
    return tuple((one.name.encode(), one.placeholder.encode()) for one in credentials)


def _from_environment(one: CredentialRule, environ: Mapping[bytes, bytes], home: bytes) -> str:  # noqa: ARG001
    value = environ.get(os.fsencode(one.where))
    if value is None:
        raise UsageError(f"the credential {one.name}: there is no variable {one.where}", "set it")
    return value.decode("utf-8", "surrogateescape")


def _from_file(one: CredentialRule, environ: Mapping[bytes, bytes], home: bytes) -> str:  # noqa: ARG001
    path = os.fsencode(one.where)
    path = home + path[1:] if path.startswith(b"~/") else path
    if not path.startswith(b"/"):
        raise UsageError(f"the credential {one.name}: {show(path)} is not an absolute path", "write file:~/NAME")
    try:
        with open(path, "rb") as stream:
            return stream.read(_LONGEST).decode("utf-8", "surrogateescape")
    except OSError as error:
        raise UsageError(f"the credential {one.name}: {show(path)}: {error.strerror}") from error


def _from_keyring(one: CredentialRule, environ: Mapping[bytes, bytes], home: bytes) -> str:  # noqa: ARG001
    try:
        import keyring
        from keyring.errors import KeyringError
    except ImportError as error:
        hint = "pip install 'mudroom[keyring]'"
        raise Unsupported(f"the credential {one.name}", "the library keyring", "not installed", hint) from error
    service, _slash, user = one.where.partition("/")
    try:
        value: str | None = keyring.get_password(service, user)
    except KeyringError as error:
        raise UsageError(f"the credential {one.name}: the keyring: {type(error).__name__}", "unlock it") from error
    if value is None:
        raise UsageError(f"the credential {one.name}: the keyring has no {service} for {user}")
    return value


_READ = {"env": _from_environment, "file": _from_file, "keyring": _from_keyring}
