"""Dashboard of agents, and of what they reach."""

from __future__ import annotations

from panels import Dashboard, Panel, Query, Row, increase, quantile, rate

_ENDED = rate("bos_step_duration_seconds_count", "agent")
_FAILED = rate("bos_step_duration_seconds_count", "agent", 'status="failed"')

AGENTS = Dashboard(
    "agents",
    "Agents",
    "Which agent is slow or fails.",
    (
        Row(
            "Steps",
            (
                Panel(
                    "Steps by agent",
                    "Steps that ended, per second.",
                    "ops",
                    (Query(rate("bos_step_duration_seconds_count", "agent"), "{{agent}}"),),
                ),
                Panel(
                    "Share of failed steps",
                    "By agent; above 30 % a ticket is made.",
                    "percentunit",
                    (Query(f"({_FAILED} or 0 * {_ENDED}) / {_ENDED}", "{{agent}}"),),
                    most=0.3,
                ),
                Panel(
                    "Time of a step, median",
                    "From dispatch to result, by agent.",
                    "s",
                    (
                        Query(
                            quantile(0.5, "bos_step_duration_seconds", "agent"),
                            "{{agent}}",
                            exemplars=True,
                        ),
                    ),
                ),
                Panel(
                    "Time of a step, 95th percentile",
                    "From dispatch to result, by agent.",
                    "s",
                    (
                        Query(
                            quantile(0.95, "bos_step_duration_seconds", "agent"),
                            "{{agent}}",
                            exemplars=True,
                        ),
                    ),
                ),
                Panel(
                    "Steps in the time shown",
                    "By agent and status.",
                    "none",
                    (Query(increase("bos_step_duration_seconds_count", "agent, status")),),
                    "table",
                ),
                Panel(
                    "Agents that prefetch",
                    "While a plan was made, by outcome; no run fails by them.",
                    "ops",
                    (
                        Query(
                            rate("bos_agent_preparations_total", "agent, outcome"),
                            "{{agent}} {{outcome}}",
                        ),
                    ),
                ),
            ),
        ),
        Row(
            "What they reach",
            (
                Panel(
                    "Outgoing HTTP calls",
                    "Of agents and services, by outcome.",
                    "reqps",
                    (
                        Query(
                            rate("bos_http_client_requests_total", "service, outcome"),
                            "{{service}} {{outcome}}",
                        ),
                    ),
                ),
                Panel(
                    "Outgoing HTTP calls that the policy refused",
                    "By rule: an address, host or redirect that is not allowed.",
                    "reqps",
                    (
                        Query(
                            rate("bos_http_client_refusals_total", "service, rule"),
                            "{{service}} {{rule}}",
                        ),
                    ),
                ),
                Panel(
                    "Time of outgoing HTTP calls",
                    "95th percentile by service, redirects and body included.",
                    "s",
                    (
                        Query(
                            quantile(0.95, "bos_http_client_duration_seconds", "service"),
                            "{{service}}",
                            exemplars=True,
                        ),
                    ),
                ),
                Panel(
                    "Files that steps wrote",
                    "By what was made, downloads by outcome, and those deleted once approved.",
                    "ops",
                    (
                        Query(rate("bos_files_written_total", "kind"), "{{kind}}"),
                        Query(rate("bos_files_downloads_total", "outcome"), "download {{outcome}}"),
                        Query(rate("bos_files_deleted_total"), "deleted"),
                    ),
                ),
                Panel(
                    "Pages in a browser",
                    "Pages that only scripts fill, by outcome: rendered, or why not.",
                    "ops",
                    (Query(rate("bos_web_browser_pages_total", "outcome"), "{{outcome}}"),),
                ),
                Panel(
                    "Time of a page in a browser",
                    "95th percentile, the start of the browser included.",
                    "s",
                    (Query(quantile(0.95, "bos_web_browser_seconds"), "p95"),),
                ),
            ),
        ),
    ),
)
