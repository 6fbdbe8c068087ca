"""Commands in the running text are commands of this program, and figures say the command that measured them."""

from __future__ import annotations

import re

import pytest

from documents.machine import ROOT
from documents.play import documents
from documents.reference import help_of
from mudroom.cli.main import VERBS, offered_verbs

_INLINE = re.compile(r"`(mudroom [^`\n]+)`")
_OTHER = ("claude", "codex", "aider", "gemini", "npm", "help")
"""Agents, which are verbs, too; and what is no verb, in a message."""
_OPTION = re.compile(r"(?<![\w-])(--[a-z][a-z-]+)")
_SUBVERBS = ("agent", "fleet", "fork", "hook", "image", "keeper", "log", "net", "policy", "try", "vault")
"""Verbs whose actions have options of their own, which ``mudroom VERB --help`` does not print."""


def test_commands_in_the_text_exist_with_their_options() -> None:
    helps = {verb: help_of(verb) for verb in offered_verbs()}
    wrong = []
    for path in documents():
        for command in _INLINE.findall(path.read_text()):
            words = re.split(r" -- |\||;", command)[0].split()
            verb = words[1] if len(words) > 1 else ""
            if not re.fullmatch(r"[a-z][a-z-]*", verb):
                continue  # an option of mudroom itself, or a placeholder
            if verb not in helps:
                if verb not in (*VERBS, *_OTHER):
                    wrong.append(f"{path.relative_to(ROOT)}: {command}")
                continue
            options = _OPTION.findall(" ".join(words)) if verb not in _SUBVERBS else ()
            unknown = [option for option in options if option not in helps[verb] and option != "--help"]
            wrong += [f"{path.relative_to(ROOT)}: {command}: {option}" for option in unknown]
    assert wrong == []


MEASURED = {
    "README.md": "conformance.escapes",
    "docs/evidence/SPEED.md": "python -m bench",
    "docs/evidence/SCALE.md": "python -m bench",
    "docs/evidence/AGENTS.md": "dev/agents --table",
    "docs/evidence/ESCAPES.md": "python -m tests.conformance.escapes",
    "docs/evidence/BYPASSES.md": "python -m tests.conformance.bypasses",
    "docs/comparison.md": "tests.conformance.escapes",
}
"""Documents with tables of measured figures, and the command that each names."""
_FIGURE = re.compile(r"\| *[^|\n]*\b\d+(?:[.,]\d+)? ?(?:ms|µs|MB/s|x)\b[^|\n]*\|")
_PLAIN = {
    "docs/evidence/FOREIGN.md", "docs/ATTEMPTS.md", "docs/CALLS.md", "docs/CONTAINERS.md", "docs/FLEET.md",
    "docs/POLICY.md",
}  # fmt: skip
"""Documents whose figures in tables are limits and examples, not measurements."""


def test_tables_of_measured_figures_name_their_command_and_commit() -> None:
    for path in documents():
        name, text = str(path.relative_to(ROOT)), path.read_text()
        if name in MEASURED:
            assert MEASURED[name] in text, name
            dated = re.search(r"\b(?:at|commit) `?[0-9a-f]{8}\b", text) or re.search(
                r"\b20\d\d-\d\d-\d\d\b|\bNovember 2026\b", text
            )
            assert dated, f"{name}: no commit and no date"
        elif name not in _PLAIN:
            assert not _FIGURE.search(text), f"{name}: {_FIGURE.search(text)}: which command measured it?"


@pytest.mark.parametrize(("name", "most"), [("README.md", 120)])
def test_the_readme_is_short_and_does_not_open_the_network(name: str, most: int) -> None:
    text = (ROOT / name).read_text()
    assert len(text.splitlines()) <= most
    assert "--net open" not in text


OTHERS = {"DESIGN.md", "FORMAT.md", "MACOS.md", "WINDOWS.md"}
"""Pages that are not for users."""
_NOT_PROSE = re.compile(r"^```.*?^```|<!--.*?-->|\]\([^)]*\)|`[^`]*`", re.DOTALL | re.MULTILINE)
_VAGUE = re.compile(r"\bwhat(?:ever)?\b", re.IGNORECASE)
_BEGINS = re.compile(r"(?:\A|[.:|!] +|\n\s*[-*] +|\n#+ |\n\n)(?:\*\*)?(?:What|Who|Whoever|Whatever)\b.{0,40}")
_MOST = 5
"""Uses of "what" in 1,000 words: a noun says more."""


def test_pages_for_users_name_things() -> None:
    """The noun stands first: no sentence and no heading begins with What or Who."""
    problems = []
    pages = [path for path in sorted((ROOT / "docs").glob("*.md")) if path.name not in OTHERS]
    for path in [*pages, *sorted((ROOT / "docs/howto").glob("*.md"))]:
        text = _NOT_PROSE.sub("", path.read_text())
        words, vague = len(re.findall(r"[A-Za-z][\w'-]*", text)), len(_VAGUE.findall(text))
        if vague > max(1, _MOST * words / 1000):
            problems.append(f"{path.name}: {vague} times 'what' in {words} words")
        problems += [f"{path.name}: {begin.strip()}" for begin in _BEGINS.findall(text)]
    assert not problems, "\n".join(problems)
