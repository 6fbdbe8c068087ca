"""Names of forks and projects as hosts: unique, the same tomorrow."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple, cast

from mudroom.ext.web.server.fork_address import (
    ForkAddress,
    hosts,
    label_of,
    labelled,
    long_label,
    parse_host,
    project_label,
    short_label,
)
from mudroom.session.upkeep import Vault
from mudroom.vault.forks.endpoint import ForkPorts, ports_of, remember
from mudroom.vault.store.fork import Fork
from tiers import each


@each("name", ["dev", "a", "3000", "a-b", "a" * 30, "agent-1"])
def test_a_name_that_is_a_label_is_its_own(name: str) -> None:
    assert label_of(name) == name


@each("name", ["Dev", "a_b", "a.b", "a-", "a" * 31, "xn", "xn--a", "a--b", "a-0123abcd", "A" * 64, "a._-b"])
def test_another_name_has_a_hash(name: str) -> None:
    label = label_of(name)
    assert label != name and len(label) <= 30
    assert re.fullmatch("[a-z0-9](?:[a-z0-9-]*[a-z0-9])?-[0-9a-f]{8}", label), label
    assert label_of(label) != label, "no fork takes the label of another by its name"
    address = parse_host(f"{label}--project.localhost".encode())
    assert address is not None and address.fork == label


def test_names_that_look_alike_differ() -> None:
    names = ["a-b", "a_b", "a.b", "A-b", "a-B", "a--b"]
    assert len({label_of(name) for name in names}) == len(names)


@each(
    ("host", "wanted"),
    [
        ("dev--app.localhost:8765", ForkAddress(None, "dev", "app", 8765)),
        ("3000.dev--app.localhost:8765", ForkAddress(3000, "dev", "app", 8765)),
        ("DEV--App.LOCALHOST:8765", ForkAddress(None, "dev", "app", 8765)),
        ("a-b--c-d.localhost", ForkAddress(None, "a-b", "c-d", 80)),
        ("dev.app.localhost:8765", ForkAddress(None, "dev", "app", 8765, True)),
        ("3000.dev.app.localhost:8765", ForkAddress(3000, "dev", "app", 8765, True)),
        *((host, None) for host in (
            "app.localhost:1", "localhost:1", "127.0.0.1:1", "a.b.c.localhost:1", "65536.a.b.localhost:1",
            "a.b.localhost.:1", "0.a.b.localhost:1", "a.b.localhost:65536", "a.b.localhost:0", "a.b.localhost:",
            "a.b.localhost:1 ", "x@a.b.localhost", ".a.b.localhost", "a..localhost", "a_b.c.localhost",
            "a.b.localhost:1/", "a.b.localhost\n", "a.b.example:1", "", "a---b.localhost:1", "a--b--c.localhost:1",
            "-a--b.localhost:1", "a--b-.localhost:1", "a--b.c.localhost:1", "x.a--b.localhost:1", "a--.localhost:1",
        )),
    ],
)  # fmt: skip
def test_a_host(host: str, wanted: ForkAddress | None) -> None:
    assert parse_host(host.encode()) == wanted
    if wanted is not None:
        assert parse_host(wanted.host.encode()) == wanted._replace(is_typed=False)


class Named(NamedTuple):
    path: bytes
    project: bytes


def test_projects_of_the_same_name(tmp_path: Path) -> None:
    """The oldest keeps the short label while others come and go; the long one is always each one's own."""
    vaults = []
    for number, project in enumerate((b"/x/App", b"/y/app", b"/z/mudroom", b"/u/---")):
        path = tmp_path / f"{os.path.basename(project).decode()}-{number:012x}"
        path.mkdir()
        (path / "format").touch()
        os.utime(path / "format", ns=(10 - number, 10 - number))
        vaults.append(cast("Vault", Named(os.fsencode(path), project)))
    first, second, page, nameless = vaults
    assert short_label(first.project) == short_label(second.project) == "app"
    assert project_label(vaults, second) == "app" and project_label(vaults, first) == "app-000000000000"
    assert project_label(vaults, page) == "mudroom-000000000002", "mudroom.localhost is a name for the page"
    assert project_label(vaults, nameless) == "000000000003"
    for vault in vaults:
        assert labelled(vaults, long_label(vault.path)) is vault
        assert labelled(vaults, project_label(vaults, vault)) is vault
    assert labelled(vaults, "other") is None


def test_the_first_port_keeps_the_address(tmp_path: Path) -> None:
    fork = Fork("dev", os.fsencode(tmp_path), os.fsencode(tmp_path))
    assert hosts("app", fork, ()) == ["dev--app.localhost"]
    assert hosts("app", fork, (3000, 5173)) == ["dev--app.localhost", "5173.dev--app.localhost"]
    remember(fork, ForkPorts(5173, {3000: 40000}))
    assert ports_of(fork) == ForkPorts(5173, {3000: 40000})
    assert hosts("app", fork, (3000, 5173)) == ["3000.dev--app.localhost", "dev--app.localhost"]
    assert hosts("app", fork, (3000,)) == ["dev--app.localhost"], "while it is not served"
    (tmp_path / "ports").write_bytes(b"[1")
    assert ports_of(fork) == ForkPorts()
