"""What each kind of file shows by its parts, in process: rows, notes, and the sentence where there are none."""

from __future__ import annotations

import io
import json
import sqlite3
import tarfile
import zipfile
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudroom.ext.views.kinds import archive, database, keys, notebook, packages
from mudroom.ext.views.kinds.kind import KINDS, hint, kind_of
from mudroom.ext.views.kinds.row import FileView, NoView, clean
from mudroom.ext.views.worker import MODULES
from tiers import each


def rows(view: FileView) -> list[tuple[str, str, str, str, str]]:
    return [(row.kind, row.label, row.before, row.after, row.note) for row in clean(view).rows]


# --- which kind ---


@each(
    ("path", "head", "kind"),
    [
        ("a/uv.lock", b"", "packages"),
        ("a.ipynb", b"{", "notebook"),
        ("data.bin", b"SQLite format 3\0", "database"),
        ("app.docx", b"PK\x03\x04", "archive"),
        ("blob", b"x" * 257 + b"ustar", "archive"),
        ("x.TAR.GZ", b"", "archive"),
        ("package.json", b"", "json"),
        ("x.yml", b"", "yaml"),
        ("pyproject.toml", b"", "toml"),
        ("a.py", b"x = 1\n", ""),
        (".json", b"", "json"),
    ],
)
def test_the_name_and_the_first_bytes_tell_the_kind(path: str, head: bytes, kind: str) -> None:
    assert kind_of(path.encode(), head) == kind


def test_each_kind_has_a_module() -> None:
    assert set(MODULES) == set(KINDS)
    assert not hint("f", ())


# --- packages ---


def lock(**rows: object) -> bytes:
    return json.dumps({"packages": {f"node_modules/{name}": row for name, row in rows.items()}}).encode()


def test_packages_are_raised_lowered_new_and_from_elsewhere() -> None:
    old = lock(
        up={"version": "1.9.0"},
        down={"version": "2.0.0"},
        post={"version": "1.0rc1"},
        gone={"version": "1"},
        same={"version": "1", "integrity": "x"},
        lodash={"version": "4.0.0"},
        moved={"version": "1"},
    )
    new = lock(
        up={"version": "1.10.0"},
        down={"version": "2.0.0-rc.1"},
        post={"version": "1.0"},
        same={"version": "1", "integrity": "y"},
        lodash={"version": "4.0.0"},
        lodahs={"version": "1", "resolved": "https://x.example/a.tgz"},
        moved={"version": "1", "resolved": "git+https://x.example/a"},
    )
    view = packages.view(b"package-lock.json", old, new)
    assert view.summary == "2 raised, 1 lowered, 2 changed, 1 added, 1 removed; 3 to look at"
    assert rows(view) == [
        ("added", "lodahs", "", "1", "a new name, and like lodash; from https://x.example"),
        ("changed", "moved", "1", "1", "changed; from git+https://x.example"),
        ("changed", "same", "1", "1", "changed; other files under the same version"),
        ("changed", "down", "2.0.0", "2.0.0-rc.1", "lowered"),
        ("removed", "gone", "1", "", ""),
        ("changed", "post", "1.0rc1", "1.0", "raised"),
        ("changed", "up", "1.9.0", "1.10.0", "raised"),
    ]
    assert [row.flagged for row in view.rows] == [True] * 3 + [False] * 4


def test_a_lock_file_that_is_new_has_no_new_names() -> None:
    view = packages.view(b"package-lock.json", None, lock(a={"version": "1"}))
    assert rows(view) == [("added", "a", "", "1", "")]
    assert packages.view(b"package-lock.json", lock(), lock()).summary == "the same packages"


def test_a_package_that_is_back_at_its_registry_or_has_a_second_version() -> None:
    old = lock(a={"version": "1", "resolved": "git+https://x.example/a"}, b={"version": "1"})
    new = lock(a={"version": "1"}, b={"version": "1"}, **{"c/node_modules/b": {"version": "2"}})
    assert rows(packages.view(b"package-lock.json", old, new)) == [
        ("changed", "a", "1", "1", "changed; back to its registry"),
        ("changed", "b", "1", "1, 2", "changed"),
    ]


