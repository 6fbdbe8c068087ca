"""Specs compiled to plans: read line by line, and checked for properties of every spec."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher_steps import STEPS
from mudroom.core.confinement.cache_place import NO_CACHES, CacheView
from mudroom.core.confinement.plan import _DESCRIPTIONS, NAMESPACES, Plan, Step, explain
from mudroom.core.confinement.spec import Bind, Copy, Overlay, SandboxSpec
from mudroom.core.tree.path import is_below
from mudroom.errors import UsageError
from mudroom.sandbox.linux.plan import (
    FS_EXECUTE,
    FS_READ_DIR,
    FS_READ_FILE,
    FS_REFER,
    FS_WRITE_FILE,
    compile_plan,
    filesystem_rights,
)
from mudroom.sandbox.linux.seccomp import compile_filter
from mudroom.sandbox.linux.syscall import DENY, MACHINES, NO_NAMESPACES, NO_NETWORK
from tiers import each

pytestmark = pytest.mark.both_users

VAULT = b"/home/u/.local/state/mudroom/p1"
PROJECT = b"/home/u/work"

USER = SandboxSpec(
    project=PROJECT,
    view=Overlay((PROJECT,), VAULT + b"/forks/f/upper", VAULT + b"/forks/f/work"),
    cwd=PROJECT + b"/src",
    home=b"/home/u",
    scratch=VAULT + b"/scratch",
    links=((b"usr/bin", b"/bin"),),
    caches=CacheView(
        ((b"cache", b"/home/u/.cache"), (b"npm", b"/home/u/.npm")),
        (VAULT + b"/cache/host/user",),
        VAULT + b"/forks/f/caches/upper",
        VAULT + b"/forks/f/caches/work/1",
    ),
    binds=(
        Bind(b"/usr", b"/usr"),
        Bind(b"/etc", b"/etc"),
        Bind(b"/home/u/.pyenv", b"/home/u/.pyenv"),
        Bind(PROJECT + b"/.mudroom", PROJECT + b"/.mudroom"),
    ),
    devices=(b"/dev/null", b"/dev/tty"),
    landlock_abi=6,
    uid_map=b"1000 1000 1",
    gid_map=b"1000 1000 1",
)
COPY = USER._replace(view=Copy(VAULT + b"/forks/f/copy"))
BARE = COPY._replace(namespaces=False, cwd=VAULT + b"/forks/f/copy/src", scratch=VAULT + b"/forks/f/private")


def compiled(spec: SandboxSpec, machine: str = "x86_64") -> Plan:
    return compile_plan(spec, machine)


def printed(spec: SandboxSpec) -> list[str]:
    """The plan without the numbers of its steps, and without the length of the filter."""
    lines = list(explain(compiled(spec)))
    return [lines[0], *(line[5:].split(" filter, ")[0] for line in lines[1:])]


def ops(plan: Plan) -> list[str]:
    return [step[0] for step in plan.steps]


AS_USER = """\
namespaces: user, mount, pid, ipc, uts, cgroup, net
stop mount events from passing between here and the host
a new, empty root
link /bin -> usr/bin
directory /dev (755)
show /dev/null at /dev/null (ro,nosuid,noexec)
show /dev/tty at /dev/tty (ro,nosuid,noexec)
show /etc at /etc (ro,nosuid,nodev)
show /usr at /usr (ro,nosuid,nodev)
link /dev/fd -> /proc/self/fd
link /dev/stdin -> /proc/self/fd/0
link /dev/stdout -> /proc/self/fd/1
link /dev/stderr -> /proc/self/fd/2
link /dev/ptmx -> pts/ptmx
link /var/run -> /run
directory /proc (555)
let no program gain a capability
private tmpfs at /dev/shm (nosuid,nodev)
private tmpfs at /home/u (nosuid,nodev)
show /home/u/.pyenv at /home/u/.pyenv (ro,nosuid,nodev)
private tmpfs at /run (nosuid,nodev)
private tmpfs at /tmp (nosuid,nodev)
private tmpfs at /var/tmp (nosuid,nodev)
fresh proc at /proc
hide /proc/keys
hide /proc/key-users
own pseudo-terminals at /dev/pts
make /proc/sys read-only
make /proc/1 read-only
bring the private loopback up
staged view at /home/u/.cache: /home/u/.local/state/mudroom/p1/forks/f/caches/upper over /home/u/.local/state/mudroom/p1/cache/host/user
bind 2 directories of /home/u/.cache to their own places
staged view at /home/u/work: /home/u/.local/state/mudroom/p1/forks/f/upper over /home/u/work
show /home/u/work/.mudroom at /home/u/work/.mudroom (ro,nosuid,nodev)
hand /home/u/work to mudroom's own file tools, if they asked for it
hand /home/u, /tmp, /var/tmp to mudroom, which tells what is left there
a pseudo-terminal of the command's own, if it is run on one
make / ro,nosuid,nodev
leave the host's root behind
work in /home/u/work/src
umask 022
drop every capability, and check
no_new_privs: no set-uid program gains anything
Landlock, 1 rule
system call""".splitlines()  # noqa: E501


def test_as_an_ordinary_user() -> None:
    assert printed(USER) == AS_USER
    plan = compiled(USER)
    assert plan.maps == (b"1000 1000 1", b"1000 1000 1", True)
    assert plan.mediation is None
    prepared = plan.steps[: plan.shared], plan.steps[plan.shared : plan.shared + plan.ahead]
    assert prepared[0][-1] == ("drop_bounding_set",)
    assert not [step for step in prepared[0] if step[0] in ("tmpfs", "file")], "no command can write to what is shared"
    assert prepared[1][-7:] == (
        ("proc", b"proc"),
        ("cover", b"proc/keys"),
        ("cover", b"proc/key-users"),
        ("devpts", b"dev/pts"),
        ("freeze", b"proc/sys"),
        ("freeze", b"proc/1"),
        ("loopback",),
    )


def difference(spec: SandboxSpec) -> tuple[list[str], list[str]]:
    """Return the steps that the plan of ``spec`` lacks and adds, compared with an ordinary user's."""
    found = printed(spec)
    return [line for line in AS_USER if line not in found], [line for line in found if line not in AS_USER]


