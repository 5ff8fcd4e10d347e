"""Domain metrics of the gateway."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from prometheus_client import Counter, Gauge, Histogram

from bos.gateway.v1 import ApprovalStatus
from bos_chassis.metrics import BoundedLabel

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from bos.gateway.v1 import Approval

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_APPEND_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
_WAIT_SECONDS = (1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0)
_EVENTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
_RUN_OUTCOMES = ("succeeded", "partially_succeeded", "failed", "cancelled", "clarification_needed")
_APPROVAL_OUTCOMES = ("approved", "denied", "timed_out", "expired", "cancelled")
# Names of agents come from settings, those of tools from their cards, some of which other servers
# write: bounded here.
_AGENTS, _TOOLS, _TOOLS_CHARS = 200, 500, 160


class GatewayMetrics:
    """Prometheus metrics of runs. Labels are bounded: states and agent names."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter = partial(Counter, registry=registry)
        gauge = partial(Gauge, registry=registry)
        histogram = partial(Histogram, registry=registry)

        self._agents = BoundedLabel(_AGENTS)
        self._tools = BoundedLabel(_TOOLS, max_chars=_TOOLS_CHARS)
        self.runs = counter("bos_runs", "Runs that ended, by outcome", ["outcome"])
        self.run_seconds = histogram(
            "bos_run_duration_seconds",
            "Time from acceptance to the end of a run",
            ["outcome"],
            buckets=_SECONDS,
        )
        self.approvals = counter(
            "bos_approvals", "Approval requests that ended, by outcome", ["outcome"]
        )
        self.approval_wait_seconds = histogram(
            "bos_approval_wait_seconds",
            "Time from an approval request to its end, by outcome",
            ["outcome"],
            buckets=_WAIT_SECONDS,
        )
        self.approvals_waiting = gauge(
            "bos_gateway_approvals_waiting",
            "Approval requests that wait, of all gateways together: each shows the same, so "
            "take max by (agent, tools), and then sum over these",
            ["agent", "tools"],
        )
        self.approvals_oldest_seconds = gauge(
            "bos_gateway_approvals_oldest_seconds",
            "Age of the oldest approval request that waits, 0 if none does, of all gateways "
            "together: take max",
            ["agent", "tools"],
        )
        self.feedback = counter(
            "bos_run_feedback",
            "Feedback of users on answers, by rating: up, down; taken_back counts what was undone",
            ["rating"],
        )
        self.verified_queries = counter(
            "bos_verified_queries",
            "Changes of verified queries: verified for their author alone, shared with a group, "
            "deleted",
            ["change"],
        )
        self.verified_query_reads = counter(
            "bos_verified_query_reads",
            "Searches for verified queries like the question of a step: found, none, or failed "
            "(the step continues without)",
            ["outcome"],
        )
        self.revisions = counter(
            "bos_run_revisions",
            "Revisions of plans after failures, by outcome: planned or failed",
            ["outcome"],
        )
        self.run_tokens = counter(
            "bos_run_tokens",
            "Model tokens counted against the budgets of runs that ended: reported by callers of "
            "models, or unreported because a call or its caller was cut off",
            ["kind"],
        )
        self.active_runs = gauge("bos_runs_active", "Runs that this replica drives")
        self.adopted = counter(
            "bos_runs_adopted", "Runs adopted, by the reason why they had no owner", ["reason"]
        )
        self.lost = counter("bos_runs_lost", "Runs of this replica that another one adopted")
        self.refused = counter("bos_runs_refused", "Requests not accepted, by reason", ["reason"])
        self.step_seconds = histogram(
            "bos_step_duration_seconds",
            "Time from dispatch to result of a step",
            ["agent", "status"],
            buckets=_SECONDS,
        )
        self.step_retries = counter(
            "bos_step_retries", "Attempts at steps after the first", ["agent"]
        )
        self.preparations = counter(
            "bos_agent_preparations",
            "Calls of Prepare while a plan was made, by outcome: done, cancelled with the run, or "
            "the status of the call; no run fails by them",
            ["agent", "outcome"],
        )
        self.append_seconds = histogram(
            "bos_run_log_append_seconds",
            "Time from the submission of an append to its commit",
            buckets=_APPEND_SECONDS,
        )
        self.batch_events = histogram(
            "bos_run_log_batch_events", "Events written by one statement", buckets=_EVENTS
        )
        self.run_log_failures = counter(
            "bos_run_log_write_failures",
            "Writes of the run log that failed: repeated, as PostgreSQL was away, full or slow, or "
            "refused permanently",
            ["outcome"],
        )
        self.unowned_runs = gauge(
            "bos_runs_unowned",
            "Runs that are due and unowned, counted up to 10,000, of all gateways "
            "together: take max",
        )
        self.unowned_oldest_seconds = gauge(
            "bos_runs_unowned_oldest_seconds",
            "For how long the oldest of them has been due, 0 if there is none: take max",
        )
        self.live_replicas = gauge(
            "bos_gateway_replicas_live",
            "Gateways that hold a lease, as PostgreSQL had it last: take max",
        )
        self.lease_held = gauge(
            "bos_gateway_lease_held",
            "1 while this gateway holds its lease by its own clock, also if PostgreSQL is away; "
            "without one it drives no runs",
        )
        self.database_bytes = gauge(
            "bos_postgres_database_size_bytes", "Size of the database of the run log: take max"
        )
        self.run_events_bytes = gauge(
            "bos_run_log_size_bytes", "Size of the events of runs, with their indexes: take max"
        )
        self.sessions = gauge(
            "bos_postgres_connections",
            "Sessions of the PostgreSQL server of the run log, of all clients: take max",
        )
        self.max_sessions = gauge(
            "bos_postgres_max_connections", "Sessions that this server allows: take max"
        )
        self.clock_offset_seconds = gauge(
            "bos_clock_offset_seconds",
            "How far the wall clock of this host is ahead of the database's",
        )
        self.memory_calls = counter(
            "bos_gateway_memory_calls",
            "Calls of memory by outcome: answered, failed or left out; no run fails by them",
            ["method", "outcome"],
        )
        self.webhook_deliveries = counter(
            "bos_webhook_deliveries",
            "Attempts to post events to webhooks by outcome, tests included; given_up counts "
            "events that are not attempted any more",
            ["outcome"],
        )
        self.webhook_oldest_due_seconds = gauge(
            "bos_webhook_oldest_due_seconds",
            "For how long the oldest event that is due has been so, 0 if none is, of all gateways "
            "together: take max",
        )
        self.expired_runs = counter("bos_runs_expired", "Runs deleted because of their age")
        self._begin_at_zero()

    def _begin_at_zero(self) -> None:
        """Create series at 0, so that their first increment counts in rates."""
        for outcome in _RUN_OUTCOMES:
            self.runs.labels(outcome)
            self.run_seconds.labels(outcome)
        for outcome in _APPROVAL_OUTCOMES:
            self.approvals.labels(outcome)
        for reason in ("replica_full", "user_limit", "day_limit", "stream_limit"):
            self.refused.labels(reason)
        for reason in ("lease_expired", "released"):
            self.adopted.labels(reason)
        for outcome in ("repeated", "refused"):
            self.run_log_failures.labels(outcome)
        for outcome in ("accepted", "given_up"):
            self.webhook_deliveries.labels(outcome)

    def agent(self, name: str) -> str:
        """Label value for the name of an agent, bounded in number."""
        return self._agents.value(name)

    def tools(self, names: str) -> str:
        """Label value for names of tools, separated by commas, bounded in number."""
        return self._tools.value(names)

    def resolved(self, approval: Approval) -> None:
        """Count an approval request that has ended."""
        name = ApprovalStatus.Name(approval.status).removeprefix("APPROVAL_STATUS_").lower()
        waited_ns = approval.respond_time.ToNanoseconds() - approval.create_time.ToNanoseconds()
        self.approvals.labels(name).inc()
        self.approval_wait_seconds.labels(name).observe(max(0, waited_ns) / 1e9)
