import { createElement } from "react";
import { renderToStaticMarkup } from "react-dom/server";
import { describe, expect, test, vi } from "vitest";

import Formula from "../src/text/Formula";
import { Block } from "../src/text/Markdown";

const html = (text: string) => renderToStaticMarkup(createElement(Block, { text }));
const words = (text: string) => html(text).replace(/<[^>]+>/g, "").replaceAll("&lt;", "<").replaceAll("&gt;", ">");

describe("every character of an answer can be read", () => {
  test.each([
    ["工期5~10天，费用100~200元。", "工期5~10天，费用100~200元。"],
    ["It costs ~100 to ~200 (range 5~10, 6~8).", "It costs ~100 to ~200 (range 5~10, 6~8)."],
    ["Use List<String>; the <order_id> placeholder.", "Use List<String>; the <order_id> placeholder."],
    ["x<y and y>z", "x<y and y>z"],
    ["<div>\nImportant: pay 5 %\n</div>\n\nrest", "<div>\nImportant: pay 5 %\n</div>\nrest"],
    ["a <!-- note --> b", "a <!-- note --> b"],
    ["> <b>bold</b>\n", "\n<b>bold</b>\n"],
    ["It costs $5 and the other $10, or $5/$10.", "It costs $5 and the other $10, or $5/$10."],
    ["Revenue ($) and net_amount ($)", "Revenue ($) and net_amount ($)"],
    ["| customer | revenue ($) | unit_price ($) |\n|-|-|-|", "customerrevenue ($)unit_price ($)"],
    ["|a|b_1|\n|-|-|\n|$5|unit_price$|", "ab_1$5unit_price$"],
    ["cd $HOME_DIR/$USER", "cd $HOME_DIR/$USER"],
    ["![of $x_1$](https://a.example/x.png)", "[image left out: of $x_1$]"],
    ["as in \\[1\\] and \\[12\\]", "as in [1] and [12]"],
    ["Run `$x_1$` and ``a``.", "Run $x_1$ and a."],
    ["    indented $x_1$ code", "indented $x_1$ code\n"],
  ])("%j", (text, read) => expect(words(text)).toBe(read));
  test.each([
    ["**注意：**请在三月前付款", "<p><strong>注意：</strong>请在三月前付款</p>"],
    ["10<sup>6</sup> of H<SUB>2</SUB>O", "<p>10<sup>6</sup> of H<sub>2</sub>O</p>"],
    ["~~gone~~", "<p><del>gone</del></p>"],
    ["30 days<br>5 %<br/>", "<p>30 days<br/>\n5 %<br/>\n</p>"],
    ["<sup>open", "<p>&lt;sup&gt;open</p>"],
    ['<img src="x" onerror="alert(1)"> <a href="javascript:alert(1)">x</a>', "<p>&lt;img src=&quot;x&quot; onerror=&quot;alert(1)&quot;&gt; &lt;a href=&quot;javascript:alert(1)&quot;&gt;x&lt;/a&gt;</p>"],
  ])("%j is %s", (text, shown) => expect(html(text)).toBe(shown));
});

describe("formulas", () => {
  const mathml = (source: string, isDisplayed = false) =>
    renderToStaticMarkup(createElement(Formula, { source, isDisplayed }));
  test("are shown as they stand until their chunk is there, then as MathML", async () => {
    expect(html("$x^2$")).toBe("<p><code>x^2</code></p>");
    await vi.waitFor(() => {
      expect(html("$x^2$")).toBe("<p><math><msup><mi>x</mi><mn>2</mn></msup></math></p>");
    });
  });
  test.each([
    ["Area $\\pi r^2$.", "\\pi r^2", false],
    ["The sum \\(a_1 + a_2\\) of", "a_1 + a_2", false],
    ["so\n\n$$\na * b * c\n$$", "a * b * c", true],
    ["\\[ \\frac{1}{2} \\]", "\\frac{1}{2}", true],
    ["面積は$x^2$です", "x^2", false],
    ["($x_1$) and $|x_2|$", "|x_2|", false],
    ["|a|\n|-|\n|$x^2$|", "x^2", false],
  ])("%j is read before Markdown", (text, source, isDisplayed) => {
    expect(html(text)).toContain(mathml(source, isDisplayed));
  });
  test.each(["\\frac{1}{", "\\unknown{x}", "\\def\\a{\\a\\a}\\a"])("%j is shown as it stands", (source) => {
    expect(mathml(source)).toBe(`<code>${source}</code>`);
  });
  test.each([
    ["\\rule{1em}{90000em}", '<mspace width="1em"></mspace>'],
    ["\\rule{80pt}{5em}", '<mspace height="5em"></mspace>'],
    ["\\raisebox{40em}{x}", "<mpadded><mstyle"],
    ["\\genfrac{}{}{90em}{}{1}{2}", "<mfrac><mn>1</mn><mn>2</mn></mfrac>"],
  ])("%j has no length above five em", (source, shown) => expect(mathml(source)).toContain(shown));
  test.each(["\\href{javascript:alert(1)}{x}", "\\includegraphics{https://a.example/x.png}", "\\style{color:red}{x}"])(
    "%j brings no address and no style",
    (source) => expect(mathml(source)).not.toMatch(/href=|src=|style=|<img|<a /),
  );
});
