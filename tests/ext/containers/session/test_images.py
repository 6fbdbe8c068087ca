"""Commands at level 2 in images of all kinds, by real engines: what they find there, and what they cannot."""

from __future__ import annotations

import io
import json
import os
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import pytest

from conftest import Place
from engines import EngineHere
from mudroom.core.confinement.container import user_of
from mudroom.core.result import Result
from mudroom.core.settings import Settings
from mudroom.errors import CommandNotStarted, MudroomError, Unsupported, UsageError

pytestmark = pytest.mark.both_users

BUSYBOX = Path("/bin/busybox")
TOOLS = ["sh", "ls", "cat", "id", "env", "echo", "mkdir", "touch", "rm", "ln", "stat", "wc", "grep", "mount", "sleep"]
UID, GID = user_of(os.geteuid(), os.getegid())
MACHINE = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]


def is_static(program: Path) -> bool:
    """A program that asks for no interpreter of its own: elf(5), PT_INTERP."""
    return program.exists() and b"/ld-linux" not in program.read_bytes()[:4096]


def directory(name: str, mode: int = 0o755) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.mode = tarfile.DIRTYPE, mode
    return info, b""


def link(name: str, target: str) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = tarfile.SYMTYPE, target
    return info, b""


def file(name: str, content: bytes, mode: int = 0o644) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.mode, info.size = mode, len(content)
    return info, content


