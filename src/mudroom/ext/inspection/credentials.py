"""The credentials that the gate puts into requests from this project's commands.

Rules of this file: their names and places are kept in the vault, never their values. The vault belongs to the user and
is outside the project: a policy file comes with a repository, and a cloned repository must not be able to send the
user's variables anywhere. Values are read on the host and for the gate process only, and are in no message. ``keyring``
is imported when a credential comes from there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress

from mudroom.core.network.inspection import Credential
from mudroom.core.tree.path import show
from mudroom.errors import MudroomError, Unsupported, UsageError
from mudroom.ext.inspection.placeholder import CredentialRule, with_value
from mudroom.stage import safe_open
from mudroom.vault.store.store import CREDENTIALS

_LONGEST = 64 << 10
"""Maximum bytes read from a file with a value."""


def load_credentials(vault: bytes) -> tuple[CredentialRule, ...]:
    """Return the configured credentials. Raise MudroomError if the file is damaged: running without them would be
    worse."""
    try:
        with open(vault + CREDENTIALS, "rb") as stream:
            rows = json.load(stream)
        rules = tuple(CredentialRule(**row) for row in rows)
        if not all(rule.foreign in ("refuse", "strip", "allow") for rule in rules):
            raise ValueError("foreign is refuse, strip or allow")
        if not all(isinstance(rule.user, str) for rule in rules):
            raise ValueError("user is a text")
        return rules
    except FileNotFoundError:
        return ()
    except (ValueError, TypeError) as error:
        raise MudroomError(f"{show(vault + CREDENTIALS)} cannot be read: {error}", "repair or remove it") from error


def _row(rule: CredentialRule) -> dict[str, object]:
    """Return a credential's row. Defaults are omitted, so that an older mudroom can read the row."""
    defaults = rule._field_defaults
    return {name: value for name, value in rule._asdict().items() if name not in defaults or value != defaults[name]}


def save_credentials(vault: bytes, rules: tuple[CredentialRule, ...]) -> None:
    if not rules:
        with suppress(FileNotFoundError):
            os.unlink(vault + CREDENTIALS)
        return
    safe_open.replace(vault + CREDENTIALS, json.dumps([_row(rule) for rule in rules], indent=1).encode())


# --- values ---


def read_credentials(
    wanted: Sequence[CredentialRule], environ: Mapping[bytes, bytes], home: bytes
) -> tuple[Credential, ...]:
    """Return the credentials with their values and new placeholders. ``environ``, ``home``: the user's; ``~/`` in a
    file name means ``home``.

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
    """Return the sandbox's variables, with placeholders as values."""
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
