"""Level 0 compiled to a plan: read line by line, and checked for properties of every spec."""

from __future__ import annotations

import pytest

from mudroom.core.confinement.cache_place import CacheView
from mudroom.core.confinement.plan import NAMESPACES, Plan, explain
from mudroom.core.confinement.spec import Bind, Copy, HostView, Overlay, SandboxSpec
from mudroom.sandbox.linux.bare_plan import PERMITTED, RULES, compile_bare
from mudroom.sandbox.linux.syscall import DENY, NUMBERS

VAULT = b"/home/u/.local/state/mudroom/vaults/p1"
PROJECT = b"/home/u/work"
AROUND = HostView(
    directories=((b"/home/u/.config", 0o700), (b"/home/u/.config/gh", 0o700)),
    links=((b"dotfiles/bashrc", b"/home/u/.bashrc"),),
    shown=(Bind(b"/home/u/.config/other", b"/home/u/.config/other"), Bind(PROJECT, PROJECT)),
    private=(b"/tmp", b"/run/user/1000"),
    hidden=(b"/srv/state",),
    covered=(b"/run/docker.sock",),
    live=(
        Bind(b"/home/u/.config/gh", b"/home/u/.config/gh", writable=True),
        Bind(b"/run/user/1000/bus", b"/run/user/1000/bus", writable=True),
    ),
)
USER = SandboxSpec(
    project=PROJECT,
    view=Overlay((PROJECT,), VAULT + b"/forks/f/upper", VAULT + b"/forks/f/work"),
    cwd=PROJECT + b"/src",
    home=b"/home/u",
    scratch=VAULT + b"/scratch",
    network="open",
    caches=CacheView(
        ((b"cache", b"/home/u/.cache"), (b"npm", b"/home/u/.npm")),
        (VAULT + b"/cache/host/user",),
        VAULT + b"/forks/f/caches/upper",
        VAULT + b"/forks/f/caches/work/1",
    ),
    binds=(Bind(PROJECT + b"/.mudroom", PROJECT + b"/.mudroom"),),
    files=((b"/home/u/.gitconfig", b"[user]\n"),),
    devices=(b"/dev/null",),
    landlock_abi=6,
    uid_map=b"1000 1000 1",
    gid_map=b"1000 1000 1",
    around=AROUND,
)


def printed(spec: SandboxSpec) -> list[str]:
    lines = list(explain(compile_bare(spec, "x86_64")))
    return [lines[0], *(line[5:].split(" filter, ")[0] for line in lines[1:])]


AS_USER = """\
namespaces: user, mount, pid
stop mount events from passing between here and the host
the host's root, with all that is mounted there (ro,nosuid,nodev)
private tmpfs at /dev (nosuid,noexec)
show /dev/null at /dev/null (ro,nosuid,noexec)
directory /dev/shm (1777)
directory /dev/pts (755)
link /dev/fd -> /proc/self/fd
link /dev/stdin -> /proc/self/fd/0
link /dev/stdout -> /proc/self/fd/1
link /dev/stderr -> /proc/self/fd/2
link /dev/ptmx -> pts/ptmx
private tmpfs at /home/u (nosuid,nodev)
link /home/u/.bashrc -> dotfiles/bashrc
directory /home/u/.cache (700)
directory /home/u/.config (700)
directory /home/u/.config/gh (700)
show /home/u/.config/other at /home/u/.config/other (ro,nosuid,nodev)
file /home/u/.gitconfig (7 bytes)
directory /home/u/.npm (700)
show /home/u/work at /home/u/work (ro,nosuid,nodev)
private tmpfs at /srv/state (ro,nosuid,nodev,noexec)
make /home/u ro,nosuid,nodev
make /dev ro,nosuid,noexec
let no program gain a capability
private tmpfs at /run/user/1000 (nosuid,nodev)
private tmpfs at /tmp (nosuid,nodev)
private tmpfs at /dev/shm (nosuid,nodev)
fresh proc at /proc
own pseudo-terminals at /dev/pts
staged view at /home/u/.cache: /home/u/.local/state/mudroom/vaults/p1/forks/f/caches/upper over /home/u/.local/state/mudroom/vaults/p1/cache/host/user
bind 2 directories of /home/u/.cache to their own places
staged view at /home/u/work: /home/u/.local/state/mudroom/vaults/p1/forks/f/upper over /home/u/work
show /home/u/work/.mudroom at /home/u/work/.mudroom (ro,nosuid,nodev)
hide /run/docker.sock
show /home/u/.config/gh at /home/u/.config/gh (nosuid,nodev)
show /run/user/1000/bus at /run/user/1000/bus (nosuid,nodev)
hand /home/u/work to mudroom's own file tools, if they asked for it
a pseudo-terminal of the command's own, if it is run on one
leave the host's root behind
work in /home/u/work/src
umask 022
drop every capability, and check
no_new_privs: no set-uid program gains anything
Landlock, 0 rules
system call""".splitlines()  # noqa: E501


