"""Domain metrics of the gateway."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from prometheus_client import Counter, Gauge, Histogram

from bos.gateway.v1 import ApprovalStatus

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from bos.gateway.v1 import Approval

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_APPEND_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
_WAIT_SECONDS = (1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0)
_EVENTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class GatewayMetrics:
    """Prometheus metrics of runs. Labels are bounded: states and agent names."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter = partial(Counter, registry=registry)
        gauge = partial(Gauge, registry=registry)
        histogram = partial(Histogram, registry=registry)

        self.runs = counter("bos_runs", "Runs that ended, by outcome", ["outcome"])
        self.run_seconds = histogram(
            "bos_run_duration_seconds",
            "Time from acceptance to the end of a run",
            ["outcome"],
            buckets=_SECONDS,
        )
        self.approvals = counter(
            "bos_approvals", "Requests to people that were decided, by how", ["outcome"]
        )
        self.approval_wait_seconds = histogram(
            "bos_approval_wait_seconds",
            "Time from a request to a person to its end, by how it ended",
            ["outcome"],
            buckets=_WAIT_SECONDS,
        )
        self.approvals_waiting = gauge(
            "bos_gateway_approvals_waiting",
            "Requests that wait for a person, of all gateways together: each shows the same, so "
            "take max by (agent, tools), and then sum over these",
            ["agent", "tools"],
        )
        self.approvals_oldest_seconds = gauge(
            "bos_gateway_approvals_oldest_seconds",
            "Age of the oldest request that waits for a person, 0 if none does, of all gateways "
            "together: take max",
            ["agent", "tools"],
        )
        self.revisions = counter(
            "bos_run_revisions",
            "Attempts to make another plan for what failed, by outcome: planned or failed",
            ["outcome"],
        )
        self.run_tokens = counter(
            "bos_run_tokens",
            "Tokens counted against the budgets of runs that ended: reported by those who called a "
            "model, or unreported because a call or its caller was cut off",
            ["kind"],
        )
        self.active_runs = gauge("bos_runs_active", "Runs that this replica works on")
        self.adopted = counter(
            "bos_runs_adopted", "Runs taken over, by why they had no owner", ["reason"]
        )
        self.lost = counter("bos_runs_lost", "Runs that another replica took from this one")
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
            "Agents told to read ahead while a plan was made, by outcome: done, cancelled with the "
            "run, or the status of the call; no run fails by them",
            ["agent", "outcome"],
        )
        self.append_seconds = histogram(
            "bos_run_log_append_seconds",
            "Time from asking for an append to its commit",
            buckets=_APPEND_SECONDS,
        )
        self.batch_events = histogram(
            "bos_run_log_batch_events", "Events written by one statement", buckets=_EVENTS
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

    def resolved(self, approval: Approval) -> None:
        """A request to a person came to its end."""
        name = ApprovalStatus.Name(approval.status).removeprefix("APPROVAL_STATUS_").lower()
        waited_ns = approval.respond_time.ToNanoseconds() - approval.create_time.ToNanoseconds()
        self.approvals.labels(name).inc()
        self.approval_wait_seconds.labels(name).observe(max(0, waited_ns) / 1e9)
