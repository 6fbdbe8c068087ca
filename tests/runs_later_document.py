"""docs/evidence/RUNS_LATER.md, made from the table by ``python tests/runs_later_document.py``. No test is here."""

from __future__ import annotations

from pathlib import Path

from mudroom.core.tree.manifest import MANIFESTS, SUBDIRECTORIES
from mudroom.core.tree.runs_later import LaterRow, later_rows

DOCUMENT = Path(__file__).resolve().parent.parent / "docs/evidence/RUNS_LATER.md"

_HEAD = """# What runs by itself later

Made from two tables in `src/mudroom/data` by `python tests/runs_later_document.py`; a test compares them.

A changed file that runs by itself later has the flag `executes-later`, and the reason in words: in the preview, in
`files[].runs_later` of the JSON, in the terminal review and on the page. `user_commands.auto_apply` never applies
such a file without a question, unless `auto_apply_flagged: true`.

A file is flagged for one of these reasons:

1. **Its name**, at any depth: the tables below. Other spellings that a file system takes for the name count: other
   case, Unicode forms, characters that HFS+ ignores, trailing dots and blanks, streams and short names of NTFS. A
   pattern that has only a beginning does not hold for documents and pictures (`Dockerfile.md`).
2. **Its place**: a hook below `core.hooksPath`, a file that a hook of the repository is a link to or names, and a file
   that a command in the repository's settings names (`filter.*.clean`, `core.fsmonitor`, an alias with `!`), in those
   that they include, too, not in `~/.gitconfig`; or a file that a manifest names, in the project's version or in the
   fork's. A manifest that cannot be parsed names
   each word in it; one of more than 1 MiB names all. A link counts as well where a directory of such a name would be
   (`.cargo`, for `.cargo/config.toml`).
3. **Its content**: a new or changed executable that begins as a script (`#!`), ELF, Mach-O, PE or WebAssembly does.
   An executable that was only renamed is not flagged for that.
4. **mudroom itself**: a file of the environment or the package that mudroom runs from, if that is in the project.

Not seen: files to which a link of the project leads, by their own name (with the project's link `.cargo` to `assets`,
`assets/config.toml`); files that code names or computes when it runs (`import`, `include`, `source` in scripts),
settings of programs that are not in the table, and names that only settings outside the project hold.
"""


def _table(rows: list[LaterRow]) -> list[str]:
    lines = ["| run or obeyed by | when | names | source |", "| --- | --- | --- | --- |"]
    for row in rows:
        names = " ".join(f"`{pattern}`" for pattern in row.patterns)
        lines.append(f"| {row.runner} | {row.when} | {names} | {row.source} |")
    return lines


def document() -> str:
    rows, whole = later_rows("runs_later"), later_rows("whole_directories")
    manifests = [f"`{name.decode()}` ({runner})" for name, runner in (*MANIFESTS.items(), *SUBDIRECTORIES.items())]
    parts = [
        _HEAD.rstrip(),
        "## Directories that nobody reviews file by file",
        "Everything in them is flagged; a preview has one line for each.",
        "\n".join(_table(whole)),
        f"## Names\n\n{sum(len(row.patterns) for row in rows)} patterns.",
        "\n".join(_table(rows)),
        "## Manifests whose words are read\n\n" + ", ".join(manifests) + ".",
    ]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    DOCUMENT.write_text(document())
