"""Containers without namespaces inside: the plan, and the container's mounts."""

from __future__ import annotations

import pytest

from mudroom.core.confinement.cache_place import CacheView
from mudroom.core.confinement.plan import Step, explain
from mudroom.core.confinement.spec import Bind, Copy, SandboxSpec
from mudroom.ext.containers.engine.plain_plan import compile_inside
from mudroom.sandbox.linux.plan import PROXY_PORT, filter_for
from mudroom.sandbox.linux.syscall import DENY, NO_NETWORK

PROJECT, WORK = b"/home/u/work", b"/state/v/forks/f/copy/work"
SPEC = SandboxSpec(
    project=PROJECT,
    view=Copy(WORK),
    cwd=PROJECT + b"/src",
    home=b"/home/u",
    scratch=b"/state/v/scratch",
    namespaces=False,
    network="gate",
    caches=CacheView(((b"npm", b"/home/u/.npm"),), upper=b"/state/v/forks/f/caches/plain"),
    binds=(
        Bind(PROJECT + b"/.mudroom", PROJECT + b"/.mudroom"),
        Bind(b"/usr", b"/usr"),
    ),
    masks=(b"/etc/shadow",),
    landlock_abi=7,
    rlimits=((7, 64, 64),),
)


def test_the_steps() -> None:
    plan = compile_inside(SPEC, "x86_64")
    assert plan.namespaces == 0 and plan.shared == plan.ahead == 0
    assert [step[0] for step in plan.steps] == [
        "view", "terminal", "listen", "hand_over", "umask", "cwd", "drop_bounding_set", "drop_capabilities",
        "no_new_privs", "rlimit", "landlock", "seccomp",
    ]  # fmt: skip
    assert plan.steps[0] == ("view", PROJECT)
    assert plan.steps[2] == ("listen", PROXY_PORT, 0, (), b"")


def test_places_of_this_machine_have_listeners_before_they_are_handed_over() -> None:
    plan = compile_inside(SPEC._replace(loopback=(("127.0.0.1", 8377, 0),)), "x86_64")
    assert plan.steps[2:5] == (
        ("listen", PROXY_PORT, 0, (), b""), ("listen_on_loopback", (("127.0.0.1", 8377),)), ("hand_over",)
    )  # fmt: skip


def test_what_the_container_is_made_with() -> None:
    plan = compile_inside(SPEC, "x86_64")
    assert plan.mounts == (
        (b"/usr", b"/usr", False),
        (b"/state/v/forks/f/caches/plain/npm", b"/home/u/.npm", True),
        (b"/dev/null", b"/etc/shadow", False),
        (WORK, PROJECT, True),
        (PROJECT + b"/.mudroom", PROJECT + b"/.mudroom", False),
    )
    assert plan.memory == (b"/home/u",)
    assert "  -  the container shows /state/v/forks/f/copy/work at /home/u/work (rw)" in list(explain(plan))


def test_nothing_but_copy_and_caches_can_be_written() -> None:
    writable = [place for _source, place, writable in compile_inside(SPEC, "x86_64").mounts if writable]
    assert writable == [b"/home/u/.npm", PROJECT]


@pytest.mark.parametrize("network", ["none", "open"])
def test_without_the_gate_nobody_listens(network: str) -> None:
    plan = compile_inside(SPEC._replace(network=network), "x86_64")  # type: ignore[arg-type]
    assert not {"listen", "hand_over"} & {step[0] for step in plan.steps}


def test_without_a_network_no_socket_is_made() -> None:
    """The container's loopback is one for all commands in it."""
    plan = compile_inside(SPEC._replace(network="none"), "x86_64")
    assert plan.steps[-1] == ("seccomp", filter_for("x86_64", (*NO_NETWORK[1:2], *DENY)))


def steps_of(abi: int) -> tuple[Step, ...]:
    return compile_inside(SPEC._replace(landlock_abi=abi), "x86_64").steps


def test_an_old_kernel_has_no_scopes() -> None:
    scopes = {abi: [step[3] for step in steps_of(abi) if step[0] == "landlock"] for abi in (1, 5, 6)}
    assert scopes == {1: [], 5: [0], 6: [3]}


def test_an_unknown_machine() -> None:
    with pytest.raises(ValueError, match="no system call filter"):
        compile_inside(SPEC, "vax")
