"""Uploaded files in a task: whether it is about some, and the overview of their tables.

Files are the database ``files`` of mcp_db, which is asked only if a task sounds like it. Prompts,
calls and costs of every other task are those of a deployment without files.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from bos_agentkit import AgentFailure
from bos_errors import AgentErrorType
from bos_sql.database.metadata import read_overview, require_success

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from bos_sql.database.metadata import Overview, ReadSchema, TableSummary
    from bos_sql.settings import SqlSettings

FILES_DATABASE: Final = "files"
"""Name of the database of uploaded files at mcp_db."""
# What says that there is no such database, or that this agent may not read it.
_NONE: Final = frozenset({"UNKNOWN_DATABASE", "FILES_NOT_OPEN"})

_TABLES: Final = "csv|tsv|tab|xlsx|xlsm|xlsb|xls|ods|parquet"
_NO_TABLES: Final = "jsonl?|txt|xml|numbers|dbf|mdb|accdb|sav|dta|feather|avro|orc|zip|gz"
"""Endings of files that hold rows, and of which no table is made."""
_CHARS: Final = r"[^\s\"'“”‘’„«»「」《》<>|,;:()（）？。，、：]+"
_NAME: Final = rf"{_CHARS}\.(?:{_TABLES}|{_NO_TABLES})(?![\w.]*[A-Za-z0-9])"
_KIND: Final = r"(?:csv|tsv|excel|xlsx|parquet)"
_WORDS: Final = r"(?:files?|sheets?|spreadsheets?|workbooks?)"
_FOREIGN: Final = re.compile(
    r"\b(?:datei(?:en)?|hochgeladen\w*|fichiers?|feuilles? de calcul|tableurs?"
    r"|télé(?:vers|charg)é\w*"
    r"|archivos?|ficheros?|hojas? de cálculo|subid[oa]s?|arquivos?|ficheiros?|planilhas?"
    r"|fogli(?:o|) di calcolo|caricat[oaie]|bestand(?:en)?|geüpload\w*|plik\w*|arkusz\w*|soubor\w*"
    r"|fil(?:en|erna)|dosya\w*|yükle(?:di|nen)\w*|fájl\w*|файл\w*|загружен\w*|αρχεί\w*|tệp)\b"
    r"|文件|档案|檔案|表格|上传|上傳|ファイル|アップロード|스프레드시트|파일|업로드|ملف|קובץ|הקבצים|ไฟล์|फ़ाइल|फाइल",
    re.IGNORECASE,
)
"""Files, spreadsheets and uploads in other languages."""
_MAKES: Final = re.compile(
    r"\b(?:speicher|exportier|erstell|schreib|enregistr|exporte|crée|guarda|escrib|salva|esporta|crea"
    r"|zapisz|kaydet|сохран|экспорт|созда|запиш)\w*|保存|导出|導出|生成|写入|出力|作成|저장|내보내|احفظ|שמור",
    re.IGNORECASE,
)
"""Asks in other languages for a file that is to be made."""
_SOUNDS: Final = re.compile(rf"{_NAME}|\b(?:{_KIND}|{_WORDS}|upload(?:s|ed)?)\b", re.IGNORECASE)
_MEANS_UPLOADS: Final = re.compile(
    r"\bupload(?:s|ed)?\b"
    rf"|\b(?:my|our|this|that|these|those|attached|(?:in|from|of|within)\s+the)\s+"
    rf"(?:{_KIND}\s+)?{_WORDS}\b",
    re.IGNORECASE,
)
_BEFORE: Final = (
    r"(?:in|from|of|within|aus|von|vom|dans|de|du|en|del|da|dal|nel|em|do|uit|van|z|w|ze|из|в|от)"
)
_READS: Final = re.compile(
    rf"\b{_BEFORE}\s+(?:(?:the|der|le|la|el|il|o)\s+)?(?:\w+\s+)?[\"'“‘„«]?(?P<file>{_NAME})"
    rf"|[\"'“‘「《]?(?P<named>{_NAME})[\"'”’」》]?\s?(?:里|中|的|内|の|에서|에|의)",
    re.IGNORECASE,
)
_WRITES: Final = re.compile(
    r"\b(?:to|into|as|named|called)\s+(?:the\s+|a\s+)?(?:file\s+)?[\"'“‘]?\Z", re.IGNORECASE
)
"""What stands before the name of a file that is to be made."""
_FILE_FOLLOWS: Final = re.compile(rf"[\"'”’]?\s+(?:{_KIND}|{_WORDS})\b")
_LISTED: Final = 10
_SHORTEST: Final = 3
"""Characters of the shortest name of a file that is looked for without its ending."""


def sounds_like_files(task: str) -> bool:
    """Whether a task may be about uploaded files, so that it pays to look at them."""
    return _SOUNDS.search(task) is not None or _FOREIGN.search(task) is not None


async def files_overview(read: ReadSchema, settings: SqlSettings, task: str) -> Overview | None:
    """Read the tables of uploaded files that a task is about; None if it is about none.

    Args:
        read: Calls mcp_db.
        settings: Bound results.
        task: What is to be found out. Files that it names are taken, with or without ending; if it
            speaks of uploads and names none, all of them.

    Raises:
        AgentFailure: InvalidArgument where it reads from a file that is not there or is no table;
            else as classified by mcp_db.
    """
    envelope = await read({"database": FILES_DATABASE})
    reason = (envelope.get("error") or {}).get("reason")
    surely = _means_uploads(task) or _READS.search(task)
    if reason in _NONE or (reason and not surely):
        return None
    require_success(envelope)
    overview = read_overview(envelope, settings)
    if named := _named(overview.tables, task):
        return _narrowed(overview, named)
    _require_readable(overview, envelope, task)
    return overview if overview.tables and _means_uploads(task) else None


def _means_uploads(text: str) -> bool:
    """Whether a text speaks of uploads, in English or another language."""
    english = _MEANS_UPLOADS.search(text) is not None
    return english or (_FOREIGN.search(text) is not None and _MAKES.search(text) is None)


def _named(tables: Iterable[TableSummary], task: str) -> tuple[TableSummary, ...]:
    """Tables whose file the task reads by name: with its ending, or as a file or an upload."""
    text = task.casefold()
    of_uploads = _means_uploads(text)
    return tuple(table for table in tables if _reads(text, table, of_uploads=of_uploads))


def _reads(text: str, table: TableSummary, *, of_uploads: bool) -> bool:
    file = _file(table).casefold()
    if not _MAKES.search(text) and any(
        not _WRITES.search(text, 0, found.start()) for found in _said(text, file)
    ):
        return True
    stem = file.rpartition(".")[0]
    short = {table.name.casefold(), *([stem] if len(stem) >= _SHORTEST else [])}
    return any(
        of_uploads or _FILE_FOLLOWS.match(text, found.end())
        for name in short
        for found in _said(text, name)
    )


def _said(text: str, name: str) -> Iterator[re.Match[str]]:
    """Where a text has the name, as words of their own."""
    # Chinese and Japanese write no blanks between words.
    word = "[a-z0-9_à-ÿа-я]"
    return re.finditer(rf"(?<!{word}){re.escape(name)}(?!{word}|\.{word})", text)


def _narrowed(overview: Overview, tables: tuple[TableSummary, ...]) -> Overview:
    """The overview with these tables alone, under a fingerprint of their own."""
    names = "\n".join(table.name for table in tables)
    digest = hashlib.sha256(names.encode()).hexdigest()[:16]
    fingerprint = f"{overview.fingerprint}-{digest}" if overview.fingerprint else ""
    return replace(overview, tables=tables, fingerprint=fingerprint)


def _require_readable(overview: Overview, envelope: Mapping[str, Any], task: str) -> None:
    """Say so where a task reads from a file that is no table, or not there: no other data will do.

    Raises:
        AgentFailure: names the file.
    """
    text = task.casefold()
    for each in envelope.get("rejected") or ():
        file, why = str(each.get("file", "")), str(each.get("reason", ""))
        if file and any(_said(text, file.casefold())):
            raise _unreadable(f"The file {file!r} cannot be read as a table: {why}.")
    found = _READS.search(task)
    name = found and (found["file"] or found["named"])
    if not name or _MAKES.search(task):
        return
    if re.search(rf"\.(?:{_NO_TABLES})$", name, re.IGNORECASE):
        raise _unreadable(
            f"The file {name!r} cannot be read as a table. Save it as CSV or XLSX and upload that."
        )
    files = sorted({_file(table) for table in overview.tables})
    shown = ", ".join(files[:_LISTED]) + (" and more" if len(files) > _LISTED else "")
    there = f"Uploaded and readable: {shown}." if files else "No file has been uploaded."
    raise _unreadable(f"There is no uploaded file {name!r}. {there}")


def _file(table: TableSummary) -> str:
    """Name of the file of a table, whose title has the sheet behind it; no name has a slash."""
    return table.title.partition(" / ")[0] if table.title else table.name


def _unreadable(message: str) -> AgentFailure:
    return AgentFailure(AgentErrorType.INVALID_ARGUMENT, message)
