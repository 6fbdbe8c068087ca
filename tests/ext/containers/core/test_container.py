"""What engines are asked: the whole command line of each, and that it is read by them as it was meant."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudroom.ext.containers.core.container import (
    Container,
    ContainerMount,
    Engine,
    EngineKind,
    is_image,
    list_argv,
    mount_option,
    path_error,
    remove_argv,
    run_argv,
    variants,
)
from tiers import each

BOX = Container(
    "mudroom-1",
    "image:1",
    (b"/.mudroom/bin/python3", b"-c", b"x"),
    (1000, 100),
    (ContainerMount(b"/usr", b"/usr"), ContainerMount(b"/home/me/a, b", b"/home/me/a, b", writable=True)),
    private=(b"/tmp",),
    labels=(("mudroom", "1"),),
    hostname=b"machine-1",
    seccomp=b"/state/a b.json",
)
LIMITED = BOX._replace(memory=300 << 20, processes=64, cpus=1.5)
_COMMON = [
    "--rm",
    "--pull=never",
    "--name=mudroom-1",
    "--label",
    "mudroom=1",
    "--network=none",
    "--cap-drop=ALL",
    "--security-opt=no-new-privileges",
    "--read-only",
    "--ipc=private",
    "--hostname=machine-1",
    "--sysctl=net.ipv4.ip_unprivileged_port_start=0",
    "--no-healthcheck",
    "--log-driver=none",
    "--env=LD_PRELOAD=",
    "--env=LD_AUDIT=",
    "--env=LD_LIBRARY_PATH=",
    "--env=LC_ALL=C",
]
_SECCOMP = "--security-opt=seccomp=/state/a b.json"
_LIMITS = ["--memory=314572800", "--memory-swap=314572800", "--pids-limit=64", "--cpus=1.500"]
_REST = [
    "--tmpfs",
    "/tmp:rw,exec,nosuid,nodev,mode=1777",
    "--mount",
    "type=bind,source=/usr,target=/usr,readonly",
    "--mount",
    'type=bind,"source=/home/me/a, b","target=/home/me/a, b"',
    "--workdir=/",
    "--entrypoint",
    "/.mudroom/bin/python3",
    "image:1",
    "-c",
    "x",
]
_APPLE = [
    *[
        "--rm",
        "--progress=none",
        "--name=mudroom-1",
        "--label",
        "mudroom=1",
        "--network=none",
        "--no-dns",
        "--cap-drop=ALL",
    ],
    "--read-only",
]
_APPLE_REST = [
    *["--tmpfs", "/tmp", "--mount", "type=bind,source=/usr,target=/usr,readonly", "--workdir=/", "--entrypoint"],
    *["/.mudroom/bin/python3", "image:1", "-c", "x"],
]
DOCKER, PODMAN = Engine("docker", b"/usr/bin/docker"), Engine("podman", b"/usr/bin/podman")
APPLE = Engine("container", b"/usr/local/bin/container", limits=("memory", "cpus"))

CASES: dict[str, tuple[Engine, Container, list[str]]] = {
    "docker nested": (
        DOCKER, BOX,
        [*_COMMON, _SECCOMP, "--security-opt=systempaths=unconfined", "--user=1000:100", *_REST],
    ),
    "docker plain": (
        DOCKER, BOX._replace(nested=False),
        [*_COMMON, _SECCOMP, "--user=1000:100", *_REST],
    ),
    "docker limits": (
        DOCKER, LIMITED,
        [*_COMMON, _SECCOMP, "--security-opt=systempaths=unconfined", "--user=1000:100", *_LIMITS, *_REST],
    ),
    "docker with everything that a host may have": (
        DOCKER._replace(apparmor=True, selinux=True, remapped=True), BOX._replace(seccomp=b""),
        [
            *_COMMON, "--security-opt=systempaths=unconfined", "--security-opt=apparmor=unconfined",
            "--security-opt=label=disable", "--user=1000:100", "--userns=host", *_REST,
        ],
    ),
    "docker plain keeps AppArmor": (
        DOCKER._replace(apparmor=True), BOX._replace(nested=False),
        [*_COMMON, _SECCOMP, "--user=1000:100", *_REST],
    ),
    "podman nested": (
        PODMAN, BOX,
        [*_COMMON, "--image-volume=ignore", _SECCOMP, "--security-opt=unmask=ALL", "--user=1000:100", *_REST],
    ),
    "podman rootless, a runtime, limits of files": (
        PODMAN._replace(rootless=True, options=("--runtime", "runc"), open_files=20000), BOX,
        [
            *_COMMON, "--image-volume=ignore", _SECCOMP, "--security-opt=unmask=ALL", "--user=1000:100",
            "--userns=keep-id", "--ulimit=nofile=1024:20000", *_REST,
        ],
    ),
    "podman rootful": (
        PODMAN._replace(open_files=512, user_processes=4096), LIMITED._replace(nested=False),
        [
            *_COMMON, "--image-volume=ignore", _SECCOMP, "--user=1000:100", "--ulimit=nofile=512:512",
            "--ulimit=nproc=4096:4096", *_LIMITS, *_REST,
        ],
    ),
    "container nested": (
        APPLE, BOX._replace(mounts=BOX.mounts[:1]),
        [*_APPLE, "--masked-path=NONE", "--read-only-path=NONE", "--user=1000:100", *_APPLE_REST],
    ),
    "container plain with limits": (
        APPLE, LIMITED._replace(mounts=BOX.mounts[:1], nested=False, cpus=2.5),
        [*_APPLE, "--user=1000:100", "--memory=300M", "--cpus=2", *_APPLE_REST],
    ),
}  # fmt: skip


@each("name", CASES)
def test_the_command_line_of_a_container(name: str) -> None:
    engine, box, expected = CASES[name]
    front = [engine.program, *(word.encode() for word in engine.options), b"run", b"--detach"]
    assert list(run_argv(engine, box)) == [*front, *(word.encode() for word in expected)]


@pytest.mark.parametrize("kind", ["docker", "podman"])
def test_a_container_has_the_devices_of_a_card(kind: EngineKind) -> None:
    box = Container("x", "image", (b"/init",), (1000, 1000), devices=(b"/dev/nvidia0", b"/dev/dri"))
    argv = run_argv(Engine(kind, b"/usr/bin/engine"), box)
    assert [word for word in argv if b"device" in word] == [b"--device=/dev/nvidia0", b"--device=/dev/dri"]


def test_a_container_that_is_waited_for_stays_in_the_foreground() -> None:
    there, waited = run_argv(DOCKER, BOX), run_argv(DOCKER, BOX, wait=True)
    assert [word for word in there if word != b"--detach"] == list(waited)


@pytest.mark.parametrize("user", [(0, 100), (1000, 0), (0, 0)])
def test_nobody_is_root(user: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="never root"):
        run_argv(DOCKER, BOX._replace(user=user))


@each(
    ("name", "is_one"),
    [
        ("debian:12", True),
        ("ghcr.io/a/b_c:1.2-x@sha256:0123", True),
        ("0a1b2c", True),
        ("localhost:5000/x", True),
        ("-v/:/host", False),
        ("--privileged", False),
        ("a b", False),
        ("", False),
        ("a\nb", False),
        ("./x", False),
        ("a;b", False),
    ],
)
def test_an_image_is_no_option(name: str, is_one: bool) -> None:
    assert is_image(name) is is_one
    if not is_one:
        with pytest.raises(ValueError, match="not the name of an image"):
            run_argv(PODMAN, BOX._replace(image=name))


def read_csv(line: bytes) -> list[bytes]:
    """One record, as encoding/csv of Go reads it without LazyQuotes (reader.go, readRecord): line ends become LF, a
    quote opens a field only at its begin, and two of them in it are one."""
    line = line.replace(b"\r\n", b"\n")
    fields, at = [], 0
    while True:
        if line[at : at + 1] == b'"':
            field, at = bytearray(), at + 1
            while True:
                end = line.index(b'"', at)
                field += line[at:end]
                if line[end : end + 2] != b'""':
                    at = end + 1
                    break
                field += b'"'
                at = end + 2
            assert line[at : at + 1] in (b"", b","), 'extraneous or missing " in quoted-field'
            fields.append(bytes(field))
        else:
            end = line.find(b",", at) if b"," in line[at:] else len(line)
            field_ = line[at:end]
            assert b'"' not in field_, 'bare " in non-quoted field'
            assert b"\n" not in field_, "a second record"
            fields.append(field_)
            at = end
        if at >= len(line):
            return fields
        at += 1


_AWKWARD = st.text(alphabet=st.sampled_from(list(",\"'\r\n= :\\-aé$\t{}\x01")), min_size=1, max_size=12)


@given(_AWKWARD | st.text(min_size=1, max_size=20), st.sampled_from(["docker", "podman"]), st.booleans())
def test_a_mount_is_read_as_it_was_meant(name: str, kind: EngineKind, writable: bool) -> None:
    path = b"/" + name.encode("utf-8", "surrogatepass")
    if path_error(path, kind):
        with pytest.raises(ValueError, match="its name"):
            mount_option(ContainerMount(path, b"/x"), kind)
        return
    fields = read_csv(mount_option(ContainerMount(path, path, writable), kind))
    expected = [b"type=bind", b"source=" + path, b"target=" + path] + ([] if writable else [b"readonly"])
    assert fields == expected


@given(_AWKWARD)
def test_apple_splits_at_every_comma_and_equals_sign(name: str) -> None:
    path = b"/" + name.encode()
    if path_error(path, "container"):
        assert b"," in path or b"=" in path
        return
    parts = [part.split(b"=") for part in mount_option(ContainerMount(path, path), "container").split(b",")]
    assert parts == [[b"type", b"bind"], [b"source", path], [b"target", path], [b"readonly"]]


@each(
    ("path", "kind", "why"),
    [
        (b"/a\xff", "docker", "not UTF-8"),
        (b"/a\xff", "podman", "not UTF-8"),
        (b"/a\xff", "container", "not UTF-8"),
        (b"/a\r\nb", "docker", "carriage return"),
        (b"/a\r\nb", "podman", "carriage return"),
        (b"/a,b", "container", "','"),
        (b"/a=b", "container", "'='"),
        (b"/a\rb", "docker", ""),
        (b"/-rf, \"x\" 'y'\n:ro=\xc3\xa9", "docker", ""),
    ],
)
def test_what_an_engine_cannot_be_told(path: bytes, kind: EngineKind, why: str) -> None:
    said = path_error(path, kind)
    assert why in said
    assert bool(said) is bool(why)


def test_ways_to_ask_podman() -> None:
    podman = PODMAN._replace(runtime="crun")
    ways = variants(podman, ["crun", "runc"])
    assert [(way.options, way.nested) for way in ways] == [
        ((), True),
        (("--runtime", "runc"), True),
        ((), False),
        (("--runtime", "runc"), False),
    ]
    assert [(way.options, way.nested) for way in variants(DOCKER, ["crun"])] == [((), True), ((), False)]


def test_the_other_command_lines() -> None:
    podman = PODMAN._replace(options=("--runtime", "runc"))
    assert remove_argv(podman, "x")[1:] == (b"--runtime", b"runc", b"rm", b"--force", b"--volumes", b"x")
    assert remove_argv(APPLE, "x")[1:] == (b"rm", b"--force", b"x")
    assert b"--filter=label=mudroom" in list_argv(DOCKER)
    assert list_argv(APPLE)[1:] == (b"list", b"--all", b"--format=json")


def test_nothing_that_an_image_sets_comes_to_our_first_process() -> None:
    box = BOX._replace(emptied=(b"LOCPATH", b"LC_ALL", b"LD_PRELOAD"))
    ours = [word for word in run_argv(DOCKER, box) if word.startswith(b"--env=")]
    names = [b"LD_PRELOAD=", b"LD_AUDIT=", b"LD_LIBRARY_PATH=", b"LC_ALL=C", b"LOCPATH="]
    assert ours == [b"--env=" + name for name in names]
    theirs = [word for word in run_argv(DOCKER._replace(remote=True), box) if word.startswith(b"--env=")]
    assert theirs == [b"--env=" + name for name in names[:3]], "commands inherit these there, and no process is ours"
