"""A card that needs a GPU gets what the machine's CDI files name, and nothing that others than root could name."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from conftest import Place, act_as
from mudroom.core.agent.card import AgentCard, Requirements
from mudroom.core.confinement.graphics import GraphicsAccess
from mudroom.core.confinement.spec import Bind
from mudroom.core.settings import Settings
from mudroom.ext.gpu import cdi
from mudroom.session.confinement.grant import granted, graphics

pytestmark = pytest.mark.both_users
NULL = {"deviceNodes": [{"path": "/dev/null"}]}
"""The only device nodes that are everywhere."""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory as /etc/cdi, which is ours as that is root's."""
    os.chmod(tmp_path, 0o755)
    monkeypatch.setattr(cdi, "DIRECTORIES", (os.fsencode(tmp_path),))
    monkeypatch.setattr(cdi, "OWNER", os.geteuid())
    return tmp_path


def described(machine: Path, value: Any, name: str = "gpu.json") -> GraphicsAccess:
    (machine / name).write_text(value if isinstance(value, str) else json.dumps(value))
    os.chmod(machine / name, 0o644)
    return cdi.described()


def gpu(edits: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"cdiVersion": "0.6.0", "kind": "nvidia.com/gpu", "containerEdits": edits, **more}


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make what is another user's")
def test_what_a_file_of_root_names(machine: Path) -> None:
    edits = {
        **NULL,
        "env": ["NVIDIA_VISIBLE_DEVICES=void", "LD_PRELOAD=/x", "PATH", "a=b"],
        "mounts": [{"hostPath": "/usr/bin/env", "containerPath": "/usr/bin/true", "options": ["ro"]}],
        "hooks": [{"hookName": "createContainer", "path": "/bin/false"}],
    }
    one = {"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/zero"}]}}
    wanted = GraphicsAccess(
        (b"/dev/null", b"/dev/zero"),
        (Bind(b"/usr/bin/env", b"/usr/bin/true"),),
        ((b"NVIDIA_VISIBLE_DEVICES", b"void"),),
        tuple(
            f"the variable {name} is not set: its name or its value is not permitted"
            for name in ("LD_PRELOAD", "PATH", "a")
        ),
    )
    assert described(machine, gpu(edits, devices=[one])) == wanted
    every = {"name": "all", "containerEdits": {"deviceNodes": [{"path": "/dev/full"}]}}
    found = described(machine, gpu(edits, devices=[one, every]))
    assert found.devices == (b"/dev/null", b"/dev/full")
    (machine / "gpu.json").unlink()
    yaml = "cdiVersion: 0.6.0\nkind: amd.com/gpu\ndevices:\n- name: '0'\n  containerEdits:\n"
    yaml += "    deviceNodes:\n    - path: /dev/null\n"
    assert described(machine, yaml, "amd.yaml") == GraphicsAccess((b"/dev/null",), notes=())


@pytest.mark.parametrize(
    "path",
    [
        "/dev/shm/x", "/etc/passwd", "/dev/../etc/passwd", "/dev", "/dev/none", "dev/null", "/dev//null", "/dev/null,x",
        "/dev/null:/dev/x", "/dev/fd", "/dev/stdin", "/dev/null\n", "", None, 7, ["/dev/null"],
    ],
)  # fmt: skip
def test_what_is_no_device(machine: Path, path: object) -> None:
    found = described(machine, gpu({"deviceNodes": [{"path": path}]}))
    assert found.devices == ()
    assert "is not shown: " in found.notes[0]


def test_a_device_with_another_path(machine: Path) -> None:
    found = described(machine, gpu({"deviceNodes": [{"path": "/dev/null", "hostPath": "/dev/mem"}]}))
    assert found == GraphicsAccess(notes=("/dev/null is not shown: it has another path on this machine",))


@pytest.mark.parametrize(
    ("source", "path"),
    [
        ("/home/user/lib.so", "/usr/lib/lib.so"), ("/usr/bin/env", "/home/user/x"), ("/usr/bin/env", "/proc/x"),
        ("/usr/../etc/shadow", "/usr/x"), ("/usr/none", "/usr/none"), ("/usr/bin/env", "/usr/bin/none"),
        ("usr/bin/env", "/usr/x"), (None, "/usr/x"),
    ],
)  # fmt: skip
def test_what_is_no_file(machine: Path, source: object, path: str) -> None:
    found = described(machine, gpu({"mounts": [{"hostPath": source, "containerPath": path}]}))
    assert found.binds == () and "is not shown: " in found.notes[0]


def test_a_file_that_others_could_write(machine: Path) -> None:
    def left_out(why: str, path: Path = machine / "gpu.json") -> None:
        assert cdi.described() == GraphicsAccess(notes=(f"{path} is left out: {why}",))

    foreign = "it is not root's own file, or has more than 1 MiB"
    value = gpu(NULL)
    (machine / "gpu.json").write_text(json.dumps(value))
    (machine / "gpu.json").chmod(0o664)
    left_out(foreign)
    (machine / "gpu.json").chmod(0o644)
    (machine / "other").write_text(json.dumps(value))
    (machine / "gpu.json").unlink()
    (machine / "gpu.json").symlink_to("other")
    left_out(foreign)
    (machine / "gpu.json").unlink()
    os.mkfifo(machine / "gpu.json")
    left_out(foreign)
    (machine / "gpu.json").unlink()
    assert not any("left out" in note for note in described(machine, value).notes)
    machine.chmod(0o775)
    left_out("others than root may write in it", machine)


