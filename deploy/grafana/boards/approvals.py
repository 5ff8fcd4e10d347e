"""Dashboard of approvals, and of the webhooks that tell of them."""

from __future__ import annotations

from panels import Dashboard, Panel, Query, Row, quantile, rate

APPROVALS = Dashboard(
    "approvals",
    "Approvals",
    "Whether people decide, how fast, and how.",
    (
        Row(
            "Waiting",
            (
                Panel(
                    "Requests that wait",
                    "For a person, of all gateways together.",
                    "none",
                    (
                        Query(
                            "sum(max by (agent, tools) (bos_gateway_approvals_waiting)) "
                            "or vector(0)"
                        ),
                    ),
                    "stat",
                ),
                Panel(
                    "Oldest request",
                    "Above four hours a ticket is made.",
                    "s",
                    (Query("max(bos_gateway_approvals_oldest_seconds) or vector(0)"),),
                    "stat",
                    most=14400,
                ),
                Panel(
                    "Waiting by agent",
                    "Requests by agent and tools.",
                    "none",
                    (
                        Query(
                            "max by (agent, tools) (bos_gateway_approvals_waiting)",
                            "{{agent}} {{tools}}",
                        ),
                    ),
                ),
                Panel(
                    "Oldest by agent",
                    "Age of the oldest request by agent and tools.",
                    "s",
                    (
                        Query(
                            "max by (agent, tools) (bos_gateway_approvals_oldest_seconds)",
                            "{{agent}} {{tools}}",
                        ),
                    ),
                    most=14400,
                ),
            ),
        ),
        Row(
            "Decided",
            (
                Panel(
                    "Decisions",
                    "Requests that came to their end, per second, by how.",
                    "ops",
                    (Query(rate("bos_approvals_total", "outcome"), "{{outcome}}"),),
                ),
                Panel(
                    "Time to a decision",
                    "From the request to its end, by how it ended.",
                    "s",
                    (
                        Query(
                            quantile(0.5, "bos_approval_wait_seconds", "outcome"),
                            "{{outcome}} p50",
                        ),
                        Query(
                            quantile(0.95, "bos_approval_wait_seconds", "outcome"),
                            "{{outcome}} p95",
                        ),
                    ),
                ),
                Panel(
                    "Webhooks",
                    "Attempts to post events, by outcome: approvers may hear of requests by them.",
                    "ops",
                    (Query(rate("bos_webhook_deliveries_total", "outcome"), "{{outcome}}"),),
                ),
                Panel(
                    "Oldest event for a webhook",
                    "For how long it is due; above five minutes a ticket is made.",
                    "s",
                    (Query("max(bos_webhook_oldest_due_seconds)", "age"),),
                    most=300,
                ),
            ),
        ),
    ),
)
