"""Programs that run another command: what they do themselves, and which words are that command."""

from __future__ import annotations

from collections.abc import Sequence

from mudroom.core.place import Finding, Scene
from mudroom.core.rule import ESCAPE, READ, UNSURE, Rule
from mudroom.core.word import Word

_SHELL_FLAGS = frozenset(
    b"-c -lc -l -e -ec -x -xc -u -euc -eu -euo pipefail -o --norc --noprofile --login -ex -exc -uc".split()
)


def shell(words: Sequence[Word], scene: Scene) -> Finding:
    """``bash -c LINE``: the line counts; a shell that reads a file or its input is unknown."""
    for at, word in enumerate(words[1:], 1):
        if not word.literal or not word.text.startswith((b"-", b"pipefail")):
            return Finding(UNSURE, "runs a script")
        if word.text.startswith(b"-") and not word.text.startswith(b"--") and word.text.endswith(b"c"):
            if at + 1 < len(words) and words[at + 1].literal:
                return Finding(READ, "runs a line of shell", tuple(scene.line(words[at + 1].text, scene)))
            return Finding(UNSURE, "runs a line that cannot be told")
        if word.text not in _SHELL_FLAGS:
            return Finding(UNSURE, "an option of the shell that is not in the tables")
    return Finding(UNSURE, "runs what it reads")


def _after_options(words: Sequence[Word], valued: frozenset[bytes], assignments: bool = False) -> int | None:
    at = 1
    while at < len(words):
        word = words[at]
        if not word.literal:
            return at
        if word.text == b"--":
            return at + 1
        if word.text in valued:
            at += 2
        elif word.text.startswith(b"-") or (assignments and b"=" in word.text):
            at += 1
        else:
            return at
    return None


def sudo(words: Sequence[Word], scene: Scene) -> Finding:
    at = _after_options(words, frozenset(b"-u -g -h -p -C -U -r -t -D -R -T".split()))
    inner = () if at is None else tuple(scene.words(words[at:], scene))
    return Finding(ESCAPE, "becomes another user", inner)


WRAPPERS: dict[bytes, Rule] = {
    **{name: Rule(UNSURE, "a shell", judge=shell) for name in b"bash sh dash".split()},
    **{name: Rule(ESCAPE, "becomes another user", judge=sudo) for name in b"sudo doas".split()},
}
