"""Settings of the user's git that need what no sandbox has.

setting                                    inside
commit.gpgSign, tag.gpgSign, push.gpgSign  off: the key is outside, and each commit would fail; ``apply --commit`` signs
"""

from __future__ import annotations

from mudroom.stage.source import read_own

_OFF = (b"commit.gpgsign", b"tag.gpgsign", b"push.gpgsign")
_LIMIT = 4 << 20


def unsigned(home: bytes, project: bytes) -> dict[bytes, bytes]:
    """Return the variables by which git signs nothing, if a settings file names it: git-config(1), GIT_CONFIG_COUNT."""
    files = (home + b"/.gitconfig", home + b"/.config/git/config", project + b"/.git/config")
    try:
        names_it = any(b"gpgsign" in read_own(path, _LIMIT).lower() for path in files)
    except ValueError:
        names_it = True  # larger than any settings
    if not names_it:
        return {}
    variables = {b"GIT_CONFIG_COUNT": b"%d" % len(_OFF)}
    for number, name in enumerate(_OFF):
        variables |= {b"GIT_CONFIG_KEY_%d" % number: name, b"GIT_CONFIG_VALUE_%d" % number: b"false"}
    return variables
