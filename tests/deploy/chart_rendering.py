"""The chart as helm renders it, and what tests ask of it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm/bos"
PROFILES = ("minimal", "ha", "airgapped")
RELEASE = NAMESPACE = "bos"
# The same programs on every machine.
_TOOLS = ("sh", str(ROOT / "tests/deploy/tools.sh"))
_INSIDE = re.compile(r"(?<![\w.-])bos-([a-z][a-z0-9-]*):(8080|5432|6333)")


def tools(what: str) -> Path:
    """Folder of the programs, built if they are not there yet."""
    ended = subprocess.run((*_TOOLS, what), check=True, text=True, capture_output=True)
    return Path(ended.stdout.strip())


class RefusedValues(Exception):
    """Helm did not take the values; holds what it said."""


@dataclass(frozen=True)
class Chart:
    """Renders the chart.

    Attributes:
        helm: The program.
        folder: Of the chart.
    """

    helm: Path
    folder: Path = CHART

    def render(self, profile: str, *sets: str, values: Mapping[str, Any] | None = None) -> Rendered:
        """The objects of a profile, with further values as ``--set`` takes them.

        Raises:
            RefusedValues: Schema or chart do not take these values.
        """
        command = [str(self.helm), "template", RELEASE, str(self.folder), "--namespace", NAMESPACE]
        command += ["--values", str(self.folder / f"ci/{profile}.yaml")]
        command += [part for each in sets for part in ("--set-json", each)]
        given = "" if values is None else yaml.safe_dump(dict(values))
        if values is not None:
            command += ["--values", "-"]
        ended = subprocess.run(command, input=given, text=True, capture_output=True, check=False)
        if ended.returncode:
            raise RefusedValues(ended.stderr)
        return Rendered([each for each in yaml.safe_load_all(ended.stdout) if each])


@dataclass(frozen=True)
class Rendered:
    """Objects of a release."""

    objects: list[dict[str, Any]]

    def of(self, kind: str) -> dict[str, dict[str, Any]]:
        """Objects of a kind by their name without that of the release."""
        return {
            each["metadata"]["name"].removeprefix(f"{RELEASE}-"): each
            for each in self.objects
            if each["kind"] == kind
        }

    def pods(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Component and template of all that makes pods."""
        for kind in ("Deployment", "StatefulSet", "Job"):
            for each in self.of(kind).values():
                template = each["spec"]["template"]
                yield component(template["metadata"]["labels"]), template

    def services(self) -> dict[str, dict[str, Any]]:
        """Specifications of the pods of services, by component."""
        return {
            name: each["spec"]["template"]["spec"] for name, each in self.of("Deployment").items()
        }

    def policies(self) -> dict[str, dict[str, Any]]:
        """Specifications of network policies of one component, by component."""
        found = {}
        for each in self.of("NetworkPolicy").values():
            labels = each["spec"]["podSelector"]["matchLabels"]
            if "app.kubernetes.io/component" in labels:
                found[component(labels)] = each["spec"]
        return found


def component(labels: Mapping[str, str]) -> str:
    """Component of a pod."""
    return labels["app.kubernetes.io/component"]


def environment(pod: Mapping[str, Any], container: int = 0) -> dict[str, str]:
    """Settings that a pod's container holds in plain text."""
    return {
        each["name"]: each["value"]
        for each in pod["containers"][container].get("env", [])
        if "value" in each
    }


def from_secrets(pod: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Secret and key of each variable that a pod's container takes from a Secret."""
    found = {}
    for each in pod["containers"][0].get("env", []):
        if "valueFrom" in each:
            at = each["valueFrom"]["secretKeyRef"]
            found[each["name"]] = at["name"], at["key"]
    return found


def mounted_keys(pod: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Secret and key of each file below /run/secrets/bos, by the file's name."""
    found = {}
    for volume in pod["volumes"]:
        for source in volume.get("projected", {}).get("sources", []):
            for item in source["secret"]["items"]:
                found[item["path"]] = source["secret"]["name"], item["key"]
    return found


def called(settings: Mapping[str, str]) -> set[str]:
    """Components that settings name with their port."""
    return {name for text in settings.values() for name, _ in _INSIDE.findall(text)}


def peers(rules: list[dict[str, Any]] | None, side: str) -> set[str]:
    """Components of this release in the rules of a policy; ``side`` is to or from."""
    return {
        component(peer["podSelector"]["matchLabels"])
        for rule in rules or []
        for peer in rule.get(side, [])
        if "namespaceSelector" not in peer and "podSelector" in peer
    }
