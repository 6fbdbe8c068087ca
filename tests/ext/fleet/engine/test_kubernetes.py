"""Pods as workers: the manifest, and errands over a ``kubectl exec -i`` into namespaces."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from base_transfer import make
from pods import end, pods

from box import if_namespaces

ROOT = Path(__file__).parents[4]
SHOWN = ROOT / "examples/kubernetes"


def manifests() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((SHOWN / "sandbox.yaml").read_text()))


def test_the_manifest_gives_a_worker_what_it_needs_and_nothing_else() -> None:
    sandbox, network = manifests()
    assert (sandbox["kind"], sandbox["apiVersion"]) == ("Sandbox", "agents.x-k8s.io/v1beta1")
    pod = sandbox["spec"]["podTemplate"]["spec"]
    (container,) = pod["containers"]
    assert pod["hostUsers"] is False and pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    security = container["securityContext"]
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert (security["privileged"], security["allowPrivilegeEscalation"]) == (False, False)
    assert "ports" not in container and not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
    assert network["spec"]["ingress"] == network["spec"]["egress"] == []
    assert network["spec"]["podSelector"]["matchLabels"] == sandbox["spec"]["podTemplate"]["metadata"]["labels"]


def test_the_manifest_is_a_sandbox_by_the_resource_s_own_fields() -> None:
    """agent-sandbox prunes fields that it does not know: a misspelt one would be a missing protection."""
    schema = json.loads((Path(__file__).parent / "sandbox.schema.json").read_text())
    checker = jsonschema.Draft202012Validator(schema)
    sandbox, _network = manifests()
    assert [error.message for error in checker.iter_errors(sandbox)] == []
    (container,) = sandbox["spec"]["podTemplate"]["spec"]["containers"]
    claims = {claim["metadata"]["name"] for claim in sandbox["spec"]["volumeClaimTemplates"]}
    assert {mount["name"] for mount in container["volumeMounts"]} <= claims
    for place in (sandbox["spec"], sandbox["spec"]["podTemplate"]["spec"], container["securityContext"]):
        place["hostUser"] = False
        assert [error.validator for error in checker.iter_errors(sandbox)] == ["additionalProperties"]
        del place["hostUser"]
    del sandbox["spec"]["podTemplate"]
    assert [error.validator for error in checker.iter_errors(sandbox)] == ["required"]


def test_every_line_of_the_manifest_that_loosens_is_explained() -> None:
    page = (ROOT / "docs/FLEET.md").read_text()
    for word in ("hostUsers: false", "procMount: Unmasked", "seccompProfile: Localhost", "appArmorProfile: Unconfined"):
        assert f"`{word}`" in page


def test_the_image_starts_nothing_and_is_no_root() -> None:
    lines = (SHOWN / "Dockerfile").read_text().splitlines()
    assert "USER 1000" in lines and 'CMD ["sleep", "infinity"]' in lines
    assert not any(line.startswith(("EXPOSE", "ENTRYPOINT")) for line in lines)


@if_namespaces
@pytest.mark.deep
def test_errands_run_in_pods_and_a_pod_that_is_gone_loses_its_own(tmp_path: Path) -> None:
    project = make(tmp_path / "project", {"a.py": b"a\n", ".env": b"TOKEN=planted"})
    for name in ("home", "state"):
        (tmp_path / name).mkdir(mode=0o700)
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path / "home"),
        "MUDROOM_STATE": str(tmp_path / "state"),
        "MUDROOM_KEEPER": "0",
    }

    def mudroom(*words: str) -> str:
        command = [sys.executable, "-m", "mudroom", *words]
        done = subprocess.run(
            command, cwd=project, env=environ, capture_output=True, text=True, timeout=60, check=False
        )
        return done.stdout + done.stderr

    (tmp_path / "pods").mkdir()
    with pods(tmp_path / "pods", "pod-0", "pod-1") as (kubectl, held):
        for name in ("pod-0", "pod-1", "pod-2"):
            mudroom("fleet", "add", name, "--", str(kubectl), "exec", "-i", "{node}", "--", *WORKER)
        listed = mudroom("fleet", "ls")
        assert listed.count("levels") == 2, listed
        assert 'pods "pod-2" not found' in listed
        told = mudroom("fleet", "run", "-n", "4", "--on", "pod-0", "--on", "pod-1", "--", "sh", "-c", COMMAND)
        assert told.count("exit 0") >= 4, told
        end(held["pod-1"])
        told = mudroom("fleet", "run", "-n", "2", "--on", "pod-0", "--on", "pod-1", "--", "sh", "-c", COMMAND)
        assert told.count("exit 0") >= 2, told
    diff = mudroom("diff", "r1-1")
    assert str(project) in diff and "planted" not in diff
    assert sorted(path.name for path in project.iterdir()) == [".env", "a.py"]


WORKER = (sys.executable, "-m", "mudroom", "worker", "--stdio")
COMMAND = "pwd > seen; wc -c < .env >> seen"
