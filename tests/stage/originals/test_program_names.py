"""Commands in the settings of a repository, and the files that they name."""

from __future__ import annotations

import pytest

from mudroom.core.git.settings_file import parse_settings
from mudroom.core.tree.manifest import words_of
from mudroom.stage.originals.git_settings import commands, may_name
from tiers import each


@each(
    "config",
    [
        "[core]\n fsmonitor = tools/x", "[core]\n sshCommand = tools/x", "[core]\n Editor = tools/x",
        '[filter "a"]\n clean = tools/x %f', '[filter "a"]\n process = tools/x', '[diff "a"]\n textconv = tools/x',
        "[diff]\n external = tools/x", '[merge "a"]\n driver = tools/x %O %A %B', '[mergetool "a"]\n cmd = tools/x',
        '[difftool "a"]\n path = tools/x', '[credential "https://a"]\n helper = !tools/x',
        '[gpg "ssh"]\n program = tools/x', "[pager]\n log = tools/x", "[alias]\n z = !sh tools/x",
        '[trailer "a"]\n command = tools/x', '[remote "a"]\n uploadpack = tools/x',
        '[submodule "a"]\n update = !tools/x',
    ],
)  # fmt: skip
def test_settings_that_are_commands(config: str) -> None:
    assert may_name(config.encode())
    (value,) = commands(parse_settings(config.encode()))
    assert b"tools/x" in words_of(value)


@pytest.mark.parametrize(
    "config",
    [
        '[remote "a"]\n url = tools/x',
        "[alias]\n z = log tools/x",
        "[core]\n excludesFile = tools/x",
        '[submodule "a"]\n path = tools/x',
        "[core]\n fsmonitor",
    ],
)
def test_settings_that_are_none(config: str) -> None:
    assert [word for value in commands(parse_settings(config.encode())) for word in words_of(value)] == []


def test_the_settings_of_most_repositories_are_not_parsed() -> None:
    config = b'[core]\n bare = false\n[remote "origin"]\n url = git@host:a/b.git\n fetch = +refs/*:refs/*\n'
    assert not may_name(config)


@each(
    ("text", "words"),
    [
        ("exec sh ./tools/check.sh --all", "exec sh tools/check.sh all"),
        ('#!/bin/sh\n"$(git rev-parse --show-toplevel)/tools/check" "$@"', "bin/sh tools/check"),
        ('sh "$PWD/tools/x" ${A}/y $B/z', "sh tools/x A y z"),
        ("f() { python3 lint.py; }; f", "python3 lint.py f"),
        ("A=tools/x;B='tools/y' && tools/z|cat", "tools/x tools/y tools/z cat"),
        ("\x7fELF\0tools/run\0", "tools/run"),
        ("npm run lint -- . ..", "npm run lint"),
    ],
)
def test_words_that_may_be_paths(text: str, words: str) -> None:
    assert words_of(text.encode()) >= set(words.encode().split())
    assert words_of(text.encode()).isdisjoint((b"", b".", b".."))
