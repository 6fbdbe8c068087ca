"""Plans: every step can be performed, every step can be printed."""

from __future__ import annotations

import inspect
from types import SimpleNamespace

from launcher_steps import STEPS
from mudroom.core.confinement.plan import _DESCRIPTIONS, NAMESPACES, Plan, Step, describe, explain
from tiers import each

_IN_A_JOB = "in a job, compiled for each command, in a copy of the project"
EXAMPLES: list[tuple[Step, str]] = [
    (("private",), "stop mount events from passing between here and the host"),
    (("root", b"/vault/scratch", ((b"mode", b"0755"),)), "a new, empty root"),
    (("host", b"/vault/scratch", 7), "the host's root, with all that is mounted there (ro,nosuid,nodev)"),
    (("image", b"/vault/scratch", 7), "the image's root, with all that is mounted there (ro,nosuid,nodev)"),
    (("beneath", b"home/u"), "make sure that /home/u is not a link"),
    (("copy_root", b"/vault/scratch"), "make a copy of the prepared root the new root"),
    (
        ("engine", b"run/engine.sock", (b"", b""), (b"", b""), (("pivot",),), (b"podman",), ()),
        "an engine of containers in namespaces of its own, which listens at /run/engine.sock",
    ),
    (("nest", b"1 1 1", b"1 1 1", b"/vault/scratch"), "a nested user namespace, of the user alone"),
    (("lend", b"p"), "show the engine /p, too"),
    (("lent", b"p"), "show the command's /p"),
    (("sysfs", b"engine/sys"), "fresh sysfs at /engine/sys"),
    (("enter",), "start from the session's prepared root"),
    (("take", b"/v/work", b"p"), "the overlay that stands at /v/work, at /p"),
    (("leave",), "close the root"),
    (("bind", b"/usr", b"usr", 7, False), "show /usr at /usr (ro,nosuid,nodev)"),
    (("bind", b"/c", b"h/.cache", 6, False), "show /c at /h/.cache (nosuid,nodev)"),
    (("bind", b"/c", b"c", 0, True), "show /c at /c (rw)"),
    (("mounted", b"/m", b"p", 6, (1, 2)), "show the mounted fork /m at /p (nosuid,nodev)"),
    (("mounted", b"/m", b"", 0, (1, 2)), "make sure that the fork is mounted at /m"),
    (("inside", b"/c", b"h/.cache/c", 7), "show /c at /h/.cache/c, inside of what is there (ro,nosuid,nodev)"),
    (("counters", ((b"max_x", 64, True),)), "limits of all commands of a session together: max_x = 64"),
    (("spread", b"h/.cache", ((b"npm", b"h/.npm"),)), "bind 1 directories of /h/.cache to their own places"),
    (("tmpfs", b"tmp", (), 8), "private tmpfs at /tmp (noexec)"),
    (("proc", b"proc"), "fresh proc at /proc"),
    (("devpts", b"dev/pts"), "own pseudo-terminals at /dev/pts"),
    (("overlay", b"p", (b"/l", b"/p"), b"/u", b"/w", True), "staged view at /p: /u over /l over /p"),
    (("directory", b"var/tmp", 0o1777), "directory /var/tmp (1777)"),
    (("symlink", b"usr/bin", b"bin"), "link /bin -> usr/bin"),
    (("file", b"etc/hosts", b"12345", 0o644), "file /etc/hosts (5 bytes)"),
    (("seal", b"", 7), "make / ro,nosuid,nodev"),
    (("cover", b"proc/keys"), "hide /proc/keys"),
    (("freeze", b"proc/1"), "make /proc/1 read-only"),
    (("pivot",), "leave the host's root behind"),
    (("loopback",), "bring the private loopback up"),
    (("routes", b""), "bring the private loopback up; every address leads to the gate, and nowhere else"),
    (
        ("listen", 3128, 1, (22, 80), b""),
        "listeners of the gate: proxy (3128), DNS, all other ports by nftables, or 22, 80",
    ),
    (
        ("listen_on_loopback", (("127.0.0.1", 8377), ("::1", 8377))),
        "listeners of the gate for this machine's 127.0.0.1:8377, [::1]:8377",
    ),
    (("hand_over",), "hand the listeners to the gate, outside"),
    (("rlimit", 7, 1024, 4096), "limit of each process: open files = 1024"),
    (("umask", 0o22), "umask 022"),
    (("cwd", b"/p/a"), "work in /p/a"),
    (("drop_bounding_set",), "let no program gain a capability"),
    (("drop_capabilities",), "drop every capability, and check"),
    (("no_new_privs",), "no_new_privs: no set-uid program gains anything"),
    (("landlock", 1, 2, 3, ((b"/p", 1),), 0), "Landlock, 1 rule"),
    (("landlock", 1, 2, 3, (), 0, ((3128, 2),)), "Landlock, 0 rules, TCP to port 3128 only"),
    (("landlock", 1, 2, 3, (), 0, ((3128, 2), (4000, 2))), "Landlock, 0 rules, TCP to port 3128, 4000 only"),
    (("terminal", b"dev/pts/ptmx"), "a pseudo-terminal of the command's own, if it is run on one"),
    (("view", b"home/u/p"), "hand /home/u/p to mudroom's own file tools, if they asked for it"),
    (("left", (b"home/u", b"tmp")), "hand /home/u, /tmp to mudroom, which tells what is left there"),
    (("seccomp", bytes(80)), "system call filter, 10 instructions"),
    (("seatbelt", b"/f/profile.sb", bytes(80)), "Seatbelt profile, 80 bytes: of rules that fit, the last decides"),
    (("windows", SimpleNamespace(around=None, network="none"), ()), f"AppContainer {_IN_A_JOB}"),
    (
        ("windows", SimpleNamespace(around=None, network="gate"), ()),
        f"AppContainer {_IN_A_JOB}; the gate by a named pipe, and a relay in the container",
    ),
    (("windows", SimpleNamespace(around=b"/p", network="open"), ()), f"write-restricted token {_IN_A_JOB}"),
]


