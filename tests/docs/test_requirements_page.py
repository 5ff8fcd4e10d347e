"""The page of requirements: which marks are found, and what is refused."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from requirements_page import marks, mentions, page, survey, tags

IDS = ("Z-01", "Z-02")
SECTIONS = {"Last things": {"Z-01": "It ends.", "Z-02": "It ends well."}}
TEST = Path("services/some/tests/test_some.py")
CALL = "pytest.mark." + "requirement"
MODULE = f"""
import pytest

pytestmark = [pytest.mark.security, {CALL}("Z-01")]

@{CALL}("Z-01", "Z-02")
async def test_function(): ...

@{CALL}("Z-02")
class TestClass:
    @pytest.mark.parametrize("x", [pytest.param(1, marks={CALL}("Z-01"))])
    def test_method(self, x): ...
"""


BROWSER_TESTS = """
test("one", { tag: "@Z-01" }, async ({ page }) => {
  await page.goto("/");
});

test.describe("on a phone", () => {
  test("two, (both)", { tag: ["@Z-01", "@Z-02"] }, async ({
    page,
  }) => {});
  test("three", async ({ page }) => {});
  test(`theme ${theme}`, { tag: ["@Z-02"] }, async ({ page }) => {});
});
"""


def test_marks_of_all_kinds_are_found() -> None:
    assert [(mark.ids, mark.target) for mark in marks(MODULE)] == [
        (("Z-01",), ""),
        (("Z-01", "Z-02"), "test_function"),
        (("Z-02",), "TestClass"),
        (("Z-01",), "TestClass::test_method"),
    ]


def test_tags_of_browser_tests_are_found() -> None:
    assert [(mark.ids, mark.target) for mark in tags(BROWSER_TESTS)] == [
        (("Z-01",), "one"),
        (("Z-01", "Z-02"), "two, (both)"),
        (("Z-02",), "theme ${theme}"),
    ]
    found = survey(IDS, {Path("services/console/e2e/some.spec.ts"): BROWSER_TESTS})
    assert not found.wrong
    assert "[console/e2e: some.spec.ts](../../services/console/e2e/some.spec.ts) `two, (both)`" in (
        page(SECTIONS, found)
    )


def test_unknown_tags_and_ids_outside_of_tags_are_refused() -> None:
    unknown = survey(IDS, {Path("e2e/some.spec.ts"): 'test("one", { tag: "@Z-03" }, () => {});'})
    assert [line for line in unknown.wrong if "Z-03 is not in" in line]
    outside = survey(IDS, {Path("e2e/some.spec.ts"): 'test("one, Z-01", () => {});\n'})
    assert outside.wrong[0].startswith("e2e/some.spec.ts:1: Z-01 stands here")
    assert not outside.shown


def test_page_links_tests_and_names_open_requirements() -> None:
    found = survey(IDS, {TEST: f'@{CALL}("Z-01")\ndef test_it(): ...\n'})
    assert not found.wrong
    text = page(SECTIONS, found)
    assert "1 of 2 are shown" in text
    assert (
        "| Z-01 | It ends. | [some: test_some.py](../../services/some/tests/test_some.py) "
        "`test_it` |"
    ) in text
    assert "| Z-02 | It ends well. | open |" in text
    assert text == page(SECTIONS, survey(IDS, {TEST: f'\n\n@{CALL}("Z-01")\ndef test_it(): ...\n'}))


def test_marks_and_ids_in_the_wrong_place_are_refused() -> None:
    for arguments in ("", "name", '"Z-01", "Z-01"', 'id="Z-01"', "1"):
        found = survey(IDS, {TEST: f"@{CALL}({arguments})\ndef test_it(): ...\n"})
        assert any("as plain text, each once" in line for line in found.wrong), arguments
    unknown = survey(IDS, {TEST: f'@{CALL}("Z-03")\ndef test_it(): ...\n'})
    assert unknown.wrong == [f"{TEST}:1: Z-03 is not in {Path('tests/docs/requirements.toml')}"]
    assert not unknown.shown
    for path in ("docs/page.md", "services/some/src/some.py", str(TEST)):
        found = survey(IDS, {Path(path): "One.\n# See Z-02.\n"})
        assert found.wrong[0].startswith(f"{path}:2: Z-02 stands here")
        assert not survey(IDS, {Path(path): "One.\n# See Y-02.\n"}).wrong
    product = survey(IDS, {Path("services/some/src/some.py"): f'@{CALL}("Z-01")\ndef f(): ...\n'})
    assert (len(product.wrong), product.shown) == (1, {})


def test_ids_and_foreign_documents_are_found() -> None:
    similar = "[A-Z]-01", "ABZ-01", "Z-011", "Z-01-2026", "spec", "SPECIAL", "design", "X-1"
    assert [text for text in similar if mentions(text, IDS)] == []
    ids = "(Z-01)", "Z-01..Z-02", "the " + "SP" + "EC says", "DEC" + "-01"
    assert [text for text in ids if not mentions(text, IDS)] == []
