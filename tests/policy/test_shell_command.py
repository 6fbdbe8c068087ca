"""A command of a policy that is a text: the words that run it, by system."""

from __future__ import annotations

import pytest

from mudroom.errors import UsageError
from mudroom.policy.config import parse_settings
from mudroom.policy.setting_type import shell_command

LINE = b'pytest -q "a b" && echo %OK%'


def test_the_shell_is_the_systems() -> None:
    assert parse_settings(b'verify: {command: "make test"}', "policy.yaml").verify == (b"/bin/sh", b"-c", b"make test")
    assert shell_command(LINE, "verify.command", "linux") == (b"/bin/sh", b"-c", LINE)
    assert shell_command(LINE, "verify.command", "darwin") == (b"/bin/sh", b"-c", LINE)
    assert shell_command(LINE, "verify.command", "win32") == (b"cmd", b"/d", b"/s", b"/c", LINE)


def test_cmd_reads_one_line() -> None:
    block = b"make test\n"  # of YAML: "command: |"
    assert shell_command(block, "verify.command", "linux")[-1] == block
    assert shell_command(block, "verify.command", "win32")[-1] == b"make test"
    with pytest.raises(UsageError) as caught:
        shell_command(b"make\nmake test\n", "verify.command", "win32")
    assert str(caught.value) == (
        "verify.command has several lines, and cmd.exe reads one "
        "(join them with &&, or name a script as a list: [python, check.py])"
    )
