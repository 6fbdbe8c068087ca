"""What git's settings may show, and passwords in URLs."""

from __future__ import annotations

import pytest

from mudroom.core.confinement.credential_file import git_identity, has_password, holds_secret
from tiers import each


@each(
    ("settings", "secret"),
    [
        (b"[user]\n\tname = A\n", False),
        (b'[url "ssh://git@github.com/"]\n\tinsteadOf = https://github.com/\n', False),
        (b'[url "https://ghp_abc@github.com/"]\n\tinsteadOf = https://github.com/\n', True),
        (b'[url "https://u:p@example.org/"]\n', True),
        (b"[http]\n\textraHeader = Authorization: Basic abc\n", True),
        (b"[sendemail]\n\tsmtpPass = x\n", True),
        (b"[github]\n\ttoken = x\n", True),
        (b"[gitlab]\n\tpersonal = glpat-AbCdEfGhIjKlMnOpQrSt\n", True),
        (b'[credential]\n\thelper = "!f() { echo password=hunter2; }; f"\n', True),
        (b'[credential "https://github.com"]\n\thelper = !gh auth git-credential\n\tusername = a\n', False),
        (b"[user]\n\tsigningkey = 3AA5C34371567BD2\n[core]\n\taskPass = /usr/bin/ksshaskpass\n", False),
        (b"[http]\n\tsslKey = ~/client.key\n\tsslCert = ~/client.pem\n", False),
        (b"[alias]\n\tlg = log --pretty=format:'%h %an'\n[init]\n\tdefaultBranch = main\n", False),
        (b"bare =", False),
        (b"", False),
    ],
)
def test_settings_of_git(settings: bytes, secret: bool) -> None:
    assert holds_secret(settings) is secret


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (b"[user]\n\tname = A B\n\temail=a@b\n[github]\n\ttoken = x\n", b"[user]\n\temail = a@b\n\tname = A B\n"),
        (b'[ USER ]\nName = "A # B"\n', b'[user]\n\tname = "A # B"\n'),
        (b"[github]\nname = A\ntoken = x\n", b""),
        (b'[user "work"]\n\tsigningkey = x\n', b""),
        (b"", b""),
    ],
)
def test_who_the_user_is(settings: bytes, expected: bytes) -> None:
    assert git_identity(settings) == expected


def test_a_password_is_in_a_url() -> None:
    assert has_password(b"x https://u:p@h/") and not has_password(b"https://h/a:b@c") and not has_password(b"u:p@h")
