"""Windows: this process's environment in the form that other platforms use.

| here | there |
| --- | --- |
| HOME | USERPROFILE |
| MUDROOM_STATE | as given, else ``mudroom`` below LOCALAPPDATA: it does not follow its user to other machines |
| XDG_CONFIG_HOME | APPDATA |

Their values are paths as they are kept inside (``core/tree/windows_path.py``); all other variables are unchanged, as
UTF-8. HOME itself is not read: shells that emulate POSIX set it to a path that no Windows call accepts.
"""

from __future__ import annotations

from collections.abc import Mapping

from mudroom.core.tree.windows_path import inner_path
from mudroom.errors import UsageError


def translate(variables: Mapping[str, str]) -> dict[bytes, bytes]:
    """Return the variables as bytes. Raise UsageError if a user directory is missing, or is no path on a drive."""
    environ = {_bytes(name): _bytes(value) for name, value in variables.items()}
    home = _path(variables, "USERPROFILE", "")
    environ[b"HOME"] = home
    own = variables.get("MUDROOM_STATE")
    local = _path(variables, "LOCALAPPDATA", home.decode() + "/AppData/Local")
    environ[b"MUDROOM_STATE"] = _path(variables, "MUDROOM_STATE", "") if own else local + b"/mudroom"
    environ[b"XDG_CONFIG_HOME"] = _path(variables, "APPDATA", home.decode() + "/AppData/Roaming")
    return environ


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _path(variables: Mapping[str, str], name: str, usual: str) -> bytes:
    value = variables.get(name) or usual
    if not value:
        raise UsageError(f"{name} is not set", f"set {name}=C:\\Users\\you")
    try:
        return inner_path(value)
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from None