def test_as_root_more_is_taken_away() -> None:
    root = USER._replace(as_root=True, masks=(b"/etc/shadow",), uid_map=b"0 0 4294967295", deny_setgroups=False)
    assert compiled(root).maps == (b"0 0 4294967295", b"1000 1000 1", False)
    assert difference(root) == (
        ["make /proc/sys read-only"],
        [
            "show /proc/sys at /proc/sys (ro,nosuid,nodev,noexec)",
            "show /proc/sysrq-trigger at /proc/sysrq-trigger (ro,nosuid,nodev,noexec)",
            "show /proc/irq at /proc/irq (ro,nosuid,nodev,noexec)",
            "show /proc/bus at /proc/bus (ro,nosuid,nodev,noexec)",
            "show /proc/fs at /proc/fs (ro,nosuid,nodev,noexec)",
            "hide /proc/timer_list",
            "hide /proc/vmallocinfo",
            "hide /proc/slabinfo",
            "hide /proc/pagetypeinfo",
            "hide /proc/kpagecount",
            "hide /proc/kpageflags",
            "hide /proc/kpagecgroup",
            "hide /etc/shadow",
        ],
    )


def test_a_copy_appears_at_the_projects_own_path() -> None:
    lacks, has = difference(COPY)
    assert lacks == [line for line in AS_USER if line.startswith("staged view at /home/u/work")]
    assert has == ["show /home/u/.local/state/mudroom/p1/forks/f/copy at /home/u/work (nosuid,nodev)"]


def test_an_open_network_is_the_hosts() -> None:
    lacks, has = difference(USER._replace(network="open"))
    assert lacks == ["namespaces: user, mount, pid, ipc, uts, cgroup, net", "bring the private loopback up"]
    assert has == ["namespaces: user, mount, pid, ipc, uts, cgroup"]


@each("abi", range(6))
def test_landlock_adds_to_namespaces_only_what_they_do_not_do(abi: int) -> None:
    """A domain in which those of joined commands are nested; from ABI 6 its scopes."""
    assert difference(USER._replace(landlock_abi=abi)) == (["Landlock, 1 rule"] if abi < 2 else [], [])
    step = compiled(USER._replace(landlock_abi=max(2, abi))).steps[-2]
    assert step == ("landlock", FS_REFER, 0, 0, ((b"/", FS_REFER),), 0)
    assert compiled(USER).steps[-2] == ("landlock", FS_REFER, 0, 3, ((b"/", FS_REFER),), 0)


@pytest.mark.parametrize(("abi", "flags"), [(6, 0), (7, 5), (9, 5)])
def test_what_landlock_refuses_does_not_fill_the_log_of_the_host(abi: int, flags: int) -> None:
    for spec in (USER, COPY, BARE):
        (step,) = [step for step in compiled(spec._replace(landlock_abi=abi)).steps if step[0] == "landlock"]
        assert step[5] == flags