# --- keys ---


@each(
    ("path", "old", "new", "expected"),
    [
        ("a.json", '{"a": 1, "b": 2}', '{"b": 2,\n"a": 1}', []),
        ("a.json", '{"a": 1.0}', '{"a": 1.00}', [("changed", "a", "1.0", "1.00", "")]),
        ("a.json", '{"a": 1}', '{"a": "1"}', [("changed", "a", "1", '"1"', "")]),
        ("a.json", '{"a": [1]}', '{"a": ["1"]}', [("changed", "a[0]", "1", '"1"', "")]),
        ("a.json", '{"a": {"b": [0, {"c": null}]}}', '{"a": {"b": [9, 0, {"c": true}]}}', [
            ("added", "a.b[0]", "", "9", ""), ("changed", "a.b[2].c", "null", "true", ""),
        ]),
        ("a.json", '{"x.y": 1}', "{}", [("removed", '["x.y"]', "1", "", "")]),
        ("a.json", "[1]", "2", [("changed", "(all)", "[1]", "2", "")]),
        ("a.json", "{}", '{"a": {"b": {"c": 1}, "d": [2]}}', [("added", "a", "", "{b: {…}, d: […]}", "")]),
        ("a.yaml", "a: 1 # one\nb: 2\n", "b: 2\na: 1\n", []),
        ("a.yaml", "a: 1\n", 'a: "1"\n', [("changed", "a", "1", '"1"', "")]),
        ("a.yaml", "a: 0x10\n", "a: 16\n", [("changed", "a", "0x10", "16", "")]),
        ("a.yaml", "a: &x [1]\nb: *x\n", "a: &y [1]\nb: *y\n", [
            ("removed", "a.&x", "[1]", "", ""), ("added", "a.&y", "", "[1]", ""), ("changed", "b", "*x", "*y", ""),
        ]),
        ("a.yaml", "a: 1\n", "a: !!python/object/apply:os.system [1]\n", [
            ("changed", "a", "1", "{!tag:yaml.org,2002:python/object/apply:os.system: […]}", ""),
        ]),
        ("a.yaml", "1: a\n", '"1": a\n', [("removed", "1", "a", "", ""), ("added", '["\\"1\\""]', "", "a", "")]),
        ("a.yaml", "---\na: 1\n---\nb: 1\n", "---\na: 1\n---\nb: 2\n", [("changed", "[1].b", "1", "2", "")]),
        ("a.yaml", "? [a, b]\n: 1\n", "? [a, b]\n: 2\n", [("changed", '["? [\\"a\\", \\"b\\"]"]', "1", "2", "")]),
        ("a.toml", "[t]\na = 1.0\nd = 2020-01-01\n", "# x\n[t]\na = 1.00\nd = 2020-01-02\n", [
            ("changed", "t.a", "1.0", "1.00", ""), ("changed", "t.d", "2020-01-01", "2020-01-02", ""),
        ]),
    ],
)  # fmt: skip
def test_keys(path: str, old: str, new: str, expected: list[tuple[str, ...]]) -> None:
    view = keys.view(path.encode(), old.encode(), new.encode())
    assert rows(view) == expected
    if not expected:
        assert view.summary == "no value differs: only comments, layout, order or notation"


def test_a_key_that_occurs_twice_is_told() -> None:
    for path, old, new in ((b"a.json", b'{"a": 1}', b'{"a": 1, "a": 2, "a": 3}'), (b"a.yml", b"a: 1", b"a: 1\na: 2")):
        view = keys.view(path, old, new)
        assert rows(view)[0] == ("added", "a#2", "", "2", "")
        assert view.notes == ["the key a occurs more than once in a mapping: programs differ in which counts"]


def test_a_new_file_and_a_deleted_one_are_listed_by_their_first_keys() -> None:
    assert rows(keys.view(b"a.json", None, b'{"a": {"b": 1}}')) == [("added", "a", "", "{b: 1}", "")]
    assert rows(keys.view(b"a.json", b"[1]", None)) == [("removed", "(all)", "[1]", "", "")]