@each(("step", "line"), EXAMPLES)
def test_describe(step: Step, line: str) -> None:
    assert describe(step) == line


def test_every_op_has_a_description_and_a_performance() -> None:
    by_platforms = {"seatbelt", "windows"}  # ext/macos/warden.py, ext/windows/sandbox/client.py
    assert set(_DESCRIPTIONS) == set(STEPS) | by_platforms == {step[0] for step, _line in EXAMPLES}


@each("op", sorted(STEPS))
def test_both_take_the_same_arguments(op: str) -> None:
    described = list(inspect.signature(_DESCRIPTIONS[op]).parameters)
    assert len(STEPS[op].replace("?", "")) == len(described)


def test_a_description_is_one_printable_line() -> None:
    nasty = b"/a\n\x1b[2J\xff\xe2\x80\xae"
    for step, _line in EXAMPLES:
        line = describe(tuple(nasty if isinstance(word, bytes) else word for word in step))
        assert line.isprintable()


def test_explain() -> None:
    plan = Plan(NAMESPACES["user"] | NAMESPACES["net"], (b"", b"", True), (("pivot",), ("umask", 0o77)))
    assert list(explain(plan)) == ["namespaces: user, net", "  1. leave the host's root behind", "  2. umask 077"]


def test_explain_shows_the_steps_of_an_engine() -> None:
    engine = ("engine", b"s", (b"", b""), (b"", b""), (("pivot",), ("umask", 0o22)), (b"podman",), ())
    assert list(explain(Plan(0, (b"", b"", True), (engine,))))[2:] == [
        "     leave the host's root behind",
        "     umask 022",
    ]


def test_explain_without_namespaces() -> None:
    mediation = (b"", {90: ("chmod",), 91: ("chmod",)}, (b"/copy", b"/private"))
    plan = Plan(0, (b"", b"", False), (), mediation=mediation)
    assert list(explain(plan)) == ["namespaces: none", "  +  mediate 2 metadata calls: only in /copy, /private"]


def test_the_flags_are_those_of_the_kernel() -> None:
    assert {name: hex(bit) for name, bit in NAMESPACES.items()} == {
        "user": "0x10000000",
        "mount": "0x20000",
        "pid": "0x20000000",
        "ipc": "0x8000000",
        "uts": "0x4000000",
        "cgroup": "0x2000000",
        "net": "0x40000000",
    }
