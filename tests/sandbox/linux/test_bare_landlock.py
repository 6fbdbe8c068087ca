"""Level 0 where user namespaces are forbidden: Landlock keeps the command from writing, and that is said."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from conftest import Place, full_listing
from mudroom.sandbox.host.host import landlock_abi
from satellites import needs
from test_without_namespaces import Contained
from tiers import together

pytestmark = [
    pytest.mark.both_users,
    pytest.mark.root,
    pytest.mark.skipif(landlock_abi() == 0, reason="this kernel has no Landlock"),
]


@pytest.fixture
def contained(place: Place) -> Contained:
    place.write("f", "one\n")
    (place.home / ".config/gh").mkdir(parents=True)
    (place.home / ".config/gh/hosts.yml").write_text("HIDDEN")
    (place.home / ".config/tool").mkdir()
    (place.home / ".config/tool/settings").write_text("shown")
    (place.home / ".bashrc").write_text("rc")
    found = Contained(place)
    found.environment |= {name: value for name, value in os.environ.items() if name == "PYTHONPATH"}
    return found


def run(contained: Contained, script: str, *options: str) -> dict[str, Any]:
    verb = ["exec"] if options else ["run", "--keep", "--level", "0"]
    done = contained.mudroom(*verb, "--json", *options, "--", "sh", "-c", script)
    assert done.stdout, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_it_works_in_a_copy_and_says_so(contained: Contained) -> None:
    result = run(
        contained, "cat f; echo two >> f; cat ~/.bashrc ~/.config/tool/settings; mktemp > /dev/null; chmod 600 f"
    )
    assert (result["level"], result["exit_code"], result["stdout"]) == (0, 0, "one\nrcshown")
    assert any("user namespaces are not permitted here" in note and "Landlock" in note for note in result["notes"])
    assert [row["path"] for row in result["changes"]["files"]] == ["f"]


ATTEMPTS = (
    "echo bad >> {h}/.bashrc", "rm -rf {h} {p}", "touch {h}/new {p}/new /tmp/mudroom-bad",
    "mkdir {h}/new; mkdir {h}/.config/new", "mv {h}/.bashrc {h}/other", "ln {h}/.bashrc l && echo bad > l",
    "truncate -s 0 {h}/.bashrc", "chmod 777 {h}/.bashrc {h} {p} {p}/f", "touch -d 2001-01-01 {h}/.bashrc",
    "setfattr -n user.a -v b {h}/.bashrc", "echo bad > {h}/.config/gh/hosts.yml",
    "cat {h}/.config/gh/hosts.yml; grep -r HIDDEN {h}", "cat {s}/vaults/*/project && echo HIDDEN",
    "ln -s {h}/.config/gh/hosts.yml l; cat l",
)  # fmt: skip


@pytest.mark.parametrize("script", together(dict(zip(ATTEMPTS, ATTEMPTS, strict=True))).values())
def test_attempts(contained: Contained, script: str) -> None:
    place = contained.place
    around = {"p": str(place.project), "h": str(place.home), "s": str(place.state)}
    for name, path in around.items():
        script = script.replace("{" + name + "}", path)
    before = full_listing(place.home), full_listing(place.project)
    result = run(contained, script)
    assert (full_listing(place.home), full_listing(place.project)) == before
    assert "HIDDEN" not in result["stdout"]
    assert not os.path.exists("/tmp/mudroom-bad")


@needs("agents")
def test_a_named_store_is_live(contained: Contained, tmp_path: Path) -> None:
    place = contained.place
    card = tmp_path / "card.json"
    card.write_text(json.dumps({"agentId": "a", "sandboxLevel": 0, "sandboxRequirements": {"needsKeychain": ["gh"]}}))
    script = "cat ~/.config/gh/hosts.yml; echo new > ~/.config/gh/t && mv ~/.config/gh/t ~/.config/gh/hosts.yml"
    place.write("refresh.sh", script)  # what is written in a line, and goes outside, has to be approved
    result = run(contained, "sh refresh.sh", "--card", str(card))
    assert (result["level"], result["stdout"], result["credentials"]) == (0, "HIDDEN", ["gh"])
    assert (place.home / ".config/gh/hosts.yml").read_text() == "new\n"


def test_the_network_is_the_hosts(contained: Contained) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        program = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5)"
        assert run(contained, f'python3 -c "{program}"')["exit_code"] == 0


def test_no_network_is_none(contained: Contained) -> None:
    """Where there is no network namespace to be alone in, no socket of a network can be made."""
    program = "import socket; socket.socket(socket.AF_INET); print('made')"
    script = f"python3 -c '{program}' 2>&1 | tail -1; cat f"
    assert "made" in run(contained, script)["stdout"]
    found = run(contained, script, "--level", "0", "--net", "none")
    assert found["level"] == 0
    assert "made" not in found["stdout"]
    assert "one" in found["stdout"]
