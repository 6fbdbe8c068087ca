"""What the documents say exists, and what exists is in the documents."""

from __future__ import annotations

import re
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

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


def anchors(path: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"(?ms)^```.*?^```$", "", path.read_text())
    titles = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title) for title in re.findall(r"(?m)^#+ (.+)$", text)]
    made: set[str] = set()
    for title in titles:
        anchor = re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-")
        number = next(number for number in count() if (f"{anchor}-{number}" if number else anchor) not in made)
        made.add(f"{anchor}-{number}" if number else anchor)
    return made | set(re.findall(r'<a (?:id|name)="([^"]+)"', text)) | set(re.findall(r"(?m)^\(([\w-]+)\)=$", text))


@each("path", DOCUMENTS)
def test_anchors_exist_and_addresses_are_well_formed(path: Path) -> None:
    text = re.sub(r"(?ms)^```.*?^```$|`[^`\n]*`", "", path.read_text())
    for target, anchor in re.findall(r"\]\(([^)#:\s]*)#([^)\s]+)\)", text):
        assert anchor in anchors(path.parent / target if target else path), f"{target}#{anchor}"
    for address in re.findall(r"\]\((\w+:[^)\s]*)\)|src=\"(\w+:[^\"]*)\"", text):
        parts = urlsplit("".join(address))
        assert parts.scheme in ("https", "mailto") and (parts.hostname or parts.path), address


def test_an_anchor_is_that_of_github(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("# A `b` & c: d\n## Twice\n```\n# none\n```\n## Twice\n### [Link](x.md) it\n")
    assert anchors(tmp_path / "page.md") == {"a-b--c-d", "twice", "twice-1", "link-it"}
