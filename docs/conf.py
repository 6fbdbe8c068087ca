"""The site of the documentation: ``dev/docs --site``. The same pages are read as plain files in the repository."""

import re
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
_METADATA = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

project = "mudroom"
author = "the authors of mudroom"
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "mudroom"
html_show_copyright = False
exclude_patterns = ["conf.py"]
myst_heading_anchors = 3
myst_enable_extensions: list[str] = []
suppress_warnings = ["toc.not_included", "misc.highlighting_failure", "myst.header"]
html_extra_path = ["json.schema.json", "card.schema.json", "profile.schema.json"]
_SOURCE = _METADATA.get("urls", {}).get("Source", "")
"""The repository in the web; empty: links to its other files are shown as their paths."""
NAVIGATION = {
    "Start": "INSTALL tutorial CALLS faq troubleshooting comparison",
    "How to": (
        "howto/agent howto/packages howto/ci howto/containers howto/team-policy howto/undo howto/best-of-n "
        "howto/machines howto/hooks-and-mcp"
    ),
    "Reference": (
        "reference/commands reference/policy reference/keys reference/json reference/library "
        "POLICY NETWORK PROFILES LIBRARY COMMANDS FORMAT GLOSSARY"
    ),
    "Subjects": (
        "THREATS PAGE REVIEW GIT MOUNTS ATTEMPTS HOOKS MCP ACP ORCHESTRA CONTAINERS FLEET MACOS WINDOWS DESIGN"
    ),
    "Evidence": (
        "evidence/ESCAPES evidence/BYPASSES evidence/KNOWN evidence/MERGES evidence/PROTECTIONS evidence/SYSCALLS "
        "evidence/FOREIGN evidence/FILESYSTEMS evidence/METADATA evidence/POWER evidence/EFFECTS evidence/RUNS_LATER "
        "evidence/CERTIFICATION evidence/AGENTS evidence/TRANSCRIPT evidence/SPEED evidence/SCALE evidence/LINUX"
    ),
}
"""The menu; the list of pages in index.md is for readers of the file."""
_OUT = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+(?:examples|src|tests|README\.md|CHANGELOG\.md|CONTRIBUTING\.md)[^)]*)\)")


def links_out(_app: object, name: str, text: list[str]) -> None:
    """Turn links to files outside of docs/ into links to the repository, or into their paths."""

    def turned(match: re.Match[str]) -> str:
        path = match[2].replace("../", "")
        return f"[{match[1]}]({_SOURCE}/blob/main/{path})" if _SOURCE else f"{match[1]} ({path})"

    if name == "index":
        trees = [
            "\n".join(["```{toctree}", ":hidden:", f":caption: {caption}", "", *pages.split(), "```", ""])
            for caption, pages in NAVIGATION.items()
        ]
        text[0] += "\n" + "\n".join(trees)
    text[0] = _OUT.sub(turned, text[0]).replace("](../reference/agents)", "](../reference/agents/claude.md)")
    text[0] = text[0].replace("](reference/agents)", "](reference/agents/claude.md)")


def setup(app: Any) -> dict[str, bool]:
    app.connect("source-read", links_out)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
