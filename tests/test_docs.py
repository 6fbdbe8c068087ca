"""What the documents say exists, and what exists is in the documents."""

from __future__ import annotations

import re
from pathlib import Path

from mudroom.cli.main import VERBS
from mudroom.core.result import SCHEMA
from mudroom.policy.settings_table import SECTIONS
from tiers import each

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])


@each("verb", VERBS)
def test_every_verb_is_in_the_table_of_calls(verb: str) -> None:
    text = (ROOT / "docs/CALLS.md").read_text()
    assert re.search(rf"`(mudroom )?{verb}\b|mudroom {verb}\b", text), verb


def test_every_setting_is_named_somewhere() -> None:
    text = "".join(path.read_text() for path in DOCUMENTS)
    for section, settings in SECTIONS.items():
        assert f"{section}:" in text
        for name in settings:
            assert name in text, f"{section}.{name}"


def test_the_result_schema_is_documented() -> None:
    assert SCHEMA in (ROOT / "docs/FORMAT.md").read_text()


@each("path", DOCUMENTS)
def test_links_and_file_names_in_documents_exist(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text()):
        assert (path.parent / target).exists(), target
    rooms = "cli|core|doctor|keeper|net|policy|review|sandbox|session|stage|tui|vault|web"
    for name in re.findall(rf"`((?:{rooms})/[\w/]+\.py)`", path.read_text()):
        assert (ROOT / "src/mudroom" / name).exists(), name
