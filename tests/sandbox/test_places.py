"""Host places that may be shown, tried: a sandbox starts with each of them and still has its private directories."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from box import Box, if_namespaces
from mudroom.core.confinement.spec import Bind
from mudroom.sandbox.client.launcher_client import LauncherClient
from mudroom.sandbox.host.host import survey

pytestmark = [pytest.mark.both_users, pytest.mark.root]


@pytest.fixture
def box(tmp_path: Path, client: LauncherClient) -> Box:
    return Box(tmp_path, client)


def binds(box: Box, *paths: str) -> tuple[Bind, ...]:
    """As a session has them: real paths."""
    given = [os.path.realpath(os.fsencode(path)) for path in paths]
    return (*box.host.system, *box.host.home, *(Bind(path, path) for path in given))


PRIVATE = "touch /tmp/x /run/x $HOME/x /dev/shm/x x && ls -d /proc/self /dev/fd/0 && cat /dev/null"


@if_namespaces
@pytest.mark.parametrize(
    "paths",
    [
        (),
        ("/var",),
        ("/var/tmp",),
        ("/var", "/var/tmp", "/var/run", "/var/lib"),
        ("/var/lib",),
        ("/sys",),
        ("/home",),
        ("/srv", "/mnt", "/bin", "/bin/sh", "/lib", "/usr", "/etc", "/etc/hosts"),
        ("/usr/lib", "/usr/share", "/opt"),
    ],
    ids=" ".join,
)
def test_a_sandbox_comes_up_with_whatever_is_shown(box: Box, paths: tuple[str, ...]) -> None:
    existing = [path for path in paths if os.path.exists(path) and os.path.realpath(path) != "/run"]
    spec = box.spec(binds=binds(box, *existing))
    for _number in range(2):  # the second is the template's
        spec = spec._replace(view=box.overlay())
        ended, output = box.run_spec(f"export HOME={box.home}; {PRIVATE}; ls -d {' '.join(existing)}", spec)
        assert ended.status == 0, output


def test_var_tmp_is_private_and_can_be_written(box: Box) -> None:
    ended, output = box.run("echo x > /var/tmp/mudroom-test && cat /var/tmp/mudroom-test; stat -c %a /var/tmp")
    assert (ended.status, output) == (0, "x\n1777\n")
    assert not os.path.exists("/var/tmp/mudroom-test")


@if_namespaces
@pytest.mark.skipif(not os.path.isdir("/var/log"), reason="this machine has no /var/log")
def test_var_can_be_shown(box: Box) -> None:
    spec = box.spec(binds=binds(box, "/var"))
    ended, output = box.run_spec("ls -d /var/log; readlink /var/run; touch /var/tmp/x", spec)
    assert output.startswith("/var/log\n")
    assert "Read-only file system" in output
    assert ended.status != 0


def test_a_search_path_does_not_take_the_private_places_away(tmp_path: Path) -> None:
    search = [b"/tmp", b"/run", b"/dev", b"/dev/shm", b"/proc", b"/", b"/usr/bin", os.fsencode(tmp_path)]
    shown = [bind.path for bind in survey(b"/home/nobody", search).home]
    assert not {b"/tmp", b"/run", b"/dev", b"/dev/shm", b"/proc", b"/"} & set(shown)
    assert os.fsencode(tmp_path) in shown


@if_namespaces
def test_a_search_path_through_a_link_is_the_same_inside(box: Box, tmp_path: Path) -> None:
    package = tmp_path / "v1/lib/node_modules/x"
    package.mkdir(parents=True)
    (package / "cli").write_text("#!/bin/sh\necho it runs\n")
    (package / "cli").chmod(0o755)
    (tmp_path / "v1/bin").mkdir()
    (tmp_path / "v1/bin/tool").symlink_to("../lib/node_modules/x/cli")
    (tmp_path / "now").symlink_to("v1")
    found = survey(b"/nowhere", [os.fsencode(tmp_path / "now/bin")])
    for name in ("now", "v1"):
        spec = box.spec(binds=(*found.system, *found.home))
        ended, output = box.run_spec(f"PATH={tmp_path}/{name}/bin:$PATH; tool", spec)
        assert (ended.status, output) == (0, "it runs\n")
    elsewhere = survey(b"/nowhere", [os.fsencode(tmp_path / "now/../now/bin")])
    assert elsewhere.home == found.home
