"""Dashboards of queries and programs: SQL guard, sandbox."""

from __future__ import annotations

from panels import Dashboard, Panel, Query, Row, increase, quantile, rate

SQL_GUARD = Dashboard(
    "sql-guard",
    "SQL guard",
    "What queries are refused, where, and by which rule; how long the others take.",
    (
        Row(
            "Refusals",
            (
                Panel(
                    "Queries that the sql agent checked",
                    "Approved, refused, or not parsed, per second.",
                    "ops",
                    (Query(rate("bos_sql_guard_checks_total", "outcome"), "{{outcome}}"),),
                ),
                Panel(
                    "Rules broken before mcp_db",
                    "By rule, in the sql agent: the model wrote what it may not.",
                    "ops",
                    (Query(rate("bos_sql_guard_refusals_total", "rule"), "{{rule}}"),),
                ),
                Panel(
                    "Rules broken in mcp_db",
                    "By rule. The sql agent checks the same rules first, so any wants a look.",
                    "ops",
                    (Query(rate("bos_db_guard_refusals_total", "rule"), "{{rule}}"),),
                ),
                Panel(
                    "Refusals in the time shown",
                    "By rule, in the sql agent.",
                    "none",
                    (Query(increase("bos_sql_guard_refusals_total", "rule")),),
                    "table",
                ),
            ),
        ),
        Row(
            "Queries",
            (
                Panel(
                    "Queries by outcome",
                    "Of mcp_db, per second; all but ok were not answered.",
                    "ops",
                    (Query(rate("bos_db_queries_total", "outcome"), "{{outcome}}"),),
                ),
                Panel(
                    "Time of a query",
                    "From the call of mcp_db to its reply.",
                    "s",
                    tuple(
                        Query(
                            quantile(share, "bos_db_query_duration_seconds"),
                            f"p{share * 100:g}",
                            exemplars=True,
                        )
                        for share in (0.5, 0.95, 0.99)
                    ),
                ),
                Panel(
                    "Queries under way",
                    "Being checked or run, by mcp_db.",
                    "none",
                    (Query("sum by (instance) (bos_db_queries_in_flight)", "{{instance}}"),),
                ),
            ),
        ),
        Row(
            "Uploaded files",
            (
                Panel(
                    "Queries over uploaded files",
                    "By outcome, per second; all but ok were not answered.",
                    "ops",
                    (Query(rate("bos_files_queries_total", "outcome"), "{{outcome}}"),),
                ),
                Panel(
                    "Time of a query over uploaded files",
                    "With waiting for a place, and reading the files.",
                    "s",
                    tuple(
                        Query(
                            quantile(share, "bos_files_query_duration_seconds"),
                            f"p{share * 100:g}",
                            exemplars=True,
                        )
                        for share in (0.5, 0.95)
                    ),
                ),
            ),
        ),
    ),
)

SANDBOX = Dashboard(
    "sandbox",
    "Sandbox",
    "How programs of models end, and how long they take.",
    (
        Row(
            "Programs",
            (
                Panel(
                    "Process tier",
                    "1 where the kernel allows the isolation of whole programs.",
                    "none",
                    (Query("min(bos_sandbox_process_tier_available)"),),
                    "stat",
                    least=1,
                ),
                Panel(
                    "Interpreters that wait",
                    "Isolated ones that are ready.",
                    "none",
                    (Query("sum(bos_sandbox_process_waiting)"),),
                    "stat",
                ),
                Panel(
                    "Programs by status",
                    "By tier and how they ended, per second.",
                    "ops",
                    (
                        Query(
                            rate("bos_sandbox_programs_total", "tier, status"),
                            "{{tier}} {{status}}",
                        ),
                    ),
                ),
                Panel(
                    "Programs that were stopped",
                    "By the broken rule or exceeded limit.",
                    "ops",
                    (
                        Query(
                            rate("bos_sandbox_programs_total", "reason", 'reason!=""'), "{{reason}}"
                        ),
                    ),
                ),
                Panel(
                    "Time of a program",
                    "95th percentile by tier, checks included.",
                    "s",
                    (
                        Query(
                            quantile(0.95, "bos_sandbox_program_seconds", "tier"),
                            "{{tier}}",
                            exemplars=True,
                        ),
                    ),
                ),
                Panel(
                    "Wait for an isolated interpreter",
                    "95th percentile, by whether one was warm.",
                    "s",
                    (
                        Query(
                            quantile(0.95, "bos_sandbox_process_start_seconds", "warm"),
                            "warm: {{warm}}",
                        ),
                    ),
                ),
                Panel(
                    "Second runs",
                    "Programs that failed in the interpreter and ran again in the process tier.",
                    "ops",
                    (Query(rate("bos_sandbox_second_runs_total")),),
                ),
            ),
        ),
    ),
)
