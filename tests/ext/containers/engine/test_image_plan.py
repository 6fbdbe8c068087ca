"""Level 2 in an image compiled to a plan: read line by line, and checked for properties of every spec."""

from __future__ import annotations

from mudroom.core.confinement.cache_place import CacheView
from mudroom.core.confinement.plan import NAMESPACES, explain
from mudroom.core.confinement.spec import Bind, Copy, Overlay, SandboxSpec
from mudroom.ext.containers.engine import runtime
from mudroom.ext.containers.engine.image_plan import OURS, compile_imaged, places, private
from mudroom.sandbox.linux.plan import compile_plan, own_system
from tiers import each

VAULT = b"/srv/state/vaults/p1"
PROJECT = b"/work/p"
SPEC = SandboxSpec(
    project=PROJECT,
    view=Overlay((PROJECT,), VAULT + b"/layers/f", VAULT + b"/forks/f/work"),
    cwd=PROJECT + b"/src",
    home=b"/home/u",
    scratch=VAULT + b"/scratch",
    network="gate",
    caches=CacheView(
        ((b"cache", b"/home/u/.cache"), (b"npm", b"/home/u/.npm")),
        (VAULT + b"/cache/host/user",),
        VAULT + b"/forks/f/caches/upper",
        VAULT + b"/forks/f/caches/work/1",
    ),
    binds=(
        Bind(b"/home/u/.gitconfig", b"/home/u/.gitconfig"),
        Bind(b"/srv/data", b"/srv/data"),
        Bind(b"/tmp/shown", b"/tmp/shown"),
        Bind(b"/opt/live", b"/opt/live", writable=True),
        Bind(PROJECT + b"/.mudroom", PROJECT + b"/.mudroom"),
    ),
    files=((b"/home/u/.config/git/config", b"[user]\n"),),
    devices=(b"/dev/null",),
    landlock_abi=6,
    uid_map=b"1000 1000 1",
    gid_map=b"1000 1000 1",
)
LINES = """\
namespaces: user, mount, pid, ipc, uts, cgroup, net
stop mount events from passing between here and the host
the image's root, with all that is mounted there (ro,nosuid,nodev)
make sure that /.mudroom is not a link
make sure that /dev is not a link
make sure that /home/u is not a link
make sure that /opt/live is not a link
make sure that /proc is not a link
make sure that /run is not a link
make sure that /srv/data is not a link
make sure that /srv/state/vaults/p1 is not a link
make sure that /sys is not a link
make sure that /tmp is not a link
make sure that /var/tmp is not a link
make sure that /work/p is not a link
private tmpfs at /dev (nosuid,noexec)
show /dev/null at /dev/null (ro,nosuid,noexec)
directory /dev/shm (1777)
directory /dev/pts (755)
link /dev/fd -> /proc/self/fd
link /dev/stdin -> /proc/self/fd/0
link /dev/stdout -> /proc/self/fd/1
link /dev/stderr -> /proc/self/fd/2
link /dev/ptmx -> pts/ptmx
private tmpfs at /sys (nosuid,noexec)
show /sys/devices/system/cpu at /sys/devices/system/cpu (ro,nosuid,nodev,noexec)
show /sys/devices/system/node at /sys/devices/system/node (ro,nosuid,nodev,noexec)
private tmpfs at /.mudroom (ro,nosuid,nodev,noexec)
show /opt/live at /opt/live (nosuid,nodev)
private tmpfs at /srv/state/vaults/p1 (ro,nosuid,nodev,noexec)
make /dev ro,nosuid,noexec
make /sys ro,nosuid,noexec
let no program gain a capability
private tmpfs at /dev/shm (nosuid,nodev)
private tmpfs at /home/u (nosuid,nodev)
show /home/u/.gitconfig at /home/u/.gitconfig (ro,nosuid,nodev)
private tmpfs at /run (nosuid,nodev)
private tmpfs at /tmp (nosuid,nodev)
show /tmp/shown at /tmp/shown (ro,nosuid,nodev)
private tmpfs at /var/tmp (nosuid,nodev)
file /home/u/.config/git/config (7 bytes)
"""