@each(
    ("path", "text", "problem"),
    [
        ("a.json", b"{", "the new text is not JSON: Expecting"),
        ("a.json", b"[" * 5000 + b"]" * 5000, "nested more than 60 deep"),
        ("a.json", b"[" * 70 + b"2" + b"]" * 70, "nested more than 60 deep"),
        ("a.yaml", b"a: [\n", "the new text is not YAML, line 2"),
        ("a.yaml", b"[" * 70 + b"]" * 70, "nested more than 60 deep"),
        ("a.yaml", b"\xff", "the new text is not YAML"),
        ("a.yaml", b"a: \x01", "the new text is not YAML"),
        ("a.toml", b"a = 1\na = 2\n", "the new text is not TOML: Cannot overwrite"),
        ("a.toml", b"\xff", "the new text is not TOML"),
    ],
)
def test_a_text_without_keys_is_a_sentence(path: str, text: bytes, problem: str) -> None:
    old = b"[" * 70 + b"1" + b"]" * 70 if text.startswith(b"[[") else b"a = 1" if path == "a.toml" else b"{}"
    with pytest.raises(NoView, match=problem.replace("[", r"\[")):
        keys.view(path.encode(), old, text)


def test_aliases_are_not_followed() -> None:
    bomb = "a: &a [x, x]\n" + "".join(
        f"{n}: &{n} [*{p}, *{p}, *{p}]\n" for p, n in zip("abcdefgh", "bcdefghi", strict=True)
    )
    assert len(rows(keys.view(b"a.yaml", b"a: 1\n", bomb.encode()))) == 9


# --- notebooks ---


def cell(
    name: str, source: str | list[str], count: int | None = 1, outputs: Sequence[object] = (), **more: object
) -> object:
    row: dict[str, object] = {
        "cell_type": "code",
        "source": source,
        "outputs": outputs,
        "execution_count": count,
        "metadata": {},
    }
    return row | ({"id": name} if name else {}) | more


def book(*cells: object, **more: object) -> bytes:
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells} | more).encode()


OUTPUT = {"output_type": "stream", "text": "hello"}


def test_cells_are_matched_by_id_and_outputs_are_folded() -> None:
    old = book(cell("a", "x = 1\n"), cell("b", "y"), cell("c", "z", outputs=[OUTPUT]), cell("d", "gone"))
    new = book(cell("n", "new"), cell("c", ["z"], 7, [OUTPUT, OUTPUT]), cell("b", "y", 9), cell("a", "x = 2\n"))
    view = notebook.view(b"n.ipynb", old, new)
    assert rows(view) == [
        ("added", "cell 1 (code)", "", "", ""),
        ("changed", "cell 2 (code)", "", "", f"was cell 3; outputs changed (1 → 2), {view.rows[1].note[-5:]}"),
        ("removed", "cell 4 (code)", "", "", ""),
        ("changed", "cell 4 (code)", "", "", "was cell 1"),
    ]
    assert clean(view).rows[3].lines == ["@@ -1,1 +1,1 @@", "-x = 1", "+x = 2"]
    assert view.notes == ["2 execution counts changed, folded"]


def test_cells_without_ids_are_matched_by_content() -> None:
    old = book(cell("", "a\nb"), cell("", "same"), cell("", "other", metadata={"x": 1}))
    new = book(cell("", "first"), cell("", "a\nc"), cell("", "same"), cell("", "other"), metadata={"kernelspec": {}})
    view = notebook.view(b"n.ipynb", old, new)
    assert [row[:2] for row in rows(view)] == [
        ("removed", "cell 1 (code)"), ("added", "cell 1 (code)"), ("added", "cell 2 (code)"),
    ]  # fmt: skip
    assert view.notes == ["1 cell's metadata changed, folded", "of the notebook itself changed: metadata"]
    one = notebook.view(b"n.ipynb", book(cell("", "a\nb")), book(cell("", "a\nc", cell_type="code")))
    assert [row[:2] for row in rows(one)] == [("changed", "cell 1 (code)")]


