"""The fail-closed SQL guard: what is not known to be harmless is refused."""

from bos_sqlguard.bounded import BoundedParser, TooComplex
from bos_sqlguard.growth import Kept
from bos_sqlguard.guard import FORBIDDEN_KEYWORDS, Guard, Verdict, Verdicts, check_both
from bos_sqlguard.names import DIALECTS, Dialect
from bos_sqlguard.policy import Functions, GuardPolicy, load_functions
from bos_sqlguard.rules import Rule, Violation, load_rules

__all__ = [
    "DIALECTS",
    "FORBIDDEN_KEYWORDS",
    "BoundedParser",
    "Dialect",
    "Functions",
    "Guard",
    "GuardPolicy",
    "Kept",
    "Rule",
    "TooComplex",
    "Verdict",
    "Verdicts",
    "Violation",
    "check_both",
    "load_functions",
    "load_rules",
]
