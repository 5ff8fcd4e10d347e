"""The static check before a program runs: an extra net above the tiers' own isolation.

It answers with a :class:`Refusal` that names rule and line. The first three rules hold in every
tier, the others where the service chooses the tier, or the caller chose the interpreter:

===============  ================================================================================
rule             refused
===============  ================================================================================
source_size      more bytes than allowed
characters       control characters, which parsers may read differently
nesting          expressions or blocks inside one another beyond ``MAX_DEPTH`` or what parsers bear
import           a module outside ``ALLOWED_MODULES``
name             ``eval``, ``exec``, ``open``, ``getattr`` with a computed name, …
attribute        names with two leading underscores
format_string    a format string that walks to an underscored attribute
reserved_name    the prefix of the service's own helpers
===============  ================================================================================

Programs that ask for something harmless that the interpreter lacks fail instead (SyntaxError,
ModuleNotFoundError, UnsupportedSyntax): their author can mend that, a violation is final.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

from bos.sandbox.v1 import ProgramStatus

LAST_VALUE = "_bos_last"
MAX_DEPTH = 80

ALLOWED_MODULES = (
    "base64",
    "bisect",
    "collections",
    "copy",
    "csv",
    "dataclasses",
    "datetime",
    "decimal",
    "functools",
    "hashlib",
    "itertools",
    "json",
    "math",
    "random",
    "re",
    "typing",
    "unicodedata",
)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


PROCESS_MODULES = _words(
    "abc array calendar cmath contextlib difflib enum fractions heapq io locale matplotlib numbers "
    "numpy operator pandas pprint statistics string struct textwrap time types uuid warnings "
    "zoneinfo"
)
"""What the interpreter lacks and the process tier has."""

# Asking for one of these is no attack, they are just not here.
_ABSENT_MODULES = PROCESS_MODULES | {"scipy"}
_IMPORTABLE = frozenset({*ALLOWED_MODULES, *_ABSENT_MODULES, "__future__"})
_RESERVED = "_bos"
_FORBIDDEN_NAMES = _words(
    "__import__ breakpoint compile delattr eval exec globals locals memoryview setattr vars"
)
# Common words, so a program may have a variable of this name; it may not use the builtin.
_FORBIDDEN_BUILTINS = _words("dir exit help input open quit")
_ATTRIBUTE_READERS = frozenset({"getattr", "hasattr"})
_ALLOWED_DUNDERS = frozenset({"__name__", "__future__"})
_DEFINABLE_DUNDERS = frozenset(
    f"__{name}__"
    for name in _words(
        "abs add bool call contains enter eq exit float floordiv ge getitem gt hash init int iter "
        "le len lt mod mul ne neg next post_init pow radd repr rmul rsub rtruediv setitem str sub "
        "truediv"
    )
)
_CONTROL = re.compile(r"[^\t\n\r\x20-\x7e\xa0-\U0010ffff]")
_FORMAT_WALK = re.compile(r"\{[^{}]*[.\[]_")
_METHOD_DECORATORS = frozenset({"classmethod", "property", "staticmethod"})


@dataclass(frozen=True, slots=True)
class Program:
    """A program that can be read, harmless or not."""

    source: str
    tree: ast.Module

    @property
    def modules(self) -> frozenset[str]:
        """The modules it imports, outermost names only."""
        found = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.partition(".")[0])
        return frozenset(found)

    @property
    def source_keeping_last_value(self) -> str:
        """The same lines, with the value of the last expression kept in a variable."""
        return _keep_last_value(self.source, self.tree)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a program is not run."""

    status: ProgramStatus
    kind: str
    """The rule that was broken, or the name of the error."""
    message: str
    """One sentence with the line."""
    lacking: bool = False
    """It is good Python, but more than the interpreter knows."""


def read_program(code: str, *, max_bytes: int) -> Program | Refusal:
    """Read ``code``, at most ``max_bytes`` of UTF-8; these rules hold in every tier."""
    if len(code.encode("utf-8", "surrogatepass")) > max_bytes:
        return _violation("source_size", 1, f"the program is longer than {max_bytes} bytes")
    strange = _CONTROL.search(code)
    if strange is not None:
        line = code.count("\n", 0, strange.start()) + 1
        return _violation("characters", line, "control characters are not allowed in a program")
    code = code.replace("\r\n", "\n").replace("\r", "\n")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a doubtful escape in a text is the program's affair
            return Program(code, ast.parse(code))
    except SyntaxError as error:
        return _failure("SyntaxError", error.lineno or 1, error.msg)
    except (RecursionError, MemoryError):
        return _violation("nesting", 1, "the program is nested too deeply")
    except ValueError:
        return _failure("SyntaxError", 1, "the program is not readable as text")


def check_program(program: Program) -> Refusal | None:
    """Why the interpreter must not or cannot run ``program``; a violation goes before a lack."""
    return _inspect(program.tree)


def _inspect(tree: ast.Module) -> Refusal | None:
    bound = {name for node in ast.walk(tree) for name in _bound_names(node)}
    harmless: set[ast.AST] = set()
    unsupported: Refusal | None = None
    waiting: list[tuple[ast.AST, int]] = [(tree, 0)]
    while waiting:
        node, depth = waiting.pop()
        if depth > MAX_DEPTH:
            return _violation("nesting", _line(node), f"nested more than {MAX_DEPTH} deep")
        if isinstance(node, ast.Call) and _reads_fixed_attribute(node):
            harmless.add(node.func)
        refusal = _refuse(node, bound, node in harmless)
        if refusal is not None and refusal.status is _VIOLATION:
            return refusal
        unsupported = unsupported or refusal or _lacking(node)
        waiting.extend((child, depth + 1) for child in ast.iter_child_nodes(node))
    return unsupported