def test_only_noise_is_said_as_such() -> None:
    view = notebook.view(b"n.ipynb", book(cell("a", "x", 1)), book(cell("a", "x", 2)))
    assert (view.summary, view.rows) == ("no cell's source or output changed", [])
    assert view.notes == ["1 execution count changed, folded"]


@each(
    ("text",),
    [(b"{",), (b"[]",), (b'{"cells": 1}',), (b'{"cells": [1]}',), (b'{"cells": [{}]}',), (b'{"worksheets": []}',)],
)
def test_no_notebook(text: bytes) -> None:
    with pytest.raises(NoView, match="the new text is not a notebook of nbformat 4"):
        notebook.view(b"n.ipynb", None, text)


# --- databases ---


def base() -> sqlite3.Connection:
    made = sqlite3.connect(":memory:", isolation_level=None)
    made.executescript("create table t(id integer primary key, v, b); insert into t values(1,'a',x'00'),(2,'b',null);")
    made.executescript("create table u(rowid, x); insert into u values(1, 1); create view w as select * from t;")
    return made


def test_schema_and_rows_by_primary_key() -> None:
    made = base()
    old = made.serialize()
    made.executescript(
        "insert into t values(3,'c',1); update t set v='z', b=x'0101' where id=1; delete from t where id=2"
    )
    made.executescript("create trigger r after insert on t begin delete from u; end; alter table u add column y;")
    made.executescript("insert into u values(2, 2, 2); create table n(x); insert into n values(1)")
    view = database.view(b"a.db", old, made.serialize())
    assert rows(view) == [
        ("added", "trigger r", "", "", "runs inside programs that open the file"),
        ("added", "table n", "", "", ""),
        ("changed", "table u", "", "", ""),
        ("added", "rows of n", "", "1 row", ""),
        ("changed", "rows of t", "2 rows", "2 rows", "1 added, 1 removed, 1 changed"),
        ("changed", "rows of u", "1 row", "2 rows", "1 added, 1 changed"),
    ]
    assert [(row.kind, row.label, row.before, row.after) for row in view.rows[4].rows] == [
        ("changed", "1", "v='a', b=1 byte", "v='z', b=2 bytes"),
        ("removed", "2", "id=2, v='b', b=NULL", ""),
        ("added", "3", "", "id=3, v='c', b=1"),
    ]
    assert database.view(b"a.db", old, old).summary == "the same schema and rows"


def test_views_triggers_and_virtual_tables_are_never_run() -> None:
    made = base()
    made.executescript("create virtual table f using fts5(q); create view x as select abs(-9223372036854775808);")
    view = database.view(b"a.db", None, made.serialize())
    assert view.notes == ["f: a virtual table, not opened"]
    assert not any(row.label == "rows of f" for row in view.rows)
    assert [row.label for row in view.rows if row.flagged] == ["view w", "view x"]


def test_a_write_ahead_log_is_told_and_not_needed() -> None:
    data = base().serialize()
    view = database.view(b"a.db", data, data[:18] + b"\2\2" + data[20:])
    assert view.summary == "the same schema and rows"
    assert view.notes == ["it has a write-ahead log: rows that are only in the -wal file beside it are not seen"]


def test_more_rows_than_are_compared_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "MOST_COMPARED", 1)
    made = base()
    old = made.serialize()
    made.execute("insert into t values(3, 1, 1)")
    assert rows(database.view(b"a.db", old, made.serialize())) == [
        ("changed", "rows of t", "2 rows", "3 rows", "more than 1: only their number is compared")
    ]


def test_a_table_whose_rows_have_no_name_that_is_free() -> None:
    made = sqlite3.connect(":memory:", isolation_level=None)
    made.executescript("create table t(rowid, oid, _rowid_); insert into t values(1,2,3)")
    old = made.serialize()
    made.execute("insert into t values(1,2,3)")
    assert rows(database.view(b"a.db", old, made.serialize())) == [("changed", "rows of t", "1 row", "2 rows", "")]