SOCKETS = (b"/run/user/1000/agent", b"/tmp/.X11-unix")


@pytest.mark.parametrize("abi", [6, 7, 8])
@pytest.mark.parametrize("sockets", [(), SOCKETS])
def test_before_its_ninth_abi_landlock_handles_no_socket_beside_namespaces(
    abi: int, sockets: tuple[bytes, ...]
) -> None:
    flags = 0 if abi < 7 else 5
    assert compiled(USER._replace(landlock_abi=abi, sockets=sockets)).steps[-2] == (
        "landlock", FS_REFER, 0, 3, ((b"/", FS_REFER),), flags,
    )  # fmt: skip


ASKED_AT_OPEN = FS_EXECUTE | FS_WRITE_FILE | FS_READ_FILE | FS_READ_DIR | 1 << 14 | 1 << 15
"""With LANDLOCK_ACCESS_FS_TRUNCATE and _IOCTL_DEV: hook_file_open in security/landlock/fs.c."""


@each("abi", range(10))
def test_landlock_is_not_asked_when_a_file_of_the_view_is_opened(abi: int) -> None:
    """For a right that it handles, the kernel walks from the file up to a directory whose rule grants it, or to the
    root; without one it returns at once (is_access_to_paths_allowed)."""
    for spec in (USER, COPY):
        for step in compiled(spec._replace(landlock_abi=abi)).steps:
            assert step[0] != "landlock" or not step[1] & ASKED_AT_OPEN


def test_in_a_mounted_fork_the_sockets_of_the_users_own_programs_are_out_of_reach() -> None:
    spec = USER._replace(landlock_abi=9, view=Copy(b"/vault/mounts/f", (1, 2)))
    for view in (spec, spec._replace(view=Copy(b"/vault/copy"))):
        (step,) = [step for step in compiled(view).steps if step[0] == "landlock"]
        assert (spec.project in dict(step[4])) == (view is not spec)


def test_sockets_of_others_are_out_of_reach_but_in_the_forks_own_places() -> None:
    """A live store, a toolchain and the private directories have no rule: the command's own servers need none."""
    store = Bind(b"/home/u/.gnupg", b"/home/u/.gnupg", writable=True)
    spec = USER._replace(landlock_abi=9, sockets=SOCKETS, binds=(*USER.binds, store))
    refer, resolve = 1 << 13, 1 << 16
    for view in (spec, spec._replace(view=COPY.view)):
        step = compiled(view).steps[-2]
        assert step[:4] == ("landlock", refer | resolve, 0, 3)
        assert dict(step[4]) == {
            b"/": refer,
            PROJECT: resolve,
            b"/home/u/.cache": resolve,
            b"/home/u/.npm": resolve,
            **dict.fromkeys(SOCKETS, resolve),
        }


def test_without_namespaces() -> None:
    assert printed(BARE) == [
        "namespaces: none",
        "hand /home/u/.local/state/mudroom/p1/forks/f/copy to mudroom's own file tools, if they asked for it",
        "a pseudo-terminal of the command's own, if it is run on one",
        "umask 022",
        "work in /home/u/.local/state/mudroom/p1/forks/f/copy/src",
        "let no program gain a capability",
        "drop every capability, and check",
        "no_new_privs: no set-uid program gains anything",
        "Landlock, 10 rules",
        "system call",
        "mediate 21 metadata calls: only in "
        "/home/u/.local/state/mudroom/p1/forks/f/copy, /home/u/.local/state/mudroom/p1/forks/f/private",
    ]


READ, WRITE_FILE, EVERYTHING = 0b1101, 0b10, filesystem_rights(6)


def landlock_rules(spec: SandboxSpec) -> dict[bytes, int]:
    (step,) = [step for step in compiled(spec).steps if step[0] == "landlock"]
    rules: tuple[tuple[bytes, int], ...] = step[4]
    assert len(dict(rules)) == len(rules)
    return dict(rules)


def test_without_namespaces_landlock_says_what_may_be_opened() -> None:
    rules = landlock_rules(BARE)
    writable = {path for path, access in rules.items() if access & ~READ}
    everything = {path for path, access in rules.items() if access == EVERYTHING}
    assert everything == {VAULT + b"/forks/f/copy", VAULT + b"/forks/f/private"}
    assert writable - everything == {b"/dev/null", b"/dev/tty"}
    assert rules[b"/usr"] == rules[b"/etc"] == rules[b"/proc"] == READ
    assert PROJECT not in rules