def archive(entries: list[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as made:
        for info, content in entries:
            made.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def saved(name: str, layer: bytes, **settings: Any) -> bytes:
    """As ``docker save`` writes it: the archive that both engines load. ``settings``: of the image's configuration."""
    root = {"type": "layers", "diff_ids": ["sha256:" + sha256(layer).hexdigest()]}
    config = {"os": "linux", "architecture": MACHINE, "config": {}, "rootfs": root, **settings}
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    return archive(
        [
            file("layer.tar", layer),
            file("config.json", json.dumps(config).encode()),
            file("manifest.json", json.dumps(manifest).encode()),
        ]
    )


Make = Callable[..., str]


@pytest.fixture
def make(engine: EngineHere, tmp_path: Path) -> Iterator[Make]:
    """Makes an image, and takes it away after the test."""
    names: list[str] = []

    def made(*entries: tuple[tarfile.TarInfo, bytes], busybox: bool = True, **settings: Any) -> str:
        name = f"mudroom-test-{tmp_path.name.lower().replace('_', '-')}-{os.getpid()}-{len(names)}:1"
        if busybox:
            if not is_static(BUSYBOX):
                pytest.skip("there is no static busybox here (Debian: busybox-static)")
            tools = [link(f"bin/{tool}", "busybox") for tool in TOOLS]
            entries = (directory("bin"), file("bin/busybox", BUSYBOX.read_bytes(), 0o755), *tools, *entries)
        content = saved(name, archive(list(entries)), **settings)
        loading = [engine.kind, "load"]
        done = subprocess.run(loading, input=content, env=engine.environ, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        names.append(name)
        return name

    yield made
    for name in names:
        engine.ask("image", "rm", "--force", name, check=False)


def run(engine: EngineHere, place: Place, image: str, line: str, **settings: Any) -> Result:
    return engine.session(place, Settings(image=image, **settings)).run([b"/bin/sh", b"-c", line.encode()])


def lines(result: Result) -> list[str]:
    assert result.stderr == b""
    return result.stdout.decode().splitlines()


# --- what is there ---


def test_a_command_finds_the_image_and_its_project(place: Place, engine: EngineHere, make: Make) -> None:
    place.write("a/b", b"old\n")
    image = make(config={"Env": ["PATH=/bin", "OWN=of the image"]})
    result = run(engine, place, image, "pwd; cat a/b; echo new > a/b; echo $OWN; echo $PATH; ls -d /usr /home; ls /bin")
    assert result.level == 2
    said = result.stdout.decode().splitlines()
    assert said[:4] == [os.fsdecode(place.project), "old", "of the image", "/bin"]
    assert sorted(said[4:]) == sorted(["/home", "busybox", *TOOLS]) or "/home" not in said
    assert b"/usr: No such file" in result.stderr, "nothing of the host's system is there"
    assert [change.path for change in result.changeset.changes] == [b"a/b"]
    assert (place.project / "a/b").read_bytes() == b"old\n"


def test_a_project_that_appears_at_another_path(place: Place, engine: EngineHere, make: Make) -> None:
    """The engine makes a mount of the project's files, at their own path: it is hidden."""
    place.write("a/b", b"old\n")
    at = "/home/ann-of-another-machine/proj"
    session = engine.session(place, Settings(image=make()), appears_at=at.encode())
    script = f"pwd; cat {at}/a/b; echo new > a/b; find {place.project} -type f; grep -c . {place.project}/a/b || true"
    result = session.run([b"/bin/sh", b"-c", script.encode()])
    assert result.stdout.decode().splitlines()[:2] == [at, "old"], result.stderr
    assert b"/a/b" not in result.stdout and b"No such file" in result.stderr
    assert [change.path for change in result.changeset.changes] == [b"a/b"]
    assert (place.project / "a/b").read_bytes() == b"old\n"


def test_the_user_is_somebody_there(place: Place, engine: EngineHere, make: Make) -> None:
    theirs = file("etc/passwd", b"root:x:0:0:root:/root:/bin/ash\nother:x:%d:1::/other:/bin/x\n" % UID)
    image = make(directory("etc"), theirs)
    said = lines(run(engine, place, image, "id -un; id -u; cat /etc/passwd; echo $HOME; echo $USER"))
    name = said[0]
    assert said[1] == str(UID)
    assert said[2] == f"{name}:x:{UID}:{GID}::{place.home}:/bin/ash"
    assert said[3:5] == ["root:x:0:0:root:/root:/bin/ash", f"other:x:{UID}:1::/other:/bin/x"]
    assert said[5:] == [str(place.home), name]


def test_an_image_with_nothing_but_one_program(place: Place, engine: EngineHere, make: Make) -> None:
    """Neither /tmp nor /home nor /etc."""
    line = "echo 1 > /tmp/a; echo 2 > ~/b; echo 3 > /var/tmp/c; echo 4 > /run/d; echo 5 > /dev/shm/e; cat /etc/hosts; "
    said = lines(run(engine, place, make(), line + "cat /tmp/a ~/b /var/tmp/c /run/d /dev/shm/e; cat /etc/resolv.conf"))
    assert said[0].startswith("127.0.0.1 localhost")
    assert said[-6:] == ["1", "2", "3", "4", "5", "nameserver 127.0.0.1"]


def test_an_image_with_nothing_at_all(place: Place, engine: EngineHere, make: Make) -> None:
    image = make(directory("."), busybox=False)
    session = engine.session(place, Settings(image=image))
    with pytest.raises(CommandNotStarted, match="sh: command not found") as caught:
        session.run([b"sh", b"-c", b"true"])
    assert caught.value.exit_code == 127
    assert caught.value.hint == f"there is only what the image {image} holds"
    assert session.vault.forks() == []


def test_a_linked_file_of_users(place: Place, engine: EngineHere, make: Make) -> None:
    image = make(
        directory("etc"), directory("store"), link("etc/passwd", "../store/users"), link("etc/group", "/etc/nowhere"),
        file("store/users", b"root:x:0:0::/:/bin/sh\n"),
    )  # fmt: skip
    said = lines(run(engine, place, image, "cat /etc/passwd | wc -l; id -u"))
    assert said == ["2", str(UID)]


def test_caches_stay_with_the_image(place: Place, engine: EngineHere, make: Make) -> None:
    one, other = make(), make(file("another", b""))
    assert lines(run(engine, place, one, "echo kept > ~/.cache/x; cat ~/.cache/x")) == ["kept"]
    assert lines(run(engine, place, one, "cat ~/.cache/x")) == ["kept"]
    assert run(engine, place, other, "cat ~/.cache/x").exit_code == 1, "what was built for one is nothing for another"


def test_a_staged_copy(place: Place, engine: EngineHere, make: Make) -> None:
    place.write("f", b"old")
    result = run(engine, place, make(), "pwd; cat f; echo new > f", view="copy")
    assert lines(result) == [str(place.project), "old"]
    assert [change.path for change in result.changeset.changes] == [b"f"]


# --- what is not ---


def test_what_of_the_host_and_of_mudroom_is_hidden(place: Place, engine: EngineHere, make: Make) -> None:
    place.write(".env", b"TOKEN=1")
    place.write(".mudroom/policy.yaml", b"run: {}\n")
    (place.home / "own").write_bytes(b"x")
    line = f"ls /.mudroom; ls {place.state} 2>&1; ls ~/own 2>&1; cat .env; cat .mudroom/policy.yaml; ls /sys; "
    said = lines(run(engine, place, make(), line + "wc -l < /proc/net/dev"))
    assert said == [
        f"ls: {place.state}: No such file or directory", f"ls: {place.home}/own: No such file or directory",
        "run: {}", "devices", "3",
    ]  # fmt: skip


@pytest.mark.parametrize("path", ["/bin/x", "/x", "/etc/x", "/.mudroom/x", "/sys/x", "/dev/x", "/proc/sys/kernel/x"])
def test_nothing_of_the_image_can_be_changed(place: Place, engine: EngineHere, make: Make, path: str) -> None:
    result = run(engine, place, make(), f"touch {path}")
    assert result.exit_code == 1
    assert b"touch: " in result.stderr


def test_no_capability_no_privilege_no_other_process(place: Place, engine: EngineHere, make: Make) -> None:
    line = "grep -E '^(Cap|NoNew|Seccomp:)' /proc/self/status; ls -d /proc/[0-9]*"
    said = lines(run(engine, place, make(), line))
    fields = dict(line.split(":\t") for line in said if ":\t" in line)
    assert {fields[name] for name in fields if name.startswith("Cap")} == {"0" * 16}
    assert (fields["NoNewPrivs"], fields["Seccomp"]) == ("1", "2")
    assert len([line for line in said if line.startswith("/proc/")]) <= 4


def test_nothing_of_the_image_is_loaded_into_the_launcher(place: Place, engine: EngineHere, make: Make) -> None:
    """Its file of what to load into every program, its variables, its locales."""
    entries = (directory("etc"), file("etc/ld.so.preload", b"/evil.so\n"))
    image = make(*entries, config={"Env": ["PATH=/bin", "LOCPATH=/evil", "GCONV_PATH=/evil", "LC_ALL=evil"]})
    session = engine.session(place, Settings(image=image))
    said = session.run([b"/bin/sh", b"-c", b"wc -c < /etc/ld.so.preload; echo $LOCPATH $LC_ALL"])
    assert lines(said) == ["0", "/evil evil"], "commands have the image's variables"
    (container,) = engine.containers(place.root)
    found = set(engine.inspect(container)["Config"]["Env"])
    assert {"PATH=", "LOCPATH=", "GCONV_PATH=", "LC_ALL=C"} <= found
    assert not [one for one in found if "evil" in one]


def test_volumes_of_an_image_are_in_memory(place: Place, engine: EngineHere, make: Make) -> None:
    image = make(
        directory("data", 0o777), file("data/own", b"x"), config={"Volumes": {"/data": {}, "/run": {}, "/etc": {}}}
    )
    session = engine.session(place, Settings(image=image))
    session.run([b"/bin/ls", b"/data"])
    (container,) = engine.containers(place.root)
    assert [one for one in engine.inspect(container)["Mounts"] if one["Type"] == "volume"] == []
    session.machine.confinement.mode_contained = "plain"
    result = session.run([b"/bin/sh", b"-c", b"id -u; echo 1 > /data/x; cat /data/x"])
    assert lines(result) == [str(UID), "1"]


@pytest.mark.parametrize("credential", [b"credentials.toml", b"sub/token"])
@pytest.mark.parametrize("mode", ["overlay", "plain"])
def test_credentials_in_what_is_shown_stay_hidden(
    place: Place, engine: EngineHere, make: Make, credential: bytes, mode: Literal["overlay", "plain"]
) -> None:
    shown = place.home / ".deno"
    (shown / "sub").mkdir(parents=True)
    (shown / "config.toml").write_bytes(b"shown")
    secret = shown / os.fsdecode(credential)
    secret.write_bytes(b"TOKEN")
    secret.chmod(0o644)
    session = engine.session(place, Settings(image=make(), read=(os.fsencode(shown),)))
    if mode == "plain":
        session.machine.confinement.mode_contained = mode
    result = session.run([b"/bin/sh", b"-c", b"cat ~/.deno/config.toml ~/.deno/" + credential])
    assert result.stdout == b"shown"
    assert session.run([b"/bin/cat", os.fsencode(secret)]).stdout == b""


# --- images that cannot be used ---


def refused(engine: EngineHere, place: Place, image: str, kind: type[MudroomError]) -> MudroomError:
    session = engine.session(place, Settings(image=image))
    with pytest.raises(kind) as caught:
        session.run([b"true"])
    assert "\n" not in str(caught.value)
    assert session.vault.forks() == [], "nothing is left of it"
    return caught.value


def test_a_root_that_only_root_may_enter(place: Place, engine: EngineHere, make: Make) -> None:
    """Docker's overlay2 opens it to everybody; other drivers keep it as it is."""
    image = make(directory("./", 0o700))
    try:
        assert run(engine, place, image, "echo in").stdout == b"in\n"
    except Unsupported as error:
        assert "needs a root directory open to all users; found: its root directory has the mode 0700" in error.message


def test_an_image_for_another_machine(place: Place, engine: EngineHere, make: Make) -> None:
    error = refused(engine, place, make(busybox=False, architecture="s390x"), Unsupported)
    assert f"it is made for s390x, this machine is {MACHINE}" in error.message


@pytest.mark.parametrize("where", ["project/sub", "state", "home", "/.mudroom/lib", "/"])
def test_a_volume_that_would_hide_what_commands_have(place: Place, engine: EngineHere, make: Make, where: str) -> None:
    path = str(place.root / where)
    error = refused(engine, place, make(config={"Volumes": {path: {}}}), Unsupported)
    assert f"it has a volume at {path}, and /" in error.message


def test_an_image_whose_programs_are_only_listed(place: Place, engine: EngineHere, make: Make) -> None:
    error = refused(engine, place, make(config={"Env": ["LD_TRACE_LOADED_OBJECTS=1"]}), Unsupported)
    assert "it sets LD_TRACE_LOADED_OBJECTS" in error.message


@pytest.mark.parametrize("name", [".mudroom", "etc/ld.so.preload", ".mudroom-door"])
def test_a_link_in_a_place_of_ours(place: Place, engine: EngineHere, make: Make, name: str) -> None:
    if engine.kind == "podman":
        pytest.skip("it copies what a link leads to, so it is not seen")
    error = refused(engine, place, make(directory("x"), link(name, "/proc/self/cwd/x")), Unsupported)
    assert f"found: /{name} is a symbolic link" in error.message


def test_an_image_that_is_not_there_is_not_pulled(place: Place, engine: EngineHere) -> None:
    error = refused(engine, place, "nobody/has-this:1", UsageError)
    assert error.message.startswith("there is no image nobody/has-this:1 here: ")
    assert error.hint.startswith("mudroom pulls no image: ")


def test_a_link_where_something_has_to_be(place: Place, engine: EngineHere, make: Make) -> None:
    """An absolute one would lead out of the root that is being made."""
    image = make(directory("elsewhere"), link("var", "/elsewhere"))
    error = refused(engine, place, image, MudroomError)
    assert error.message == "cannot set up the sandbox: the image has a symbolic link on the way to /var/tmp"


def test_a_relative_link_leads_where_it_says(place: Place, engine: EngineHere, make: Make) -> None:
    image = make(directory("elsewhere"), link("var", "elsewhere"))
    assert lines(run(engine, place, image, "echo x > /var/tmp/f; cat /elsewhere/tmp/f")) == ["x"]


# --- where the container may make no namespaces ---


def test_a_plain_container_of_an_image(place: Place, engine: EngineHere, make: Make) -> None:
    place.write("f", b"old\n")
    (place.home / "own").write_bytes(b"x")
    session = engine.session(place, Settings(image=make()))
    session.machine.confinement.mode_contained = "plain"
    line = "pwd; cat f; echo new > f; id -un; echo 1 > ~/x; cat ~/x; echo 2 > /tmp/y; cat /tmp/y; ls ~; echo 3 > /bin/z"
    result = session.run([b"/bin/sh", b"-c", line.encode()])
    said = result.stdout.decode().splitlines()
    assert said[:2] == [str(place.project), "old"]
    assert said[3:] == ["1", "2", "go", "x"], result.stderr
    assert b"can't create /bin/z: Read-only file system" in result.stderr
    assert [change.path for change in result.changeset.changes] == [b"f"]