def test_as_an_ordinary_user() -> None:
    assert printed(USER) == AS_USER


def test_as_root_the_kernels_settings_are_covered() -> None:
    added = [line for line in printed(USER._replace(as_root=True)) if line not in AS_USER]
    assert "show /proc/sys at /proc/sys (ro,nosuid,nodev,noexec)" in added
    assert "show /proc/sysrq-trigger at /proc/sysrq-trigger (ro,nosuid,nodev,noexec)" in added
    assert "hide /proc/keys" in added


def test_a_copy_is_shown_at_the_projects_own_path() -> None:
    lines = printed(USER._replace(view=Copy(VAULT + b"/copy")))
    assert [line for line in lines if line not in AS_USER] == [
        "show /home/u/.local/state/mudroom/vaults/p1/copy at /home/u/work (nosuid,nodev)"
    ]


def test_abstract_sockets_stay_the_hosts_only_if_a_named_store_needs_them() -> None:
    assert "Landlock, 0 rules" not in printed(USER._replace(around=AROUND._replace(abstract=True)))


def writable(plan: Plan) -> set[bytes]:
    """Return the host paths that a command could write: binds without the read-only attribute, except devices."""
    found = {step[1] for step in plan.steps if step[0] == "bind" and not step[3] & 1}
    return {path for path in found if not path.startswith(b"/dev/")}


@pytest.mark.parametrize("as_root", [False, True])
@pytest.mark.parametrize("view", [USER.view, Copy(VAULT + b"/copy")], ids=["overlay", "copy"])
def test_nothing_of_the_host_can_be_written_but_caches_and_what_was_named(as_root: bool, view: Overlay | Copy) -> None:
    plan = compile_bare(USER._replace(as_root=as_root, view=view), "x86_64")
    expected = {bind.source for bind in AROUND.live}
    assert writable(plan) == expected | ({view.work} if isinstance(view, Copy) else set())
    host = [step for step in plan.steps if step[0] == "host"]
    assert host == [("host", USER.scratch, 7)]
    ops = [step[0] for step in plan.steps]
    assert ops.index("host") < ops.index("pivot") < ops.index("drop_capabilities") < ops.index("seccomp")
    assert ops.index("drop_bounding_set") < plan.shared
    assert "cover" not in ops[: plan.shared], "a cover is gone as soon as the host puts another file there"
    assert plan.namespaces == NAMESPACES["user"] | NAMESPACES["mount"] | NAMESPACES["pid"]


def test_without_namespaces_only_what_is_named_can_be_written() -> None:
    copy, private = VAULT + b"/copy", VAULT + b"/private"
    around = HostView(shown=(Bind(b"/usr", b"/usr"), Bind(b"/home/u/.bashrc", b"/home/u/.bashrc")), live=AROUND.live)
    bare = USER._replace(namespaces=False, view=Copy(copy), scratch=private, cwd=copy, around=around, binds=())
    plan = compile_bare(bare, "x86_64")
    (landlock,) = (step for step in plan.steps if step[0] == "landlock")
    _op, handled, net, scoped, rules, _flags = landlock
    reading = 1 | 4 | 8  # execute, read a file, list a directory: include/uapi/linux/landlock.h
    assert handled & reading == reading
    assert (net, scoped) == (0, 3)
    granted = {path for path, access in rules if access & ~reading}
    assert granted == {copy, private, b"/home/u/.config/gh", b"/run/user/1000/bus", b"/dev/null"}
    assert {path for path, access in rules if access & 4} == granted | {b"/usr", b"/home/u/.bashrc"}
    assert dict(rules)[b"/"] & 4 == 0
    assert plan.mediation is not None
    assert set(plan.mediation[2]) == granted - {b"/dev/null"}


def test_what_the_filter_permits_that_level_1_does_not() -> None:
    assert set(NUMBERS) >= PERMITTED
    assert len(RULES) == len([rule for rule in DENY if rule.syscall not in PERMITTED])
    left = {rule.syscall for rule in RULES}
    for name in ("ioctl", "setns", "open_by_handle_at", "mknodat", "bpf", "io_uring_setup", "keyctl", "kexec_load"):
        assert name in left, name
    for name in ("mount", "umount2", "chroot", "pivot_root", "ptrace"):
        assert name not in left, name
    narrowed = [rule for rule in RULES if rule not in DENY]
    assert [(rule.syscall, rule.conditions[0].mask) for rule in narrowed] == [
        ("unshare", 0x2000000),
        ("clone", 0x2000000),
    ]


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_a_denial_has_the_number_of_its_rule_in_the_whole_list(machine: str) -> None:
    step = compile_bare(USER, machine).steps[-1]
    assert step[0] == "seccomp"
    for _number, own in step[3]:
        for index, action, _conditions in own:
            assert DENY[index].syscall in {rule.syscall for rule in RULES}
            assert DENY[index].action == action