@each(
    ("abi", "network", "files", "net", "scoped"),
    [
        (1, "none", 13, 0, 0),
        (2, "none", 14, 0, 0),
        (3, "none", 15, 0, 0),
        (4, "none", 15, 3, 0),
        (5, "none", 16, 3, 0),
        (6, "none", 16, 3, 3),
        (7, "none", 16, 3, 3),
        (6, "open", 16, 0, 3),
        (8, "none", 16, 3, 3),
        (9, "none", 17, 3, 3),
    ],
)
def test_landlock_handles_all_that_the_kernel_can(abi: int, network: str, files: int, net: int, scoped: int) -> None:
    plan = compiled(BARE._replace(landlock_abi=abi, network=network))  # type: ignore[arg-type]
    (step,) = [step for step in plan.steps if step[0] == "landlock"]
    assert step[1:4] == ((1 << files) - 1, net, scoped)
    assert all(access & ~step[1] == 0 for _path, access in step[4]), "a right that is not handled is refused: EINVAL"


def test_without_landlock_there_is_nothing_to_handle() -> None:
    assert filesystem_rights(0) == 0


def test_without_namespaces_the_filter_takes_the_network_away() -> None:
    closed, opened = compiled(BARE), compiled(BARE._replace(network="open"))
    assert closed.steps[-1] == ("seccomp", compile_filter((*NO_NETWORK, *NO_NAMESPACES, *DENY), "x86_64"))
    unix = tuple(rule for rule in NO_NETWORK if rule.conditions)
    assert opened.steps[-1] == ("seccomp", compile_filter((*unix, *NO_NAMESPACES, *DENY), "x86_64"))
    assert unix


def test_an_overlay_needs_a_mount_namespace() -> None:
    with pytest.raises(AssertionError, match="mount namespace"):
        compiled(USER._replace(namespaces=False))


def test_more_layers_than_linux_takes() -> None:
    lowers = tuple(b"/layer/%d" % number for number in range(500))
    assert compiled(USER._replace(view=Overlay(lowers, b"/upper", b"/work")))
    with pytest.raises(ValueError, match="501"):
        compiled(USER._replace(view=Overlay((*lowers, PROJECT), b"/upper", b"/work")))


@pytest.mark.parametrize("spec", [USER, BARE], ids=["namespaces", "without"])
def test_an_unknown_machine_is_refused(spec: SandboxSpec) -> None:
    with pytest.raises(ValueError, match="riscv64"):
        compiled(spec, "riscv64")


# --- for every spec -----------------------------------------------------------------------------------------------


def _caches(vault: bytes, home: bytes, overlay: bool) -> CacheView:
    places = ((b"cache", home + b"/.cache"), (b"npm", home + b"/.npm"))
    caches = vault + b"/forks/f/caches"
    if not overlay:
        return CacheView(places, upper=caches + b"/plain")
    return CacheView(places, (vault + b"/cache/host/user",), caches + b"/upper", caches + b"/work/1")


@st.composite
def specs(draw: st.DrawFn) -> SandboxSpec:
    home = draw(st.sampled_from([b"/home/u", b"/root", b"/tmp/home", b"/run/user/1000"]))
    places = [home + b"/work", home + b"/.cache/p", b"/tmp/p", b"/run/p", b"/dev/shm/p", b"/var/tmp/p", b"/srv/p"]
    project = draw(st.sampled_from([*places, b"/usr/src/p", b"/opt/p"]))
    vault = draw(st.sampled_from([home + b"/.local/state/mudroom/p1", b"/tmp/state/p1", b"/var/lib/mudroom/p1"]))
    shown = [b"/usr", b"/etc", b"/opt", b"/srv", home + b"/.pyenv", b"/tmp/shown", project + b"/.mudroom"]
    shown += [b"/var", b"/var/tmp", b"/var/tmp/shown", b"/var/run/shown", b"/run/shown", b"/home", b"/dev/shm/shown"]
    shown += [b"/bin", b"/bin/shown"]
    binds = [Bind(path, path) for path in shown if draw(st.booleans()) and path != home and not is_below(vault, path)]
    cached = draw(st.booleans()) and not is_below(project, home + b"/.cache")
    if cached and draw(st.booleans()):
        binds.append(Bind(home + b"/.cache/shown", home + b"/.cache/shown"))
    views: list[Overlay | Copy] = [Copy(vault + b"/copy"), Overlay((project,), vault + b"/upper", vault + b"/work")]
    view = draw(st.sampled_from(views))
    namespaces = isinstance(view, Overlay) or draw(st.booleans())
    return SandboxSpec(
        project=project,
        view=view,
        cwd=project,
        home=home,
        scratch=vault + b"/scratch",
        namespaces=namespaces,
        links=((b"usr/bin", b"/bin"),),
        caches=_caches(vault, home, isinstance(view, Overlay)) if cached else NO_CACHES,
        network=draw(st.sampled_from(["none", "open"])),
        binds=tuple(draw(st.permutations(binds))),
        masks=draw(st.sampled_from([(), (b"/etc/shadow", b"/etc/ssh/key")])),
        devices=(b"/dev/null", b"/dev/tty"),
        landlock_abi=draw(st.integers(1, 7)),
        as_root=draw(st.booleans()),
        umask=draw(st.sampled_from([0o022, 0o077])),
    )