def printed(spec: SandboxSpec) -> list[str]:
    lines = list(explain(compile_imaged(spec, "x86_64", (VAULT,))))
    return [lines[0], *(line[5:].split(" filter, ")[0] for line in lines[1:])]


def test_line_by_line() -> None:
    lines = printed(SPEC)
    shared = LINES.splitlines()
    assert lines[: len(shared)] == shared
    assert lines[-2:] == [
        "the container shows /srv/data at /srv/data (ro)",
        "the container shows /opt/live at /opt/live (rw)",
    ]


def test_a_command_is_confined_as_at_level_1() -> None:
    """All steps that do not depend on the root."""
    imaged, plain = compile_imaged(SPEC, "x86_64", (VAULT,)), compile_plan(SPEC, "x86_64")
    assert imaged.namespaces == plain.namespaces == sum(NAMESPACES.values())
    ahead = slice(imaged.shared, imaged.shared + imaged.ahead)
    system = own_system(SPEC)
    assert list(imaged.steps[ahead])[-len(system) :] == system
    assert list(plain.steps[plain.shared : plain.shared + plain.ahead])[-len(system) :] == system
    assert imaged.steps[-imaged.last :] == plain.steps[-plain.last :]
    assert imaged.maps == plain.maps


def test_nothing_of_the_image_is_writable() -> None:
    steps = compile_imaged(SPEC, "x86_64", (VAULT,)).steps
    assert ("image", SPEC.scratch, 7) in steps
    writable = {step[2] for step in steps if step[0] == "bind" and not step[3] & 1}
    assert writable == {b"opt/live"}


def test_what_has_to_be_there_before() -> None:
    """No directory can be made in the image: each mount point is made by the engine, or is in a private directory."""
    plan = compile_imaged(SPEC, "x86_64", (VAULT,))
    assert plan.memory == (b"/home/u",), "the project is there: it is what lies below the staged view"
    given = {place for _source, place, _writable in plan.mounts} | set(plan.memory) | {PROJECT, VAULT, *OURS}
    given |= {b"/tmp", b"/run", b"/var/tmp", b"/dev", b"/proc", b"/sys"}
    assert set(places(SPEC, (VAULT,))) <= given
    copied = compile_imaged(SPEC._replace(view=Copy(VAULT + b"/copy")), "x86_64", (VAULT,))
    assert copied.memory == (b"/home/u", PROJECT)


@each("vault", [b"/tmp/state/v", b"/home/u/.local/state/v", b"/run/v", b"/var/tmp/v"])
def test_what_lies_in_a_private_directory_is_not_there_anyway(vault: bytes) -> None:
    spec = SPEC._replace(scratch=vault + b"/scratch")
    steps = compile_imaged(spec, "x86_64", (vault,)).steps
    assert not [step for step in steps if step[0] == "tmpfs" and step[1] == vault[1:]]
    assert any(vault.startswith(own + b"/") for own in private(spec.home))


def test_what_is_left_outside_the_project_is_looked_at() -> None:
    (left,) = [step for step in compile_imaged(SPEC, "x86_64").steps if step[0] == "left"]
    assert set(left[1]) == {b"home/u", b"tmp", b"var/tmp"}


def test_without_a_network_nothing_is_handed_over() -> None:
    ops = [step[0] for step in compile_imaged(SPEC._replace(network="none"), "x86_64").steps]
    assert "hand_over" not in ops
    assert "listen" not in ops
    assert "loopback" in ops


def test_places_of_this_machine_have_listeners_before_they_are_handed_over() -> None:
    spec = SPEC._replace(network="gate", loopback=(("127.0.0.1", 8377, 0),))
    steps = compile_imaged(spec, "x86_64").steps
    at = steps.index(("listen_on_loopback", (("127.0.0.1", 8377),)))
    assert steps[at + 1] == ("hand_over",)


def test_the_places_of_the_launcher_are_hidden() -> None:
    assert OURS == (runtime.PLACE,)
