"""Every setting has all its facts in one row, and what is made from the rows agrees with them."""

from __future__ import annotations

import re

import yaml

from mudroom.core.settings import Settings
from mudroom.policy.config import parse_settings
from mudroom.policy.first_policy import first_policy
from mudroom.policy.schema import schema
from mudroom.policy.setting_row import SettingRow
from mudroom.policy.settings_table import ROWS, SECTIONS
from test_policy_schema import accepts
from tiers import each

EVERY = each("row", ROWS)


def test_keys_are_unique() -> None:
    keys = [row.key for row in ROWS]
    assert len(keys) == len(set(keys))
    assert [row for rows in SECTIONS.values() for row in rows.values()] == list(ROWS)


@EVERY
def test_a_row_has_every_fact(row: SettingRow) -> None:
    assert re.fullmatch(r"[a-z_]+\.[a-z_]+", row.key)
    assert row.type.schema
    assert row.default
    for text in (row.help, row.example):
        assert text
        assert text.isprintable()
        assert not text.endswith(".")
    assert row.merge in ("add up", "stricter", "own first", "nearest")
    assert not (row.adds and row.stricter), "a list adds up, or is combined"
    assert not row.tightens or row.adds


@EVERY
def test_an_example_is_valid_and_no_default(row: SettingRow) -> None:
    section = row.key.partition(".")[0]
    text = f"{section}: {{{row.name}: {row.example}}}\n"
    assert parse_settings(text.encode(), "policy.yaml") != Settings()
    assert accepts(schema(), yaml.safe_load(text))


@EVERY
def test_the_schema_has_the_help(row: SettingRow) -> None:
    section = row.key.partition(".")[0]
    found = schema()["properties"][section]["properties"][row.name]
    assert found["description"].startswith(row.help)


@EVERY
def test_the_first_file_has_an_example_or_a_value(row: SettingRow) -> None:
    written = yaml.safe_load(first_policy())
    section = row.key.partition(".")[0]
    if not row.alias and row.name not in written.get(section, {}):
        assert re.search(rf"^ *# +{row.name}: {re.escape(row.example)} +# {re.escape(row.help)}", first_policy(), re.M)


def test_the_first_file_is_valid_with_all_its_examples() -> None:
    lines = [re.sub(r"^( *)# (?=[ a-z]+[a-z_]*:)", r"\1", line) for line in first_policy().splitlines()[6:]]
    lines = [line for line in lines if not line.startswith("include:")]
    found = yaml.safe_load("\n".join(lines))
    assert {f"{section}.{key}" for section in SECTIONS for key in found[section]} == {
        row.key for row in ROWS if not row.alias
    }
    parse_settings("\n".join(lines).encode(), "policy.yaml")
