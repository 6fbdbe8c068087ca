"""Read the real values of credentials, on the host and for the gate process only.

Rules of this file: no value is in a message. ``keyring`` is imported when a credential comes from there.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from mudroom.core.network.inspection import Credential
from mudroom.core.tree.path import show
from mudroom.errors import MudroomError, Unsupported, UsageError
from mudroom.ext.inspection.placeholder import CredentialRule, with_value

_LONGEST = 64 << 10


def read_credentials(
    wanted: Sequence[CredentialRule], environ: Mapping[bytes, bytes], home: bytes
) -> tuple[Credential, ...]:
    """Return the credentials with their values and new placeholders. ``environ``, ``home``: the user's; ``~/`` of a
    file is the home.

    Raise UsageError if a value is missing or invalid in a header, Unsupported if it is in a keyring and the library is
    missing.
    """
    credentials = []
    for rule in wanted:
        hint = f"mudroom net credential --remove {rule.name} does without it"
        try:
            credentials.append(with_value(rule, _READ[rule.origin](rule, environ, home), os.urandom(32)))
        except ValueError as error:
            raise UsageError(str(error), hint) from error
        except MudroomError as error:
            error.hint = f"{error.hint}; {hint}" if error.hint else hint
            raise
    return tuple(credentials)


def variables(credentials: Sequence[Credential]) -> tuple[tuple[bytes, bytes], ...]:
    """Return the variables for the sandbox, with placeholders as values."""
    return tuple((credential.name.encode(), credential.placeholder.encode()) for credential in credentials)


def _from_environment(rule: CredentialRule, environ: Mapping[bytes, bytes], home: bytes) -> str:  # noqa: ARG001
    value = environ.get(os.fsencode(rule.where))
    if value is None:
        raise UsageError(f"the credential {rule.name}: there is no variable {rule.where}", "set it")
    return value.decode("utf-8", "surrogateescape")


def _from_file(rule: CredentialRule, environ: Mapping[bytes, bytes], home: bytes) -> str:  # noqa: ARG001
    path = os.fsencode(rule.where)
    path = home + path[1:] if path.startswith(b"~/") else path
    if not path.startswith(b"/"):
        raise UsageError(f"the credential {rule.name}: {show(path)} is not an absolute path", "write file:~/NAME")
    try:
        with open(path, "rb") as stream:
            return stream.read(_LONGEST).decode("utf-8", "surrogateescape")
    except OSError as error:
        raise UsageError(f"the credential {rule.name}: {show(path)}: {error.strerror}") from error


def _from_keyring(rule: CredentialRule, environ: Mapping[bytes, bytes], home: bytes) -> str:  # noqa: ARG001
    try:
        import keyring
        from keyring.errors import KeyringError
    except ImportError as error:
        hint = "pip install 'keyring>=25'"
        raise Unsupported(f"the credential {rule.name}", "the library keyring", "not installed", hint) from error
    service, _slash, user = rule.where.partition("/")
    try:
        value: str | None = keyring.get_password(service, user)
    except KeyringError as error:
        raise UsageError(f"the credential {rule.name}: the keyring: {type(error).__name__}", "unlock it") from error
    if value is None:
        hint = f"keyring set {service} {user}"
        raise UsageError(f"the credential {rule.name}: the keyring has no password of {user} for {service}", hint)
    return value


_READ = {"env": _from_environment, "file": _from_file, "keyring": _from_keyring}
