"""Which credentials the gate puts into requests of this project's commands: names and places, never values.

They stand in the vault, which is the user's and outside of the project: a policy file comes with a repository, and one
that was cloned must not be able to send the user's variables anywhere.
"""

from __future__ import annotations

import json
import os

from mudroom.core.tree.path import show
from mudroom.errors import MudroomError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mudroom.core.network.placeholder import CredentialRule

_NAME = b"/credentials.json"


def has_credentials(vault: bytes) -> bool:
    """Whether there is something to read: one stat(2), for every command."""
    return os.path.exists(vault + _NAME)


def load_credentials(vault: bytes) -> tuple[CredentialRule, ...]:
    """Raises MudroomError if the file is not what ``save_credentials`` wrote: none at all would be another answer."""
    from mudroom.core.network.placeholder import CredentialRule

    try:
        with open(vault + _NAME, "rb") as stream:
            rows = json.load(stream)
        return tuple(CredentialRule(**row) for row in rows)
    except FileNotFoundError:
        return ()
    except (ValueError, TypeError) as error:
        raise MudroomError(f"{show(vault + _NAME)} cannot be read: {error}", "mend it, or remove it") from error


def save_credentials(vault: bytes, wanted: tuple[CredentialRule, ...]) -> None:
    if not wanted:
        try:
            os.unlink(vault + _NAME)
        except FileNotFoundError:
            pass
        return
    new = vault + _NAME + b".new"
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with open(descriptor, "w") as stream:
        json.dump([one._asdict() for one in wanted], stream, indent=1)
        stream.flush()
        os.fsync(descriptor)
    os.rename(new, vault + _NAME)
