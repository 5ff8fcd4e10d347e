# This file runs inside the interpreter, before every program, and is never imported by the service.
# Everything it leaves behind is unreachable for programs (validate.py refuses the prefix) except
# `round`. Builtins are captured in closures, since a program may well call a variable "list".
# type: ignore
# ruff: noqa
"""What every program finds in place: a correct ``round``, and the way its values get out."""


def _bos_make_round():
    builtin_round, to_float, to_int, absolute, is_a = round, float, int, abs, isinstance
    as_text, divide, written = str, divmod, format

    def correct_round(number, ndigits=None):
        """CPython's round(): the interpreter's own rounds 2.675 to 2.68, as if it were decimal."""
        if not is_a(number, to_float) or ndigits is None or number != number:
            return builtin_round(number, ndigits)
        size = absolute(number)
        if size == to_float("inf") or (size >= 4503599627370496.0 and ndigits >= 0):
            return number
        if ndigits > 330:
            return number
        if ndigits >= 0:
            return to_float(written(number, "." + as_text(ndigits) + "f"))
        if ndigits < -308:
            return number * 0.0
        unit = 10**-ndigits
        whole = to_int(size)
        units, rest = divide(whole, unit)
        twice = 2 * rest
        above_half = twice > unit or (twice == unit and size != whole)
        if above_half or (twice == unit and units % 2 == 1):
            units += 1
        rounded = to_float(units * unit)
        return -rounded if number < 0 or (number == 0 and as_text(number)[0] == "-") else rounded

    return correct_round


def _bos_make_collect():
    import datetime
    from collections import deque
    from dataclasses import is_dataclass
    from decimal import Decimal

    kind_of, is_a, length, sort, attribute, absolute = type, isinstance, len, sorted, getattr, abs
    text, raw, whole, listing, mapping, row = str, bytes, int, list, dict, tuple
    plain = (bool, float, datetime.date)
    sequences = (list, tuple, deque)
    longest = 10**4300
    sets = (set, frozenset)
    ranges = (range, type({}.keys()), type({}.values()), type({}.items()))

    def refuse(state, problem):
        state["problem"] = problem
        raise ValueError(problem)

    def spend(state, amount):
        state["budget"] -= amount
        if state["budget"] < 0:
            refuse(state, "size")

    def key_text(key):
        kind = kind_of(key)
        if kind is text:
            return key
        if kind is row:
            return ", ".join([key_text(part) for part in key])
        return text(key)

    def export_map(fields, state, depth):
        exported = {}
        for key, value in fields.items():
            name = key_text(key)
            spend(state, length(name))
            if name in exported:
                refuse(state, "keys")
            exported[name] = export(value, state, depth)
        return exported

    def export_sequence(values, state, depth):
        return [export(value, state, depth) for value in values]

    def export_set(values, state, depth):
        spend(state, length(values))
        try:
            ordered = sort(values)
        except TypeError:
            ordered = listing(values)
        return export_sequence(ordered, state, depth)

    def export(value, state, depth):
        """A plain tree equal to `value`, or a ValueError with the reason in state["problem"]."""
        kind = kind_of(value)
        spend(state, 8)
        if value is None or kind in plain:
            return value
        if kind is whole:
            if not -9223372036854775808 <= value <= 9223372036854775807:
                if not -longest < value < longest:
                    refuse(state, "digits")
                spend(state, length(text(value)))
            return value
        if kind is Decimal:
            # Written out in full on the wire, so 1E+131000 counts as what it will be there.
            if value.is_finite():
                size = length(value.as_tuple().digits) + absolute(value.adjusted())
                if size > 4300:
                    refuse(state, "digits")
                spend(state, size)
            return value
        if kind is text or kind is raw:
            spend(state, length(value))
            return value
        if kind is datetime.datetime:
            return value if value.tzinfo else value.replace(tzinfo=datetime.timezone.utc)
        if kind is datetime.timedelta or kind is datetime.time or kind is complex:
            return text(value)
        if depth > 20:
            refuse(state, "depth")
        if kind in sequences or kind in ranges:
            return export_sequence(value, state, depth + 1)
        if is_a(value, mapping):
            return export_map(value, state, depth + 1)
        if kind in sets:
            return export_set(value, state, depth + 1)
        if is_a(value, row):
            return export_map(value._asdict(), state, depth + 1)
        if is_dataclass(value):
            try:
                fields = {name: attribute(value, name) for name in value.__dataclass_fields__}
            except AttributeError:
                fields = None  # the class itself
            if fields is not None:
                return export_map(fields, state, depth + 1)
        state["problem"] = "type"
        state["kind"] = text(kind)
        raise ValueError("type")

    def collect(last, variables, skip, budget):
        """`last`, or else the variable "result", as plain data; and the other variables so."""
        value = variables.get("result") if last is None else last
        state = {"budget": budget, "problem": "", "kind": ""}
        try:
            result = export(value, state, 0)
        except ValueError:
            return {"problem": state["problem"], "kind": state["kind"]}
        exported = {}
        state = {"budget": budget // 4, "problem": "", "kind": ""}
        for name, value in variables.items():
            if name[0] == "_" or name in skip or name == "round":
                continue
            try:
                exported[name] = export(value, state, 0)
            except ValueError:
                if state["problem"] == "size":
                    break
        return {"problem": "", "result": result, "locals": exported}

    return collect


round = _bos_make_round()
_bos_collect = _bos_make_collect()
_bos_last = None
