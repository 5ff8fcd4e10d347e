"""Dashboard of runs: outcomes, steps, ownership."""

from __future__ import annotations

from panels import Dashboard, Panel, Query, Row, quantile, rate

RUNS = Dashboard(
    "runs",
    "Runs",
    "How questions are answered, refused, revised and taken over.",
    (
        Row(
            "Outcome",
            (
                Panel(
                    "Runs by outcome",
                    "Runs that ended, per second.",
                    "reqps",
                    (Query(rate("bos_runs_total", "outcome"), "{{outcome}}"),),
                ),
                Panel(
                    "Requests not accepted",
                    "By reason; replica_full means that gateways are missing.",
                    "reqps",
                    (Query(rate("bos_runs_refused_total", "reason"), "{{reason}}"),),
                ),
                Panel(
                    "Time of a run by outcome",
                    "95th percentile from acceptance to the end.",
                    "s",
                    (
                        Query(
                            quantile(0.95, "bos_run_duration_seconds", "outcome"),
                            "{{outcome}}",
                            exemplars=True,
                        ),
                    ),
                ),
                Panel(
                    "Runs under way",
                    "Runs that each gateway works on.",
                    "none",
                    (Query("sum by (instance) (bos_runs_active)", "{{instance}}"),),
                ),
            ),
        ),
        Row(
            "Steps and revisions",
            (
                Panel(
                    "Steps by outcome",
                    "Steps that ended, per second, by status.",
                    "ops",
                    (Query(rate("bos_step_duration_seconds_count", "status"), "{{status}}"),),
                ),
                Panel(
                    "Attempts after the first",
                    "Steps that were attempted again, by agent.",
                    "ops",
                    (Query(rate("bos_step_retries_total", "agent"), "{{agent}}"),),
                ),
                Panel(
                    "Revisions",
                    "Other plans made for what failed, by outcome.",
                    "ops",
                    (Query(rate("bos_run_revisions_total", "outcome"), "{{outcome}}"),),
                ),
                Panel(
                    "Model tokens of runs",
                    "Counted against budgets of runs that ended; unreported ones belong to calls "
                    "that were cut off.",
                    "short",
                    (Query(rate("bos_run_tokens_total", "kind"), "{{kind}}"),),
                ),
            ),
        ),
        Row(
            "Ownership",
            (
                Panel(
                    "Runs taken over",
                    "By why they had no owner; lease_expired means that a gateway died.",
                    "ops",
                    (Query(rate("bos_runs_adopted_total", "reason"), "{{reason}}"),),
                ),
                Panel(
                    "Runs lost",
                    "Runs that another replica took from a living one: leases ran out under load.",
                    "ops",
                    (Query(rate("bos_runs_lost_total")),),
                ),
                Panel(
                    "Runs without an owner",
                    "Runs that are due and that no gateway works on.",
                    "none",
                    (Query("max(bos_runs_unowned)", "runs"),),
                    most=10,
                ),
                Panel(
                    "Oldest run without an owner",
                    "For how long it has been due. Above a minute an operator is paged.",
                    "s",
                    (Query("max(bos_runs_unowned_oldest_seconds)", "age"),),
                    most=60,
                ),
            ),
        ),
    ),
)
