"""The credentials that the gate puts into requests of this project's commands: names and places, never values.

They are kept in the vault, which belongs to the user and is outside the project. A policy file comes with a repository,
and a cloned repository must not be able to send the user's variables anywhere.
"""

from __future__ import annotations

import json
import os

from mudroom.core.tree.path import show
from mudroom.errors import MudroomError
from mudroom.ext.inspection.placeholder import CredentialRule
from mudroom.stage import disk
from mudroom.vault.store.store import CREDENTIALS


def load_credentials(vault: bytes) -> tuple[CredentialRule, ...]:
    """Return the configured credentials. Raise MudroomError if the file is damaged, instead of using none."""
    try:
        with open(vault + CREDENTIALS, "rb") as stream:
            rows = json.load(stream)
        rules = tuple(CredentialRule(**row) for row in rows)
        if not all(rule.foreign in ("refuse", "strip", "allow") for rule in rules):
            raise ValueError("foreign is refuse, strip or allow")
        return rules
    except FileNotFoundError:
        return ()
    except (ValueError, TypeError) as error:
        raise MudroomError(f"{show(vault + CREDENTIALS)} cannot be read: {error}", "repair or remove it") from error


def _row(rule: CredentialRule) -> dict[str, object]:
    """Return the row of a credential, without ``foreign`` if that is the default: an older mudroom reads it then."""
    row = rule._asdict()
    if row["foreign"] == "refuse":
        del row["foreign"]
    return row


def save_credentials(vault: bytes, rules: tuple[CredentialRule, ...]) -> None:
    if not rules:
        try:
            os.unlink(vault + CREDENTIALS)
        except FileNotFoundError:
            pass
        return
    new = vault + CREDENTIALS + b".new"
    descriptor = disk.open_path(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | disk.O_CLOEXEC | disk.O_NOFOLLOW, 0o600)
    with open(descriptor, "w") as stream:
        json.dump([_row(rule) for rule in rules], stream, indent=1)
        stream.flush()
        os.fsync(descriptor)
    disk.rename_path(new, vault + CREDENTIALS)
