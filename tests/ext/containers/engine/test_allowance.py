"""The limits that containers enforce, and what becomes of the others."""

from __future__ import annotations

import pytest

from mudroom.core.confinement.limit import Limits
from mudroom.errors import Unsupported
from mudroom.ext.containers.core.container import Engine
from mudroom.ext.containers.engine.plain_plan import OWN_MEMORY, OWN_PROCESSES, allow

ENGINE = Engine("docker", b"/usr/bin/docker")


def test_its_own_processes_are_not_the_users() -> None:
    limits = allow(Limits(memory=1 << 26, processes=10, cpus=2, open_files=99), ENGINE).limits
    assert (limits.memory, limits.processes) == ((1 << 26) + OWN_MEMORY, 10 + OWN_PROCESSES)
    assert (limits.cpus, limits.open_files) == (2, 99)
    assert allow(Limits(), ENGINE).limits == Limits()


@pytest.mark.parametrize("limits", [Limits(io=10**6), Limits(total_memory=10**9), Limits(total_cpus=1)])
def test_what_no_container_holds_is_refused_unless_it_may_be_missing(limits: Limits) -> None:
    with pytest.raises(Unsupported, match="at level 2 a limit of") as raised:
        allow(limits, ENGINE)
    needs = f"needs a control group that enforces it; found: containers of {ENGINE.kind}, whose control groups do not"
    hint = "use level 1, remove the limit, or permit running without it: limits: {missing: degrade} in the policy"
    assert str(raised.value).endswith(f", {needs} ({hint})")
    allowed = allow(limits._replace(missing="degrade"), ENGINE)
    assert allowed.limits == Limits(missing="degrade")
    (note,) = allowed.notes
    assert "not enforced" in note
