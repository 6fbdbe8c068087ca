"""Command lines and environments for Windows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudroom.ext.windows.core import windows_command
from mudroom.ext.windows.core.windows_command import (
    environment_block,
    find_program,
    is_batch,
    needs_shell,
    quote,
    quote_batch,
)
from tiers import each


def split(line: str) -> list[str]:
    """As the C runtime does ("Parsing C command-line arguments"): written from its rules, not from our quoting."""
    assert line[0] == '"'
    end = line.index('"', 1)
    words, rest, place = [line[1:end]], line[end + 1 :], 0
    while True:
        while place < len(rest) and rest[place] in " \t":
            place += 1
        if place == len(rest):
            return words
        word, quoted = "", False
        while place < len(rest) and (quoted or rest[place] not in " \t"):
            slashes = 0
            while place < len(rest) and rest[place] == "\\":
                slashes, place = slashes + 1, place + 1
            if place < len(rest) and rest[place] == '"':
                word += "\\" * (slashes // 2)
                if slashes % 2:
                    word += '"'
                elif quoted and rest[place + 1 : place + 2] == '"':
                    word, place = word + '"', place + 1
                else:
                    quoted = not quoted
                place += 1
            else:
                word += "\\" * slashes
                if place < len(rest) and (quoted or rest[place] not in " \t"):
                    word, place = word + rest[place], place + 1
        words.append(word)


@each(
    ("words", "line"),
    [
        (["c"], '"c"'),
        (["c", "a", "b c"], '"c" a "b c"'),
        (["c", ""], '"c" ""'),
        (["c", 'say "hi"'], '"c" "say \\"hi\\""'),
        (["c", "d\\"], '"c" d\\'),
        (["c", "d e\\"], '"c" "d e\\\\"'),
        (["c", 'a\\\\"b'], '"c" "a\\\\\\\\\\"b"'),
        (["C:\\Program Files\\x.exe", "&calc"], '"C:\\Program Files\\x.exe" &calc'),
    ],
)
def test_quoting(words: list[str], line: str) -> None:
    assert quote(words) == line
    assert split(line) == words


@given(st.lists(st.text(st.sampled_from('ab "\\\t&%^'), max_size=8)))
def test_every_word_arrives(words: list[str]) -> None:
    assert split(quote(["c.exe", *words])) == ["c.exe", *words]


@each("words", [[], ["a\0"], ["c", "\0"], ['a"b'], ["c", "x" * 33_000]])
def test_what_cannot_be_quoted(words: list[str]) -> None:
    with pytest.raises(ValueError):
        quote(words)


@each("name", ["a.bat", "a.CMD", "a.bat ", "a.bat. .", "a.cmd...", "d.exe\\a.Bat"])
def test_batch_files(name: str) -> None:
    assert is_batch(name)


@each("name", ["a.exe", "a.bat.exe", "bat", "a.batx", "cmd"])
def test_other_programs(name: str) -> None:
    assert not is_batch(name)


SHELL = "C:\\Windows\\System32\\cmd.exe"


def test_a_batch_file_is_run_by_a_shell_that_is_named() -> None:
    line = quote_batch(SHELL, ["C:\\n\\npm.cmd", "install", "a b", "x&calc", "^y", "!z!", "a=b", "a,b", "a;b", "d\\"])
    words = 'install "a b" "x&calc" "^y" "!z!" "a=b" "a,b" "a;b" d\\'
    assert line == f'"{SHELL}" /e:on /v:off /d /s /c ""C:\\n\\npm.cmd" {words}"'


@each("word", ['"', "%PATH%", "a\nb", "\r", '"&calc&"', "100%", "\0", "x" * 9000])
def test_what_a_batch_file_cannot_be_given(word: str) -> None:
    with pytest.raises(ValueError):
        quote_batch(SHELL, ["a.bat", word])


FILES = {"C:\\w\\a.exe", "C:\\w\\npm.cmd", "D:\\p\\a.exe", "D:\\p\\tool.bat", "C:\\w\\npm"}


@each(
    ("name", "found"),
    [
        ("a", "C:\\w\\a.exe"),
        ("A.EXE", None),  # this world has no case folding
        ("a.exe", "C:\\w\\a.exe"),
        ("npm", "C:\\w\\npm.cmd"),  # never the file without an extension: Windows cannot run it
        (".\\tool.bat", "D:\\p\\.\\tool.bat"),
        ("tool", None),  # in the current directory alone
        ("D:\\p\\a", "D:\\p\\a.exe"),
        ("D:/p/a.exe", "D:\\p\\a.exe"),
        ("D:a.exe", None),
        ("a.exe:s", None),
        ("\\p\\a.exe", None),  # relative to whatever drive is the current one
        ("nothing", None),
    ],
)
def test_where_a_program_is_found(name: str, found: str | None) -> None:
    def is_file(path: str) -> bool:
        return path in FILES or path.replace("\\.\\", "\\") in FILES

    assert find_program(name, '.;;rel;"C:\\w"', ".COM;.EXE;.BAT;.CMD", is_file, "D:\\p") == found


def test_an_environment() -> None:
    assert environment_block({}) == "\0\0"
    assert environment_block({"b": "2", "A": "1", "_": "", "C": "x=y"}) == "A=1\0b=2\0C=x=y\0_=\0\0"


@each("variables", [{"Path": "", "PATH": ""}, {"": "x"}, {"=C:": "x"}, {"a": "\0"}, {"a\0": ""}])
def test_what_cannot_be_in_an_environment(variables: dict[str, str]) -> None:
    with pytest.raises(ValueError):
        environment_block(variables)


@given(st.text(alphabet='a \t\\"', max_size=24))
def test_a_line_is_split_as_the_c_runtime_does(rest: str) -> None:
    line = '"the program" ' + rest
    try:
        found = windows_command.split(line)
    except ValueError:
        return  # a quote is open
    assert found == split(line)


@each(
    ("line", "words"),
    [
        (r"C:\Python\python.exe judge.py", [r"C:\Python\python.exe", "judge.py"]),
        (r'"C:\Program Files\x.exe" -c "print(\"a b\")"  ""', [r"C:\Program Files\x.exe", "-c", 'print("a b")', ""]),
        ("pytest -q", ["pytest", "-q"]),
        ("  ", []),
    ],
)
def test_a_line_without_a_shell(line: str, words: list[str]) -> None:
    assert windows_command.split(line) == words


def test_a_quote_that_is_open() -> None:
    with pytest.raises(ValueError, match="No closing quotation"):
        windows_command.split('pytest "a b')


def test_lines_for_cmd() -> None:
    for line in ("a && b", "a > b", "echo x", " If exist a.txt exit 1", "echo %PATH%"):
        assert needs_shell(line), line
    for line in ("pytest -q", "date.exe", r"C:\dir\x.exe", "dir-list", r"copy\x.exe", "ifx", '"a b" c'):
        assert not needs_shell(line), line
