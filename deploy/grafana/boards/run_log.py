"""Dashboard of the run log and of PostgreSQL below it."""

from __future__ import annotations

from panels import Dashboard, Panel, Query, Row, quantile, rate

RUN_LOG = Dashboard(
    "run-log",
    "Run log and PostgreSQL",
    "Whether events are stored, how fast, and what PostgreSQL has left.",
    (
        Row(
            "Run log",
            (
                Panel(
                    "Time of an append",
                    "From asking for it to its commit.",
                    "s",
                    tuple(
                        Query(
                            quantile(share, "bos_run_log_append_seconds"),
                            f"p{share * 100:g}",
                            exemplars=True,
                        )
                        for share in (0.5, 0.95, 0.99)
                    ),
                    most=0.5,
                ),
                Panel(
                    "Appends",
                    "Per second.",
                    "ops",
                    (Query(rate("bos_run_log_append_seconds_count"), "appends"),),
                ),
                Panel(
                    "Events in a statement",
                    "Mean number; it grows with the load, which is as it should be.",
                    "none",
                    (
                        Query(
                            f"{rate('bos_run_log_batch_events_sum')} / "
                            f"{rate('bos_run_log_batch_events_count')}",
                            "events",
                        ),
                    ),
                ),
                Panel(
                    "Writes that failed",
                    "Repeated ones lose nothing; refused ones end a run.",
                    "ops",
                    (Query(rate("bos_run_log_write_failures_total", "outcome"), "{{outcome}}"),),
                    most=0.01,
                ),
                Panel(
                    "Size",
                    "Of the database, and of the events with their indexes.",
                    "bytes",
                    (
                        Query("max(bos_postgres_database_size_bytes)", "database"),
                        Query("max(bos_run_log_size_bytes)", "events"),
                    ),
                ),
                Panel(
                    "Runs deleted",
                    "Because of their age, per second.",
                    "ops",
                    (Query(rate("bos_runs_expired_total"), "runs"),),
                ),
            ),
        ),
        Row(
            "PostgreSQL",
            (
                Panel(
                    "Sessions",
                    "Of the server, by all clients, and how many it allows.",
                    "none",
                    (
                        Query("max(bos_postgres_connections)", "open"),
                        Query("max(bos_postgres_max_connections)", "allowed"),
                    ),
                ),
                Panel(
                    "Connections of pools",
                    "In use, by service and pool.",
                    "none",
                    (
                        Query(
                            'sum by (service, pool) (bos_postgres_pool_connections{state="used"})',
                            "{{service}} {{pool}}",
                        ),
                    ),
                ),
                Panel(
                    "Share of pools in use",
                    "By service and pool; at 100 % callers wait.",
                    "percentunit",
                    (
                        Query(
                            "sum by (service, pool) "
                            '(bos_postgres_pool_connections{state="used"}) / '
                            "sum by (service, pool) (bos_postgres_pool_max_connections)",
                            "{{service}} {{pool}}",
                        ),
                    ),
                    most=1,
                ),
                Panel(
                    "Clock against the database's",
                    "Of each gateway's host; run tokens fail beyond 2 s.",
                    "s",
                    (Query("abs(bos_clock_offset_seconds)", "{{instance}}"),),
                    most=1,
                ),
                Panel(
                    "Disks",
                    "Free share of the disks that hold files of runs, documents and workspaces.",
                    "percentunit",
                    (
                        Query(
                            "min by (service, store) (bos_disk_free_bytes / bos_disk_size_bytes)",
                            "{{service}} {{store}}",
                        ),
                    ),
                    least=0.1,
                ),
            ),
        ),
    ),
)
