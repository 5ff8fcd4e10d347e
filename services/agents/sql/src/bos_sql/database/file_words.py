"""Words of tasks about files: names of files, what means uploads, what reads or makes a file.

Pure. Every repetition that others follow is bounded, so that a search takes time in proportion to
the length of the task.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_TABLES: Final = "csv|tsv|tab|xlsx|xlsm|xlsb|xls|ods|parquet"
_NO_TABLES: Final = "jsonl?|txt|xml|numbers|dbf|mdb|accdb|sav|dta|feather|avro|orc|zip|gz"
"""Endings of files that hold rows, and of which no table is made."""
_QUOTES: Final = "\"'“”‘’‚„«»「」《》"
_CHARS: Final = rf"[^\s{_QUOTES}<>|,;:()（）？。，、：]{{1,120}}"
_NAME: Final = rf"{_CHARS}\.(?<!\.\.)(?:{_TABLES}|{_NO_TABLES})(?!\.?[A-Za-z0-9_])"
_NO_TABLE: Final = re.compile(rf"\.(?:{_NO_TABLES})\Z", re.IGNORECASE)
_KIND: Final = r"(?:csv|tsv|excel|xlsx|parquet)"
_WORDS: Final = r"(?:files?|sheets?|spreadsheets?|workbooks?)"
_GERMAN: Final = r"(?:datei(?:en)?)"
_NOUNS: Final = (
    r"(?:fichiers?|feuilles? de calcul|tableurs?|archivos?|ficheros?|hojas? de cálculo"
    r"|arquivos?|ficheiros?|planilhas?|fogli(?:o|) di calcolo|bestand(?:en)?|plik\w*|arkusz\w*"
    r"|soubor\w*|fil(?:en|erna)|dosya\w*|fájl\w*|файл\w*|αρχεί\w*|tệp)"
)
"""Files and spreadsheets. Some are words of databases, too, such as *archivo* and *Bestand*."""
_NOUNS_UNSPACED: Final = (
    r"(?:文件|档案|檔案|ファイル|스프레드시트|파일|ملف|קובץ|הקבצים|ไฟล์|फ़ाइल|फाइल)"
)
_MINE: Final = (
    r"(?:mes|mon|ce|cet|cette|ces|nos|notre|mis?|nuestr[oa]s?|est[aeo]s?|es[aeo]s?|meus?|minhas?"
    r"|noss[oa]s?|mijn|onze|ons|dit|deze|dat|mój|moje|moich|mojego|moim|te[nj]|tego|tym|tych|můj"
    r"|tento|tomto|mina|min|denna|dessa|benim|bu|şu|мой|мои|мо[её]м|моего|моих|этот|это[мй]|этого"
    r"|эти|этих|наш\w*|αυτό|αυτά)"
)
"""Possessives and demonstratives."""
_UPLOADED: Final = (
    r"(?:télé(?:vers|charg)é\w*|subid[oa]s?|cargad[oa]s?|carregad[oa]s?|enviad[oa]s?"
    r"|caricat[oaie]|geüpload\w*|wgran\w*|przesłan\w*|nahran\w*|uppladda\w*|yükle(?:di|nen)\w*"
    r"|feltöltött\w*|загруж[её]н\w*|загрузил\w*|ανέβασ\w*|tải lên)"
)
_MEANS: Final = re.compile(
    r"\bupload(?:s|ed)?\b"
    rf"|\b(?:my|our|this|that|these|those|attached|(?:in|from|of|within)\s+the)\s+"
    rf"(?:{_KIND}\s+)?{_WORDS}\b",
    re.IGNORECASE,
)
_MEANS_FOREIGN: Final = re.compile(
    rf"\b(?:{_GERMAN}|hochgeladen\w*|téléversé\w*|geüpload\w*)\b"
    rf"|\b{_MINE}\s+(?:\w{{1,30}}\s+)?{_NOUNS}\b"
    rf"|\b(?:mi(?:o|ei)|quest[oi]|nostr[oi])\s+(?:file|fogli[oe]?)\b"
    rf"|\b(?:{_NOUNS}|files?|{_KIND})(?:,?\s+\w{{1,30}}){{0,3}},?\s+{_UPLOADED}\b"
    rf"|\b{_UPLOADED}\s+(?:\w{{1,30}}\s+)?{_NOUNS}\b"
    r"|(?:我(?:们|們)?的?|这个|这些|這個|這些|该|此)(?:文件|档案|檔案|表格)"
    r"|上[传傳]的|上[传傳][^。？]{0,8}(?:文件|档案|檔案|表格)|(?:文件|档案|檔案|表格)[^。？]{0,4}上[传傳]"
    r"|(?:この|その|これらの|私の|自分の)ファイル|アップロード(?:し|され|済)"
    r"|(?<![가-힣])(?:내|제|이|우리)\s?파일|업로드\s?(?:한|된|파일)"
    r"|ملف(?:ي|اتي)|هذا الملف|الملف(?:ات)? (?:المرفوع|التي رفعت)"
    r"|(?:הקובץ|הקבצים) (?:הזה|האלה|שלי|שהעליתי)|ไฟล์(?:ของฉัน|นี้|ที่อัปโหลด)"
    r"|(?:मेरी|मेरे|मेरा|इस|अपलोड की गई) (?:फ़ाइल|फाइल)",
    re.IGNORECASE,
)
"""Uploads in other languages: but for German *Datei*, a noun alone does not mean them."""
_SOUNDS: Final = re.compile(
    rf"{_NAME}|\b(?:{_KIND}|{_WORDS}|{_NOUNS}|upload(?:s|ed)?)\b|{_NOUNS_UNSPACED}", re.IGNORECASE
)
_MAKES: Final = re.compile(
    r"\b(?:speicher[en]|exportieren?|erstelle|schreibe?|enregistr(?:e|ez|er)|export(?:e|ez|er)"
    r"|cré(?:ez|er)|guard(?:a|e|ar)|escrib(?:e|a|ir)|crear?|export(?:a|ar)|salv(?:a|e|ar|are)"
    r"|esport(?:a|are)|creare|scrivi|crie|criar|opslaan|bewaar|exporteer|zapisz|utwórz|wyeksportuj"
    r"|kaydet|сохрани(?:те|ть)?|экспортируй(?:те)?|экспортировать|созда(?:й|йте|ть)"
    r"|запиши(?:те)?|записать)\b"
    r"|(?:保存|导出|導出|生成|写入)(?![了的时時日しさすせ])|(?:保存|出力|作成)(?:して|しな|する|せよ)"
    r"|저장\s?[해하]|내보내|احفظ|שמור",
    re.IGNORECASE,
)
"""Asks in other languages for a file that is to be made: imperatives, as whole words."""
_BEFORE: Final = (
    r"(?:in|from|of|within|aus|von|vom|dans|de|du|en|del|da|dal|nel|em|do|uit|van|z|w|ze|из|в|от)"
)
_READS: Final = re.compile(
    rf"\b{_BEFORE}\s+(?:(?:the|der|le|la|el|il|o)\s+)?(?:\w{{1,40}}\s+)?"
    rf"[\"'“‘„«]?(?P<file>{_NAME})"
    rf"|[\"'“‘「《]?(?P<named>{_NAME})[\"'”’」》]?\s?(?:里|中|的|内|の|에서|에|의)",
    re.IGNORECASE,
)
_NEAR: Final = 120
"""Characters before a name that say whether it is a file, and whether that is to be made."""
_QUOTE: Final = rf"[{_QUOTES}]?\Z"
_WRITES: Final = re.compile(
    rf"\b(?:to|into|as|named|called|save|create|write)\s+(?:the\s+|a\s+)?(?:file\s+)?{_QUOTE}"
    r"|(?:^|[.!?;:,]\s*|\b(?:and|then|please)\s+)(?:save|store|write)\b[^.!?;]{1,80}?\bin\s+"
    rf"(?:the\s+|a\s+)?(?:file\s+)?{_QUOTE}",
    re.IGNORECASE,
)
"""What stands before the name of a file that is to be made."""
_FROM: Final = re.compile(
    r"(?:\b(?:from|of|aus|von|vom|du|de|del|della|dal|da|do|uit|van|z|ze|из|от|über|sur|sobre|su)\s+"
    rf"(?:\w{{1,40}}\s+){{0,2}}|[从從由]\s?|根据\s?){_QUOTE}",
    re.IGNORECASE,
)
"""What stands before the name of a file that is read, also where another one is to be made."""
_FILE: Final = re.compile(
    rf"(?:\b(?:{_WORDS}|{_GERMAN}|{_NOUNS})\s+|{_NOUNS_UNSPACED}\s?){_QUOTE}",
    re.IGNORECASE,
)
"""A word for a file before its name."""
_FILE_FOLLOWS: Final = re.compile(rf"[\"'”’]?\s+(?:{_KIND}|{_WORDS})\b", re.IGNORECASE)


def sounds_like_files(task: str) -> bool:
    """Whether a task may be about uploaded files, so that it pays to look at them."""
    return any(each.search(task) for each in (_SOUNDS, _MEANS, _MEANS_FOREIGN))


def means_uploads(task: str) -> bool:
    """Whether a task speaks of uploads, in English or another language."""
    foreign = _MEANS_FOREIGN.search(task) is not None and _MAKES.search(task) is None
    return foreign or _MEANS.search(task) is not None


def reads_file(task: str, file: str) -> bool:
    """Whether a task, case-folded as the name with its ending, reads from the file."""
    makes = _MAKES.search(task) is not None
    return any(not _is_made(task, each.start(), makes=makes) for each in _said(task, file))


def calls_file(task: str, name: str) -> bool:
    """Whether a task, case-folded as the name, calls that a file: "the sales file"."""
    makes = _MAKES.search(task) is not None
    return any(
        _FILE_FOLLOWS.match(task, each.end())
        or (
            _stands_before(_FILE, task, each.start())
            and not _is_made(task, each.start(), makes=makes)
        )
        for each in _said(task, name)
    )


def says(task: str, name: str) -> bool:
    """Whether a task, case-folded as the name, has it as words of their own."""
    return any(_said(task, name))


def file_read(task: str) -> str:
    """Name of a file that a task surely reads, there or not; empty if it reads none.

    What ends like a file of which no table is made may be a column: "values in orders.zip". It is
    a file if the task means uploads, quotes it, or has a word for a file before it.
    """
    makes = _MAKES.search(task) is not None
    uploads = means_uploads(task)
    for found in _READS.finditer(task):
        group = "file" if found["file"] else "named"
        name, start = found[group], found.start(group)
        if _is_made(task, start, makes=makes):
            continue
        quoted = task[max(0, start - 1) : start] in tuple(_QUOTES)
        if not is_no_table(name) or uploads or quoted or _stands_before(_FILE, task, start):
            return name
    return ""


def is_no_table(file: str) -> bool:
    """Whether a file's name ends like those that hold rows, and of which no table is made."""
    return _NO_TABLE.search(file) is not None


def _is_made(task: str, start: int, *, makes: bool) -> bool:
    """Whether the file whose name starts there is to be made."""
    return _stands_before(_WRITES, task, start) or (
        makes and not _stands_before(_FROM, task, start)
    )


def _stands_before(what: re.Pattern[str], task: str, start: int) -> bool:
    return what.search(task, max(0, start - _NEAR), start) is not None


def _said(task: str, name: str) -> Iterator[re.Match[str]]:
    """Where a task has the name, as words of their own."""
    # Chinese and Japanese write no blanks between words.
    word = "[a-z0-9_à-ÿа-я]"
    return re.finditer(rf"(?<!{word}){re.escape(name)}(?!{word}|\.{word})", task)
