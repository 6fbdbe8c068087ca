"""docs/evidence/RUNS_LATER.md, made from the table by ``python tests/runs_later_document.py``. No test is here."""

from __future__ import annotations

from pathlib import Path

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
2. **Its place**: a hook below `core.hooksPath`, a file that a hook, there or in the repository, is a link to or names,
   and a file that a command in the repository's settings names (`filter.*.clean`, `core.fsmonitor`, an alias with
   `!`), in those that they include, too, not in `~/.gitconfig`. A link counts as well where a directory of such a name
   would be (`.cargo`, for `.cargo/config.toml`).
3. **A manifest names it**, in the project's version or in the fork's, whatever its ending. A manifest is a text that
   runs later by its name, other than documents and lists (names with `=` below). Read are those that the fork changed,
   and the project's in the directories above the file, in directories there whose files all run later
   (`.github/workflows/`), and in each directory directly in the project. Words count from the manifest's directory,
   with a slash also from those above it. Documents, and sources for a compiler (`.c`), count only after the word of a
   program or an include. A manifest of more than 1 MiB names all files below its directory; more than 4,096 manifests,
   or 32 MiB of them, name all.
4. **It may be executed**: a new or changed file with an executable bit, whatever is in it.
5. **mudroom itself**: a file of the environment or the package that mudroom runs from, if that is in the project.

`auto_apply` asks the opposite question: only a file that is known to be inert is applied unasked
([POLICY.md](../POLICY.md)).

Not seen: a directory or a pattern that a manifest names (`run-parts ci.d`, `include mk/*.inc`), manifests of packages
(`node_modules`), files to which a link of the project leads, by their own name (with the project's link `.cargo` to
`assets`, `assets/config.toml`), files that code names or computes when it runs (`import`, `include`, `source` in
scripts), settings of programs that are not in the table, and names that only settings outside the project hold.
"""


def _table(rows: list[LaterRow]) -> list[str]:
    lines = ["| run or obeyed by | when | names | source |", "| --- | --- | --- | --- |"]
    for row in rows:
        names = " ".join(f"`{'=' * (pattern in row.listings)}{pattern}`" for pattern in row.patterns)
        lines.append(f"| {row.runner} | {row.when} | {names} | {row.source} |")
    return lines


def document() -> str:
    rows, whole = later_rows("runs_later"), later_rows("whole_directories")
    parts = [
        _HEAD.rstrip(),
        "## Directories that nobody reviews file by file",
        "Everything in them is flagged; a preview has one line for each.",
        "\n".join(_table(whole)),
        f"## Names\n\n{sum(len(row.patterns) for row in rows)} patterns.",
        "\n".join(_table(rows)),
    ]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    DOCUMENT.write_text(document())