def _refuse(node: ast.AST, bound: set[str], harmless: bool) -> Refusal | None:
    for name in _identifiers(node):
        refusal = _refuse_identifier(node, name)
        if refusal is not None:
            return refusal
    match node:
        case ast.Import(names=names):
            return _first(_refuse_module(node, alias.name) for alias in names)
        case ast.ImportFrom(module=module, level=level):
            return _refuse_module(node, module or "", relative=level > 0)
        case ast.Name(id=name) if not harmless and (
            name in _ATTRIBUTE_READERS or (name in _FORBIDDEN_BUILTINS and name not in bound)
        ):
            return _violation("name", node.lineno, f"{name} is not allowed")
        case ast.Constant(value=str(text)) if _FORMAT_WALK.search(text):
            what = "a format string may not reach underscored attributes"
            return _violation("format_string", node.lineno, what)
    return None


def _refuse_identifier(node: ast.AST, name: str) -> Refusal | None:
    if name.startswith(_RESERVED):
        return _violation("reserved_name", _line(node), f"names may not start with {_RESERVED}")
    if name in _FORBIDDEN_NAMES and not isinstance(node, ast.Attribute):
        return _violation("name", _line(node), f"{name} is not allowed")
    if not name.startswith("__") or name in _ALLOWED_DUNDERS:
        return None
    if isinstance(node, ast.FunctionDef) and name in _DEFINABLE_DUNDERS:
        return None
    return _violation("attribute", _line(node), f"{name} is not allowed")


def _refuse_module(node: ast.stmt, name: str, *, relative: bool = False) -> Refusal | None:
    root = name.partition(".")[0]
    if relative or root not in _IMPORTABLE:
        allowed = ", ".join(ALLOWED_MODULES)
        what = f"importing {name or 'a relative module'} is not allowed; allowed are {allowed}"
        return _violation("import", node.lineno, what)
    if root in _ABSENT_MODULES:
        allowed = ", ".join(ALLOWED_MODULES)
        what = f"there is no module {root} here; there are {allowed}"
        return _failure("ModuleNotFoundError", node.lineno, what, root in PROCESS_MODULES)
    return None


def _lacking(node: ast.AST) -> Refusal | None:
    """What is good Python, but more than the interpreter knows."""
    match node:
        case ast.Yield() | ast.YieldFrom():
            what = "yield; build a list instead"
        case ast.Delete():
            what = "del; build a new list or dict, or use pop"
        case ast.ClassDef(bases=[_, *_]) | ast.ClassDef(keywords=[_, *_]):
            what = "class inheritance"
        case ast.ImportFrom(names=[ast.alias(name="*")]):
            what = "star imports; name what you import"
        case ast.TryStar():
            what = "except*"
        case (
            ast.AsyncFunctionDef()
            | ast.AsyncFor()
            | ast.AsyncWith()
            | ast.Await()
            | ast.comprehension(is_async=1)
        ):
            what = "async code"
        case ast.FunctionDef(decorator_list=decorators) if any(
            isinstance(one, ast.Name) and one.id in _METHOD_DECORATORS for one in decorators
        ):
            what = "classmethod, staticmethod and property"
        case _:
            return None
    what = f"the interpreter does not know {what}"
    return _failure("UnsupportedSyntax", _line(node), what, lacking=True)


def _identifiers(node: ast.AST) -> Iterator[str]:
    """Every name in ``node`` itself; all plain texts in a node are names, except in constants."""
    if isinstance(node, ast.Constant | ast.ImportFrom):
        return
    for _, value in ast.iter_fields(node):
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, str):
                yield one


def _bound_names(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.FunctionDef(name=name):
            yield name


def _reads_fixed_attribute(call: ast.Call) -> bool:
    match call:
        case ast.Call(func=ast.Name(id=name), args=[_, ast.Constant(value=str(attribute)), *_]):
            return name in _ATTRIBUTE_READERS and not attribute.startswith("_")
    return False


def _keep_last_value(code: str, tree: ast.Module) -> str:
    """``code`` with the value of its last expression assigned; lines stay where they are.

    The value must not leave the interpreter by itself: a small program can build a result that is
    endless once written out. The final None takes care of every other kind of statement.
    """
    last = tree.body[-1] if tree.body else None
    if isinstance(last, ast.Expr) and last.end_lineno is not None:
        lines = code.encode().split(b"\n")
        # The end first: inserting at the start would move it when both are on one line.
        for line, column, text in (
            (last.end_lineno, last.end_col_offset or 0, b")"),
            (last.lineno, last.col_offset, f"{LAST_VALUE} = (".encode()),
        ):
            old = lines[line - 1]
            lines[line - 1] = old[:column] + text + old[column:]
        code = b"\n".join(lines).decode()
    return code + "\nNone\n"


_VIOLATION = ProgramStatus.PROGRAM_STATUS_VIOLATION


def _violation(rule: str, line: int, what: str) -> Refusal:
    return Refusal(_VIOLATION, rule, f"line {line}: {what}")


def _failure(kind: str, line: int, what: str, lacking: bool = False) -> Refusal:
    return Refusal(ProgramStatus.PROGRAM_STATUS_FAILED, kind, f"line {line}: {what}", lacking)


def _line(node: ast.AST) -> int:
    return getattr(node, "lineno", 1)


def _first(refusals: Iterator[Refusal | None]) -> Refusal | None:
    return next((refusal for refusal in refusals if refusal is not None), None)
