import { describe, expect, test } from "vitest";

import { markdownBlocks } from "../src/text/blocks";
import { shownCountdown } from "../src/text/format";
import { reveal } from "../src/text/invisible";
import { linkTarget } from "../src/text/links";

describe("invisible characters", () => {
  test.each([
    ["\u{202E}", "\\u{202E}"],
    ["\u{200B}", "\\u{200B}"],
    ["\u{2066}", "\\u{2066}"],
    ["\u{FEFF}", "\\u{FEFF}"],
    ["\u{E0041}", "\\u{E0041}"],
    ["\u{E0101}", "\\u{E0101}"],
    ["\u0007", "\\u{7}"],
    ["\u{3164}", "\\u{3164}"],
    ["\u2028", "\\u{2028}"],
  ])("%j is shown by its name", (character, name) => {
    expect(reveal(`a${character}b`)).toEqual([
      { text: "a", isHidden: false },
      { text: name, isHidden: true },
      { text: "b", isHidden: false },
    ]);
  });
  test("text in any script stays as it is", () => {
    const text = "Grüße, नमस्ते, سلام, 你好, 👍\n\tnext";
    expect(reveal(text)).toEqual([{ text, isHidden: false }]);
  });
});

describe("links", () => {
  test.each(["https://a.example/x", "http://a.example/", "mailto:a@b.example"])("%s may be one", (url) =>
    expect(linkTarget(url)?.href).toBe(url),
  );
  test.each([
    "javascript:alert(1)",
    " JaVaScRiPt:alert(1)",
    "data:text/html,x",
    "vbscript:x",
    "file:///etc/passwd",
    "blob:https://a.example/1",
    "/v1/runs",
    "//a.example",
    "https://bos.example@a.example/",
    "",
    undefined,
  ])("%s may not", (url) => expect(linkTarget(url)).toBeUndefined());
  test("the host is the one that is called, not one that looks like it", () => {
    expect(linkTarget("https://b\u043Es.example/")?.host).toBe("xn--bs-fmc.example");
  });
});

describe("blocks of Markdown", () => {
  const TEXT = "# A\n\ntext\nmore\n\n```sql\nselect 1\n\nselect 2\n```\n\n- x\n\n- y\n\nend";
  test("are cut between paragraphs, not in code or lists, and joined are the text", () => {
    const blocks = markdownBlocks(TEXT);
    expect(blocks).toEqual([
      "# A\n\n",
      "text\nmore\n\n",
      "```sql\nselect 1\n\nselect 2\n```\n\n- x\n\n- y\n\n",
      "end",
    ]);
    expect(blocks.join("")).toBe(TEXT);
  });
  test.each([
    ["a footnote", "one[^1]\n\ntwo\n\n[^1]: said at the end\n"],
    ["an address by reference", "see [here][x]\n\ntwo\n\n[x]: https://example.com\n"],
  ])("a text with %s is one block, as it concerns all of it", (_name, text) => {
    expect(markdownBlocks(text)).toEqual([text]);
    expect(markdownBlocks(text.replace(/^\[.*\n/m, ""))).toHaveLength(2);
  });
  test("only the last one changes while the text grows by paragraphs", () => {
    for (let length = 1; length <= TEXT.length; length++) {
      expect(markdownBlocks(TEXT.slice(0, length)).join("")).toBe(TEXT.slice(0, length));
    }
  });
});

test("a countdown never says less than nothing", () => {
  expect([65_000, 3_725_000, 400, -5].map(shownCountdown)).toEqual(["1:05", "1:02:05", "0:01", "0:00"]);
});