def test_a_directory_that_cannot_be_read_is_not_taken_for_an_absent_one(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then a card that needs a GPU is told why it has none of what root has described."""
    monkeypatch.setattr(cdi, "usual_nodes", tuple)
    directory = machine / "cdi"
    monkeypatch.setattr(cdi, "DIRECTORIES", (os.fsencode(directory), os.fsencode(machine / "none")))
    assert cdi.access() == GraphicsAccess()
    directory.write_text("a file")
    told = f"{directory} is left out: not a directory"
    assert cdi.access().notes == (*GraphicsAccess().notes, told)
    directory.unlink()
    directory.symlink_to(machine)
    assert cdi.described().notes == (told,)  # open(2): O_DIRECTORY comes before O_NOFOLLOW
    if os.geteuid():
        directory.unlink()
        directory.mkdir(mode=0)
        assert cdi.described().notes == (f"{directory} is left out: permission denied",)


@pytest.mark.parametrize("mode", [0o755, 0o775, 0o757])
def test_a_file_that_others_could_exchange(machine: Path, monkeypatch: pytest.MonkeyPatch, mode: int) -> None:
    """The file is root's alone, but a directory above it is not."""
    (machine / "open/driver").mkdir(parents=True)
    source = machine / "open/driver/lib.so"
    source.write_text("")
    source.chmod(0o644)
    (machine / "open/driver").chmod(0o755)
    (machine / "open").chmod(mode)
    monkeypatch.setattr(cdi, "_PLACES", (os.fsencode(machine), b"/var/lib"))
    edits = {"mounts": [{"hostPath": str(source), "containerPath": "/var/lib/gpu/lib.so"}]}
    found = described(machine, gpu(edits))
    wanted = "/var/lib/gpu/lib.so is not shown: others than root can write to a directory above it"
    assert (found.binds == ()) == (mode != 0o755), found
    assert found.notes == ((wanted,) if mode != 0o755 else ())


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", "1", '{"kind": "x/gpu"}', '{"cdiVersion": 1, "kind": "x/gpu"}', "[" * 100_000, "\0",
     json.dumps(gpu(NULL, kind="x/nic")), json.dumps(gpu(NULL, devices=7)),
     json.dumps(gpu({"deviceNodes": [7]})), json.dumps(gpu({"env": 7}))],
)  # fmt: skip
@pytest.mark.parametrize("name", ["x.json", "x.yaml"])
def test_a_file_of_another_form_gives_nothing(machine: Path, text: str, name: str) -> None:
    assert described(machine, text, name).devices == ()


def test_the_users_own_file_counts_for_nothing(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cdi, "OWNER", os.geteuid() + 1)
    assert described(machine, gpu(NULL)).notes == (f"{machine} is left out: others than root may write in it",)


def test_what_a_command_is_told(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cdi, "usual_nodes", lambda: (b"/dev/dri",))
    assert graphics().devices == (b"/dev/dri",)
    card = AgentCard("a", 1, Requirements(gpu=True))
    grant = granted(Settings(), card, None, b"/nonexistent", {})
    assert [note for note in grant.notes if "GPU" in note] == [
        "GPU: not isolated: /dev/dri, with its memory and its driver, is shared with other programs"
    ]
    monkeypatch.setattr(cdi, "usual_nodes", tuple)
    assert graphics() == GraphicsAccess()
    assert GraphicsAccess().notes == ("this machine has no GPU that a command could be given",)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make what is another user's")
def test_a_command_uses_the_node_that_a_file_names(place: Place, machine: Path) -> None:
    """It is there for the card that needs it, with the library and the variable, and for no other command."""
    node = f"/dev/mudroom-gpu-{os.getpid()}"
    os.mknod(node, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    os.chmod(node, 0o666)
    shown = "/var/lib/mudroom-gpu/driver"
    edits = {"deviceNodes": [{"path": node}], "env": ["NVIDIA_VISIBLE_DEVICES=void"]}
    edits["mounts"] = [{"hostPath": "/usr/bin/env", "containerPath": shown}]
    script = f"echo x > {node} && test -c {node} && cmp {shown} /usr/bin/env && echo $NVIDIA_VISIBLE_DEVICES"
    try:
        found = described(machine, gpu(edits))
        assert found.devices == (node.encode(),), found
        for needs, wanted in (True, (0, b"void\n")), (False, (2, b"")):
            card = AgentCard("a", 1, Requirements(gpu=needs))
            with place.session() as session:
                act_as(session, level=1, card=card)
                result = session.run([b"sh", b"-c", script.encode()], fork=f"f{needs:d}")
                assert (result.exit_code, result.stdout) == wanted, result.stderr
                assert any(node in note for note in result.notes) == needs, result.notes
    finally:
        os.unlink(node)