def mounted_at(step: Step) -> bytes | None:
    """Return the absolute path at which a step mounts, or None if it mounts nothing."""
    at = {"bind": 2, "inside": 2, "tmpfs": 1, "proc": 1, "devpts": 1, "overlay": 1}.get(step[0])
    return None if at is None else b"/" + step[at]


def mounted_by(step: Step) -> list[bytes]:
    """Return the absolute paths at which a step mounts; not the place that a spread overlay covers itself."""
    if step[0] == "spread":
        return [b"/" + place for _name, place in step[2] if place != step[1]]
    at = mounted_at(step)
    return [] if at is None else [at]


machines = st.sampled_from(sorted(MACHINES))


@given(specs(), machines)
def test_every_step_can_be_performed_and_printed(spec: SandboxSpec, machine: str) -> None:
    plan = compiled(spec, machine)
    assert set(ops(plan)) <= set(STEPS) & set(_DESCRIPTIONS)
    assert all(line.isprintable() for line in explain(plan))
    assert 0 <= plan.shared <= plan.shared + plan.ahead <= len(plan.steps)


@given(specs(), machines)
def test_the_end_is_always_the_same(spec: SandboxSpec, machine: str) -> None:
    """No step follows the filter, and only Landlock comes between it and the loss of every privilege."""
    found = ops(compiled(spec, machine))
    assert found[-1] == "seccomp"
    assert found.count("seccomp") == found.count("no_new_privs") == found.count("drop_capabilities") == 1
    order = [found.index(op) for op in ("drop_bounding_set", "drop_capabilities", "no_new_privs", "seccomp")]
    assert order == sorted(order)
    assert set(found[order[1] :]) <= {"drop_capabilities", "no_new_privs", "landlock", "seccomp"}
    if spec.namespaces:
        inside = found[found.index("pivot") + 1 :]
        assert set(inside) <= {"umask", "cwd", "drop_capabilities", "no_new_privs", "landlock", "seccomp"}
        assert found.index("private") < found.index("root") < found.index("seal") == found.index("pivot") - 1


@given(specs())
def test_nothing_is_covered_and_nothing_is_mounted_before_what_it_lies_in(spec: SandboxSpec) -> None:
    """Above all: a project below /tmp or the home comes after the tmpfs there."""
    mounts = [at for step in compiled(spec).steps for at in mounted_by(step)]
    for number, at in enumerate(mounts):
        assert not [later for later in mounts[number + 1 :] if is_below(at, later)]
    if spec.namespaces:
        assert spec.project in mounts
        assert {b"/tmp", b"/run", b"/dev/shm", spec.home} <= set(mounts)


@given(specs())
def test_nothing_is_made_inside_what_is_shown(spec: SandboxSpec) -> None:
    """It is the host's: read-only, or worse, writable. Mount points in it exist, since they do on the host."""
    made = {"symlink": 2, "file": 1, "directory": 1}
    shown: list[bytes] = []
    links: list[bytes] = []
    for step in compiled(spec).steps:
        if step[0] in made:
            assert not [path for path in shown if is_below(b"/" + step[made[step[0]]], path)]
        at = mounted_at(step)
        assert at is None or not [link for link in links if is_below(at, link)], "through a link"
        if step[0] == "bind" and at is not None:
            shown.append(at)
        if step[0] == "symlink":
            links.append(b"/" + step[2])