def test_a_slow_database_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "_SECONDS", -1.0)
    monkeypatch.setattr(database, "_STEPS", 1)
    with pytest.raises(NoView, match="the old database cannot be read: interrupted"):
        database.view(b"a.db", base().serialize(), None)


@each(("data",), [(b"",), (b"SQLite format 3\0",), (b"x" * 4096,), (b"SQLite format 3\0" + b"x" * 4096,)])
def test_no_database(data: bytes) -> None:
    with pytest.raises(NoView, match=r"the new file is no SQLite database|the new database cannot be read"):
        database.view(b"a.db", None, data)


# --- archives ---


def packed(*members: tuple[str, bytes], mode: int = 0o644) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in members:
            info = zipfile.ZipInfo(name)
            info.external_attr, info.create_system = (0o100000 | mode) << 16, 3
            made.writestr(info, content)
    return data.getvalue()


def tarred(mode: str, *members: tuple[str, bytes, bytes]) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode=mode) as made:  # type: ignore[call-overload]
        for name, content, kind in members:
            info = tarfile.TarInfo(name)
            info.type, info.size = kind, len(content) if kind == tarfile.REGTYPE else 0
            info.linkname = content.decode() if kind != tarfile.REGTYPE else ""
            made.addfile(info, io.BytesIO(content))
    return data.getvalue()


REG = tarfile.REGTYPE


def test_members_of_a_zip_file() -> None:
    old, new = (
        packed(("a", b"1"), ("b", b"2"), ("c", b"3")),
        packed(("a", b"9"), ("../x", b"2"), ("c", b"3"), ("/y", b"")),
    )
    view = archive.view(b"a.whl", old, new)
    assert view.summary == "1 changed, 2 added, 1 removed; 2 to look at"
    assert rows(view) == [
        ("added", "../x", "", "1 B", "leads outside by .."),
        ("added", "/y", "", "0 B", "an absolute name"),
        ("changed", "a", "1 B", "1 B", "another content of the same size"),
        ("removed", "b", "1 B", "", ""),
    ]
    with pytest.warns(UserWarning, match="Duplicate"):
        twice = packed(("a", b"1"), ("a", b"2"), mode=0o4755)
    assert rows(archive.view(b"a.zip", packed(("a", b"2")), twice)) == [
        (
            "changed",
            "a",
            "1 B",
            "1 B",
            "runs with the rights of its owner or group; 2 members have this name; mode 0644 → 4755; the same content",
        )
    ]


@each(("mode",), [("w",), ("w:gz",), ("w:xz",), ("w:bz2",)])
def test_members_of_a_tar_file(mode: str) -> None:
    old = tarred("w", ("a", b"1", REG), ("b", b"2", REG), ("d", b"", tarfile.DIRTYPE))
    new = tarred(
        mode, ("a", b"10", REG), ("b", b"2", REG), ("l", b"/etc", tarfile.SYMTYPE), ("f", b"", tarfile.FIFOTYPE)
    )
    assert rows(archive.view(b"a.tar", old, new)) == [
        ("added", "f", "", "named pipe", "a named pipe"),
        ("added", "l", "", "symbolic link → /etc", "a symbolic link"),
        ("changed", "a", "1 B", "2 B", ""),
        ("removed", "d", "directory", "", ""),
    ]


