"""All dashboards."""

from boards.agents import AGENTS
from boards.approvals import APPROVALS
from boards.documents import DOCUMENTS
from boards.guard import SANDBOX, SQL_GUARD
from boards.models import MODELS
from boards.overview import OVERVIEW
from boards.run_log import RUN_LOG
from boards.runs import RUNS
from boards.services import SERVICES

BOARDS = (
    OVERVIEW,
    RUNS,
    AGENTS,
    MODELS,
    SQL_GUARD,
    DOCUMENTS,
    APPROVALS,
    RUN_LOG,
    SANDBOX,
    SERVICES,
)