@each("path", [b"/", b"/tmp", b"/run", b"/var/run", b"/home/u", b"/proc", b"/proc/1", b"/dev", b"/dev/fd", b"/dev/shm"])
def test_what_the_sandbox_has_of_its_own_cannot_be_shown(path: bytes) -> None:
    with pytest.raises(UsageError, match=f"{path.decode()} cannot be shown"):
        compiled(USER._replace(binds=(*USER.binds, Bind(path, path))))
    assert compiled(BARE._replace(binds=(*BARE.binds, Bind(path, path)))), "Landlock hides nothing, so it can allow it"


@each(
    ("path", "place"),
    [
        (b"/var/run/user", b"/run/user"),
        (b"/bin", b"/usr/bin"),
        (b"/bin/x", b"/usr/bin/x"),
        (b"/var", b"/var"),
        (b"/home", b"/home"),
        (b"/dev/shm/x", b"/dev/shm/x"),
        (b"/tmpx", b"/tmpx"),
    ],
)
def test_what_is_shown_below_a_link_is_where_the_link_leads(path: bytes, place: bytes) -> None:
    plan = compiled(USER._replace(binds=(*USER.binds, Bind(path, path))))
    assert ("bind", path, place[1:], 7, False) in plan.steps


@given(specs())
def test_nothing_of_the_project_or_the_vault_shows_but_what_is_meant_to(spec: SandboxSpec) -> None:
    vault = spec.scratch.removesuffix(b"/scratch")
    for step in compiled(spec).steps:
        if step[0] == "bind":
            assert not is_below(vault, step[1]), "the vault, or what it lies in"
            assert not is_below(spec.project, step[1]) or step[1] in {bind.source for bind in spec.binds}
            if is_below(step[1], vault):
                assert step[1] == vault + b"/copy" or step[1].startswith(vault + b"/forks/f/caches/plain/")
        if step[0] == "landlock":
            assert spec.project not in dict(step[4])
            assert not [path for path, rights in step[4] if is_below(vault, path) and rights != FS_REFER]


@given(specs())
def test_only_the_view_the_caches_and_private_places_can_be_written(spec: SandboxSpec) -> None:
    writable = {b"/" + step[2] for step in compiled(spec).steps if step[0] == "bind" and not step[3] & 1}
    caches = {path for _name, path in spec.caches.places}
    view = {spec.project} if isinstance(spec.view, Copy) else set()
    assert writable <= view | caches | set(spec.devices)
    own = spec.project + b"/.mudroom"
    if spec.namespaces and own in {bind.path for bind in spec.binds}:
        places = [mounted_at(step) for step in compiled(spec).steps]
        assert places.index(own) > places.index(spec.project)


@given(specs())
def test_as_root_the_kernels_settings_cannot_be_written(spec: SandboxSpec) -> None:
    plan = compiled(spec)
    covered = {b"/" + step[2] for step in plan.steps if step[0] == "bind" and step[3] & 1}
    if spec.namespaces:
        assert spec.as_root == (b"/proc/sys" in covered) == (b"/proc/sysrq-trigger" in covered)
        assert set(spec.masks) <= {b"/" + step[1] for step in plan.steps if step[0] == "cover"}


@given(specs(), st.sampled_from([b"/a", b"/b"]), st.sampled_from([0o022, 0o077]))
def test_what_is_prepared_once_does_not_depend_on_the_command(spec: SandboxSpec, cwd: bytes, umask: int) -> None:
    plan = compiled(spec)
    other = compiled(spec._replace(cwd=cwd, umask=umask, view=Copy(b"/another/copy")))
    ahead = plan.shared + plan.ahead
    assert (plan.shared, plan.ahead, plan.steps[:ahead]) == (other.shared, other.ahead, other.steps[:ahead])
    assert bool(ahead) == spec.namespaces
    assert not {"overlay", "cwd", "umask", "pivot"} & {step[0] for step in plan.steps[:ahead]}


@given(specs())
def test_only_an_open_network_shares_the_hosts_namespace(spec: SandboxSpec) -> None:
    plan = compiled(spec)
    everything = sum(NAMESPACES.values())
    if spec.namespaces:
        assert plan.namespaces == (everything if spec.network == "none" else everything & ~NAMESPACES["net"])
        assert ("loopback" in ops(plan)) == (spec.network == "none")
        assert plan.mediation is None
    else:
        assert plan.namespaces == 0
        assert plan.mediation is not None
        assert isinstance(spec.view, Copy)
        assert plan.mediation[2] == (spec.view.work, spec.scratch)