def test_a_bomb_is_cut_and_hides_no_member(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MOST_BYTES", 1 << 20)
    bomb = b"\0" * (4 << 20)
    old = packed(("z", b"1"))
    view = archive.view(b"a.zip", old, packed(("a", bomb), ("z", b"2")))
    assert [row[:2] for row in rows(view)] == [("added", "a"), ("changed", "z")]
    assert rows(view)[1][4] == "contents not compared"
    assert view.notes == ["the new file unpacks to more than 1.0 MB: the rest is not compared"]
    view = archive.view(b"a.tgz", tarred("w:gz", ("z", b"1", REG)), tarred("w:gz", ("a", bomb, REG), ("z", b"2", REG)))
    assert (rows(view), view.notes) == ([], ["the new file unpacks to more than 1.0 MB: the rest is not listed"])


def test_a_sparse_member_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MOST_BYTES", 1 << 20)
    info = tarfile.TarInfo("s")
    info.pax_headers = {
        "GNU.sparse.map": "0,1",
        "GNU.sparse.size": str(1 << 50),
        "GNU.sparse.major": "0",
        "GNU.sparse.minor": "1",
    }
    data = info.tobuf(tarfile.PAX_FORMAT) + b"\0" * 2048
    assert archive.view(b"a.tar", None, data).notes == [
        "the new file unpacks to more than 1.0 MB: the rest is not listed"
    ]


def test_more_members_than_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MOST_MEMBERS", 2)
    view = archive.view(b"a.zip", None, packed(("a", b""), ("b", b""), ("c", b"")))
    assert len(view.rows) == 2
    assert view.notes == ["the new file has more than 2 members: the rest is not listed"]


@each(
    ("data",),
    [
        (b"x" * 600,),
        (b"",),
        (b"PK\x03\x04",),
        (b"\x1f\x8bxxxx",),
        (b"\x28\xb5\x2f\xfd",),
        (b"\xfd7zXZ\0",),
        (b"BZh9x",),
    ],
)
def test_no_archive(data: bytes) -> None:
    with pytest.raises(NoView, match=r"no zip or tar file|packed by zstd"):
        archive.view(b"a.zip", None, data)


def test_a_damaged_archive_tells_how_far_it_was_read() -> None:
    data = packed(("a", b"1" * 99), ("b", b"2" * 99))
    at = data.index(b"b", 40)
    view = archive.view(b"a.zip", packed(("a", b"1" * 99), ("b", b"2" * 99)), data[:at] + b"x" + data[at + 1 :])
    assert view.notes[0].startswith("the new file is damaged after 1 member: ")
    assert view.rows == []


# --- whatever comes in ---

SEEDS = {
    "json": b'{"a": [1, {"b": "x"}], "a": null}',
    "yaml": b"a: &x [1, !t 2]\nb: *x\n? c\n: |\n  d\n",
    "toml": b'[a]\nb = "x"\n[[c]]\nd = 1.0\n',
    "notebook": book(cell("a", "x"), cell("", ["y"], outputs=[OUTPUT])),
    "packages": lock(a={"version": "1", "integrity": "x"}),
    "archive": packed(("a", b"1"), ("b/c", b"2" * 100)),
    "database": base().serialize()[:4096] + base().serialize()[4096:],
}
PATHS = {"json": b"a.json", "yaml": b"a.yml", "toml": b"a.toml", "packages": b"package-lock.json"}
EDITS = st.lists(st.tuples(st.integers(0, 1 << 16), st.binary(max_size=4)), min_size=1, max_size=6)
VIEWS = {"notebook": notebook, "packages": packages, "archive": archive, "database": database}


@pytest.mark.filterwarnings("ignore::UserWarning")
@each(("kind",), [(kind,) for kind in SEEDS])
def test_hostile_bytes_are_a_view_or_a_sentence(kind: str) -> None:
    @given(EDITS)
    def change(edits: list[tuple[int, bytes]]) -> None:
        data = bytearray(SEEDS[kind])
        for at, part in edits:
            data[at % len(data) : at % len(data) + len(part)] = part
        try:
            view = VIEWS.get(kind, keys).view(PATHS.get(kind, b"a"), SEEDS[kind], bytes(data))
        except NoView:
            return
        for row in clean(view).rows:
            assert row.label.isprintable() and row.note.isprintable()

    change()


def test_texts_that_act_or_hide_are_escaped_and_cut() -> None:
    view = clean(keys.view(b"a.json", b"{}", json.dumps({"\u202ea\x1b[2J\ud800": "x" * 10_000, "b": 1}).encode()))
    assert view.rows[0].label == '["\\u{202e}a\\u001b[2J\\xed\\xa0\\x80"]'
    assert len(view.rows[0].after) == 301
    assert len(clean(keys.view(b"a.json", b"{}", json.dumps({str(n): n for n in range(900)}).encode())).rows) == 500
