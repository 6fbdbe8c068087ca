"""The defaults of a spec: what is not said is confined."""

from __future__ import annotations

from mudroom.core.confinement.spec import Bind, Copy, SandboxSpec


def test_what_is_not_said_is_confined() -> None:
    spec = SandboxSpec(project=b"/p", view=Copy(b"/c"), cwd=b"/p", home=b"/h", scratch=b"/s")
    assert spec.namespaces
    assert spec.network == "none"
    assert spec.deny_setgroups
    assert (spec.links, spec.binds, spec.masks, spec.devices) == ((), (), (), ())
    assert not Bind(b"/a", b"/a").writable
