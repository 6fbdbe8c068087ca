"""Which files are secrets by their names and places, and what their content clears.

``secret_files.txt`` are names from public lists that the table was not written from; a row is the list, the name and
the kind of content.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from mudroom.core.text.table import read_table
from mudroom.core.tree.pattern import matches
from mudroom.core.tree.secret import LIMIT, holds, is_masked, secret_test, sent_test
from tiers import each

CONTENT = {
    "ini": b"[main]\nuser = ada\npassword = hunter-2-x\n",
    "env": b"STAGE=prod\nAPI_TOKEN=s3cr3t-9471\n",
    "json": b'{"user": "ada", "password": "hunter-2-x"}\n',
    "yaml": b"user: ada\npassword: hunter-2-x\n",
    "php": b"<?php define('DB_PASSWORD', 'hunter-2-x');\n",
    "xml": b"<server><user>ada</user><password>hunter-2-x</password></server>\n",
    "ruby": b'config.secret_key = "hunter-2-x"\n',
    "value": b"s3cr3t-9471-aKq\n",
    "key": b"-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n",
    "pgp": b"-----BEGIN PGP PRIVATE KEY BLOCK-----\nAAAA\n-----END PGP PRIVATE KEY BLOCK-----\n",
    "binary": b"\0\1\2",
    "auths": b'{"auths": {"https://index.docker.io/v1/": {"auth": "YWRhOmh1bnRlci0y"}}}\n',
    "npmrc": b"registry=https://registry.example/\n//registry.example/:_authToken=s3cr3t-9471\n",
}
FILES = [row.split() for row in (Path(__file__).parent / "secret_files.txt").read_text().splitlines() if row[:1] != "#"]
LEAST = {"talisman": 0.9, "leaky-repo": 0.85, "scanner": 0.9, "zero": 0.88, "issue": 1.0}
"""Share of a list that is found."""


def is_one(path: bytes, data: bytes) -> bool:
    return holds(secret_test(path), data)


@pytest.mark.parametrize("source", LEAST)
def test_names_of_public_lists_are_found(source: str) -> None:
    rows = [(name, kind) for listed, name, kind in FILES if listed == source]
    found = [name for name, kind in rows if is_one(name.encode(), CONTENT[kind])]
    missing = sorted({name for name, _kind in rows}.difference(found))
    assert len(found) >= LEAST[source] * len(rows) > 0, missing


@each(
    "path",
    b"""prod.env .env .env.local .env~ .env-prod secrets.toml service_account.json AuthKey.p8 client.ovpn
    kubeconfig.yaml prod.tfvars .my.cnf server.key.bak .server.key.swp id_ed25519.bak a.KEY credentials.json .netrc
    .ssh/config deploy/.ssh/id_work .kube/config .streamlit/secrets.toml .aws/credentials .bash_history""".split(),
)
def test_the_name_is_sufficient(path: bytes) -> None:
    assert secret_test(path) in ("name", "key")


@each(
    "path",
    b""".env.example .env.sample .env.template .env.dist .env.example~ id_rsa.pub secrets.yml.j2
    a.key.md server.pem.example key env pem settings.json x.pemx kubeconfig.go secrets.py token.py credentials.js
    tokenizer.json README.md .secrets.baseline passwords.html htpasswd.1 src/ssh/config config/database.rb""".split(),
)
def test_other_names(path: bytes) -> None:
    assert secret_test(path) == ""


@each("name", b".npmrc .pypirc wp-config.php example.env .aws/config db-secrets.yaml".split())
def test_the_content_decides(name: bytes) -> None:
    assert secret_test(name) == "content"
    assert is_one(name, CONTENT["npmrc"]) and not is_one(name, b"registry=https://registry.example/\n")
    assert is_one(name, b"\xff\xfe\0"), "it cannot be understood"
    assert holds("content", None), f"it cannot be read, or has more than {LIMIT} bytes"
    assert not is_one(name, b"") and not is_one(name, b" \n")


def test_a_certificate_is_public() -> None:
    public = b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
    assert not is_one(b"ca.pem", b"# comment\n" + public + public.replace(b"CERTIFICATE", b"PUBLIC KEY"))
    assert (
        is_one(b"ca.pem", public + CONTENT["key"]) and is_one(b"ca.pem", b"MIIB") and is_one(b"ca.key", b"\0" + public)
    )
    assert not is_one(b"release.tar.gz.asc", b"-----BEGIN PGP SIGNATURE-----\niQ\n-----END PGP SIGNATURE-----\n")
    assert is_one(b"backup.asc", CONTENT["pgp"])
    assert not is_one(b".npmrc", public) and is_one(b".npmrc", public + CONTENT["npmrc"] + public)


def test_among_others_files_only_what_means_nothing_else() -> None:
    assert [sent_test(b"vendor/x/" + name) for name in (b".env", b".npmrc", b"cacert.pem", b".env.local")] == [
        "name", "content", "", "name",
    ]  # fmt: skip
    assert is_masked(b"vendor/x/cacert.pem", (), ()) and not is_masked(b"vendor/x/.npmrc", (), ())
    assert is_masked(b".npmrc", (), ()) and not is_masked(b".npmrc", (), (b".npmrc",))


def test_a_row_has_a_test_a_source_and_names() -> None:
    seen: dict[str, str] = {}
    for row in read_table("secrets"):
        test, source, names = row.split(" | ")
        assert test in ("name", "key", "content", "word", "suffix") and set(source.rpartition(": ")[2].split()) <= set(
            "RID"
        )
        for name in names.split() if test not in ("word", "suffix") else ():
            assert name == name.lower() and name.count("*") <= 1
            assert seen.setdefault(name, row) == row, f"{name} is in two rows"


@each(
    ("path", "patterns", "expected"),
    [
        (b"a/b.pem", [b"a/b.pem"], True),
        (b"a/b.pem", [b"b.pem"], True),
        (b"a/b.pem", [b"a"], True),
        (b"a/b.pem", [b"a/"], True),
        (b"a/b.pem", [b"*.pem"], True),
        (b"a/b.pem", [b"b*"], True),
        (b"a/b.pem", [b"c", b"*.key", b"a/b"], False),
    ],
)
def test_patterns(path: bytes, patterns: list[bytes], expected: bool) -> None:
    assert matches(path, patterns) is expected
