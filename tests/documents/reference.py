"""``python -m documents.reference``: write docs/reference and docs/json.schema.json anew, from the program.

``--commands`` writes the page of all options, which is not in the repository: the site has it (``dev/docs --site``).
"""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import mudroom
from documents.json_objects import NOT_PRINTED, SCHEMAS, document, lines_of, printed
from documents.machine import ROOT
from mudroom.cli.main import VERBS, run
from mudroom.library import opening, satellite
from mudroom.policy.settings_table import ROWS
from mudroom.stage.layers.layer import remove_tree

COMMANDS = ROOT / "docs/reference/commands.md"
JSON = ROOT / "docs/reference/json.md"
LIBRARY = ROOT / "docs/reference/library.md"
POLICY = ROOT / "docs/reference/policy.md"
KEYS = ROOT / "docs/reference/keys.md"
MADE = "Made of the program by `dev/docs --update`."

_JSON = f"""# JSON

{MADE} Every verb has `--json` and prints one object, or one a line.
[json.schema.json](../json.schema.json) has the schemas; [FORMAT.md](../FORMAT.md#json) explains the keys. A key in
*italics* may be absent. A test runs every verb of this page and validates what it prints.
"""


def help_of(verb: str, columns: int = 100) -> str:
    """Return what ``mudroom VERB --help --all`` prints on a terminal of this width."""
    out = io.StringIO()
    environment = {"COLUMNS": str(columns), "NO_COLOR": "1", "HOME": "/nonexistent"}
    with mock.patch.dict(os.environ, environment), contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        run([verb, "--help", "--all"], {os.fsencode(name): os.fsencode(value) for name, value in environment.items()})
    return out.getvalue().rstrip()


def commands_page() -> str:
    rows = "\n".join(f"| [{verb}](#{verb}) | {row.help} |" for verb, row in VERBS.items())
    sections = "\n\n".join(f"## {verb}\n\n```text\n{help_of(verb)}\n```" for verb in VERBS)
    table = f"| verb | |\n| --- | --- |\n{rows}"
    return f"# Commands\n\n{MADE} [CALLS.md](../CALLS.md) has the calls by subject.\n\n{table}\n\n{sections}\n"


def library_page() -> str:
    """Return the page of the public names of the library, with their signatures and docstrings."""
    parts = [f"# The library, name by name\n\n{MADE} [LIBRARY.md](../LIBRARY.md) shows how they are used.\n"]
    for name in mudroom.__all__:
        value = getattr(mudroom, name)
        if inspect.ismodule(value):
            rows = [f"* `{key}`: {_docstring(each)}" for key, each in vars(value).items() if _is_error(each)]
            parts.append("\n".join([f"## mudroom.{name}\n", *rows, ""]))
        elif inspect.isclass(value):
            parts.append(f"## mudroom.{name}\n\n{_docstring(value)}\n")
            for key, method in {} if name.startswith("Async") else vars(value).items():
                if not key.startswith("_") and callable(method):
                    parts.append(f"* `{key}{_signature(method)}`: {_docstring(method)}".removesuffix(": "))
            parts.append("")
        else:
            parts.append(f"## mudroom.{name}\n\n`{name}{_signature(value)}`\n\n{_docstring(value)}\n")
    return "\n".join(parts)


def _is_error(value: object) -> bool:
    return inspect.isclass(value) and issubclass(value, Exception) and value.__module__.startswith("mudroom")


def _docstring(value: object) -> str:
    return " ".join((inspect.getdoc(value) or "").replace("``", "`").split()) or ""


def _signature(value: Any) -> str:
    try:
        signature = re.sub(r"(: |-> )'([^']+)'", r"\1\2", str(inspect.signature(value)))
    except ValueError:
        return "(…)"
    star = "" if "*, " in signature else "*, "
    return re.sub(r"\*\*\w+: Unpack\[(\w+)\]", lambda found: star + _options(found[1]), signature)


def _options(name: str) -> str:
    """Return the names and types of a TypedDict, as parameters."""
    kind = next(kind for place in (opening, satellite) if (kind := getattr(place, name, None)) is not None)
    return ", ".join(f"{key}: {shown} = …" for key, shown in kind.__annotations__.items())


def policy_page() -> str:
    """Return the page of the policy's keys, a row for each."""
    parts = [f'# Keys of a policy\n\n{MADE} [POLICY.md](../POLICY.md) explains files, trust and "several files".\n']
    parts.append("| key | default | several files | loosens | meaning |\n| --- | --- | --- | --- | --- |")
    for row in ROWS:
        cells = (f"`{row.key}`", row.default, row.merge, row.loosening.text, row.help)
        parts.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(parts) + "\n"


def keys_page() -> str:
    """Return the page of the keys and signs of ``mudroom review``. It needs Textual."""
    from mudroom.ext.tui.key import CONFLICTS, LEGEND, REVIEW

    parts = [f"# Keys of mudroom review\n\n{MADE} [REVIEW.md](../REVIEW.md) shows the screens.\n"]
    for title, keys in (("In the review", REVIEW), ("In the conflicts", CONFLICTS)):
        rows = "\n".join(f"| `{key.shown}` | {key.text} |" for key in keys)
        parts.append(f"| {title} | |\n| --- | --- |\n{rows}\n")
    signs = "\n".join(f"| `{sign}` | {text} |" for sign, text in LEGEND)
    parts.append(f"| sign | means |\n| --- | --- |\n{signs}\n")
    return "\n".join(parts)


def json_page(schemas: dict[str, Any]) -> str:
    """Return the page of the objects: for each schema the verbs that print it, and its keys with their types."""
    parts = [_JSON]
    for name, shape in schemas["$defs"].items():
        keys = [
            f"`{key}` {_type(value)}" if key in shape["required"] else f"*`{key}`* {_type(value)}"
            for key, value in shape["properties"].items()
            if key != "schema"
        ]
        parts.append(f"## {name}\n\nPrinted by {shape['description']}.\n\n{', '.join(keys) or 'No further keys'}.\n")
    rows = "\n".join(f"| `{name}` | {where} |" for name, where in sorted(NOT_PRINTED.items()))
    parts.append(f"## Others\n\n| schema | |\n| --- | --- |\n{rows}\n")
    return "\n".join(parts)


def _type(shape: dict[str, Any]) -> str:
    kind = shape.get("type", "or null")
    text = " or ".join(kind) if isinstance(kind, list) else str(kind)
    inner = shape.get("items", {}).get("properties") or shape.get("properties")
    return f"{text} ({', '.join(inner)})" if inner else text


if __name__ == "__main__":
    if sys.argv[1:] == ["--commands"]:
        COMMANDS.write_text(commands_page())
        sys.exit()
    root = tempfile.mkdtemp(prefix="mudroom-docs.")
    schemas = document(printed(Path(root) / "d"))
    remove_tree(root.encode())
    SCHEMAS.write_text(lines_of(schemas))
    JSON.write_text(json_page(schemas))
    LIBRARY.write_text(library_page())
    POLICY.write_text(policy_page())
    KEYS.write_text(keys_page())
