"""Program that finds the readable text of pages: one line of JSON in, one out.

It is a process of its own because it reads untrusted pages with code that is not safe from them by
construction: it has no environment, little memory, and its parent ends it when it is slow.
"""

from __future__ import annotations

import json
import resource
import sys

from lxml import html as lxml_html  # of trafilatura
from trafilatura import extract
from trafilatura.settings import DEFAULT_CONFIG

_NOISE = ["//nav", "//footer", "//form", "//*[@role='navigation']", "//*[@aria-hidden='true']"]
# Text that is there and not seen is where orders to models are hidden.
_UNSEEN = (
    "//*[@hidden or contains(translate(@style,' ','') ,'display:none')"
    " or contains(translate(@style,' ',''),'visibility:hidden')"
    " or contains(translate(@style,' ',''),'font-size:0')"
    " or contains(translate(@style,' ',''),'opacity:0')]"
)
_MAX_TITLE_CHARS = 300


def main() -> None:
    """Answer until standard input ends.

    ``argv``: address space in bytes.
    """
    limit = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            found = readable(asked["html"], int(asked["max_chars"]))
        except (MemoryError, RecursionError, ValueError, LookupError, TypeError, AttributeError):
            found = {"title": "", "text": "", "scripts": False}
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()


def readable(page: str, max_chars: int) -> dict[str, str | bool]:
    """Title and text of a page, and whether it looks as if scripts would fill it."""
    tree = lxml_html.fromstring(page.encode("utf-8", "replace"), parser=_parser())
    title = " ".join((tree.findtext(".//title") or "").split())[:_MAX_TITLE_CHARS]
    scripts = bool(tree.xpath("boolean(//script)"))
    noscript = " ".join(tree.xpath("string(//noscript)").split())[:_MAX_TITLE_CHARS]
    for each in tree.xpath(_UNSEEN):
        if each.getparent() is not None and each.tag not in ("html", "body"):
            each.drop_tree()
    text = extract(
        tree,
        output_format="txt",
        include_comments=False,
        include_tables=True,
        include_links=False,
        include_images=False,
        favor_recall=True,
        deduplicate=False,
        prune_xpath=_NOISE,
        config=DEFAULT_CONFIG,
    )
    found = text or ""
    waits = scripts and (
        len(found) < 200 or ("javascript" in noscript.lower() and len(found) < 600)
    )
    return {"title": title, "text": found[:max_chars], "scripts": waits}


def _parser() -> lxml_html.HTMLParser:
    # Without network and entities; huge trees stay refused.
    return lxml_html.HTMLParser(encoding="utf-8", no_network=True, huge_tree=False)


if __name__ == "__main__":
    main()
