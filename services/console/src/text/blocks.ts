/** Top-level blocks of a Markdown text, so that only the last one is parsed again while it grows. */

const FENCE = /^ {0,3}(`{3,}|~{3,})/;
/** What may go on with the block before an empty line: list items, indented text, quotes, tables. */
const CONTINUES = /^(\s|[-+*] |\d{1,9}[.)] |>|\||\[[^\]]+\]:)/;

/** What is said in one block and meant in others: footnotes, and addresses of links by reference. */
const DEFINITION = /^ {0,3}\[[^\]\n]{1,200}\]:/m;

/**
 * Splits at empty lines outside fenced code and lists; joined, the blocks are the text again. A text
 * with definitions, which concern all of it, is one block.
 */
export function markdownBlocks(text: string): string[] {
  if (DEFINITION.test(text)) return [text];
  const blocks: string[] = [];
  let current = "";
  let fence = "";
  let afterEmptyLine = false;
  for (const line of text.split(/(?<=\n)/)) {
    const isEmpty = line.trim() === "";
    if (!fence && afterEmptyLine && !isEmpty && current && !CONTINUES.test(line)) {
      blocks.push(current);
      current = "";
    }
    const mark = FENCE.exec(line)?.[1];
    if (!fence && mark) fence = mark;
    else if (mark && mark[0] === fence[0] && mark.length >= fence.length) fence = "";
    current += line;
    afterEmptyLine = isEmpty;
  }
  return current ? [...blocks, current] : blocks;
}
