"""What the foreign suites are held to: both ways, without a suite."""

from __future__ import annotations

from pathlib import Path

import pytest

import foreign_document
import suite
from suite import Ran, Table, TableError

OTHER = "user" if suite.USER == "root" else "root"


def table(tmp_path: Path, text: str) -> Table:
    path = tmp_path / "table.toml"
    path.write_text(text)
    return suite.read_table(path)


def entry(**fields: object) -> str:
    fields = {"tests": ["a.*"], "inside": "fail", "reason": "why"} | fields
    return "[[differs]]\n" + "".join(f"{key} = {value!r}\n" for key, value in fields.items())


def words(lines: list[str]) -> list[str]:
    return [line.split(":")[0] + line.split(":")[1] for line in lines]


def test_what_is_worse_inside_is_unexpected() -> None:
    native = {"a.same": "fail", "a.worse": "ok", "a.better": "fail", "a.skipped": "ok", "a.gone": "ok"}
    inside = Ran({"a.same": "fail", "a.worse": "fail", "a.better": "ok", "a.skipped": "skip"}, {"a.worse": "EPERM"})
    lines = suite.surprises(native, inside, Table("", "", ()), "overlay")
    assert words(lines) == ["unexpected a.gone", "unexpected a.skipped", "unexpected a.worse"]
    assert lines[2].endswith("EPERM") and "ok natively, fail here (overlay, " in lines[2]


def test_an_entry_is_for_its_outcome_its_words_its_modes_and_its_users(tmp_path: Path) -> None:
    native, inside = {"a.b": "ok"}, Ran({"a.b": "fail"}, {"a.b": "EPERM: x"})
    for fields, expected in {
        (): [],
        (("said", "EPERM.*"),): [],
        (("said", "EPERM"),): ["unexpected a.b", "no longer so a.*"],
        (("inside", "skip"),): ["unexpected a.b", "no longer so a.*"],
        (("modes", ("copy",)),): ["unexpected a.b"],
        (("users", (OTHER,)),): ["unexpected a.b"],
    }.items():
        options = {key: list(value) if isinstance(value, tuple) else value for key, value in fields}
        assert words(suite.surprises(native, inside, table(tmp_path, entry(**options)), "overlay")) == expected, fields


def test_an_expected_difference_that_is_none_any_more(tmp_path: Path) -> None:
    expected = table(tmp_path, entry())
    fine = Ran({"a.b": "ok"})
    assert words(suite.surprises({"a.b": "ok"}, fine, expected, "overlay")) == ["no longer so a.*"]
    assert words(suite.surprises({}, Ran({}), expected, "overlay")) == ["no longer so a.*"]
    assert suite.surprises({}, Ran({}), expected, "overlay", whole=False) == []
    assert words(suite.surprises({"a.b": "ok"}, fine, expected, "overlay", whole=False)) == ["no longer so a.*"]
    assert suite.surprises({"a.b": "fail"}, Ran({"a.b": "fail"}), expected, "overlay") == []  # nor is it native


def test_a_dead_module_stands_for_its_tests() -> None:
    lines = suite.surprises({"a.b": "ok", "ab.c": "ok"}, Ran({"a": "died"}), Table("", "", ()), "overlay")
    assert words(lines) == ["unexpected a", "unexpected ab.c"]


@pytest.mark.parametrize(
    "text",
    [
        "[[differ]]",
        entry(reason=" "),
        entry(modes=["Overlay"]),
        entry(users=["nobody"]),
        entry(tests=[]),
        entry(why=1),
        '[[differs]]\ntests = ["a"]\nreason = "no outcome"',
    ],
)
def test_a_table_with_a_mistake(tmp_path: Path, text: str) -> None:
    with pytest.raises(TableError, match=r"table\.toml"):
        table(tmp_path, text)


@pytest.mark.parametrize("path", sorted(suite.TABLES.iterdir()), ids=lambda path: path.stem)
def test_every_table_can_be_read(path: Path) -> None:
    assert path.suffix == ".toml" and suite.read_table(path)


@pytest.mark.parametrize("name", suite.SOURCES)
def test_an_absent_suite_is_skipped_by_name(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "FETCHED", tmp_path)
    monkeypatch.delenv(suite.SOURCES[name].variable, raising=False)
    with pytest.raises(pytest.skip.Exception, match=f"^foreign suite absent: .*{suite.SOURCES[name].variable}"):
        suite.source(name)
    monkeypatch.setenv(suite.SOURCES[name].variable, str(tmp_path))
    assert suite.source(name) == tmp_path


def test_the_document_is_made_from_the_tables() -> None:
    assert foreign_document.DOCUMENT.read_text() == foreign_document.document(), (
        "python tests/foreign/foreign_document.py"
    )


@pytest.mark.parametrize(("modes", "applies"), [(["level 2"], True), (["level 2, docker"], True), (["overlay"], False)])
def test_an_entry_for_every_engine_or_for_one(tmp_path: Path, modes: list[str], applies: bool) -> None:
    (one,) = table(tmp_path, entry(modes=modes)).differs
    assert one.applies("level 2, docker") is applies
    assert one.applies("level 2, podman") is (modes == ["level 2"])
