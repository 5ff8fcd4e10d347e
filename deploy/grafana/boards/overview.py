"""Dashboard of the service level objectives and of what happens now."""

from __future__ import annotations

from panels import Dashboard, Panel, Query, Row, quantile, rate

_OBJECTIVES = (
    ("questions", "Questions", "99 % do not fail and are not refused for lack of room."),
    ("latency", "Latency", "95 % of the answered questions take at most 30 s."),
    ("approvals", "Approvals", "95 % of the requests are decided before they run out."),
    ("rest", "REST", "99.9 % of the requests do not end in 5xx."),
)


OVERVIEW = Dashboard(
    "overview",
    "Overview",
    "Whether Bos keeps its promises, and where to look if not.",
    (
        Row(
            "Service level objectives",
            (
                *(
                    Panel(
                        f"{title}: budget left",
                        "Share of the error budget that is left, at the rate of the last 3 days. "
                        f"{text} Below 0 the objective is missed.",
                        "percentunit",
                        (
                            Query(
                                f"1 - bos:{name}:error_ratio_rate3d / on () bos:{name}:error_budget"
                            ),
                        ),
                        "stat",
                        least=0.25,
                    )
                    for name, title, text in _OBJECTIVES
                ),
                *(
                    Panel(
                        f"{title}: burn rate",
                        f"How many times as fast as allowed errors happen. {text} A page at 14.4 "
                        "over an hour or 6 over six, a ticket at 3 over a day or 1 over three.",
                        "none",
                        tuple(
                            Query(
                                f"bos:{name}:error_ratio_rate{window} / on () "
                                f"bos:{name}:error_budget",
                                window,
                            )
                            for window in ("5m", "1h", "6h", "1d")
                        ),
                        most=1,
                    )
                    for name, title, text in _OBJECTIVES
                ),
            ),
        ),
        Row(
            "Now",
            (
                Panel(
                    "Targets down",
                    "Processes whose metrics Prometheus cannot read.",
                    "none",
                    (Query('count(up{job="bos"} == 0) or vector(0)'),),
                    "stat",
                    most=1,
                ),
                Panel(
                    "Gateways",
                    "Gateways that hold a lease.",
                    "none",
                    (Query("max(bos_gateway_replicas_live)"),),
                    "stat",
                    least=1,
                ),
                Panel(
                    "Runs under way",
                    "Runs that gateways work on; those that wait for a person are not among them.",
                    "none",
                    (Query("sum(bos_runs_active)"),),
                    "stat",
                ),
                Panel(
                    "Alerts",
                    "Alerts that fire, by severity.",
                    "none",
                    (Query('count by (severity) (ALERTS{alertstate="firing"}) or vector(0)'),),
                    "stat",
                    most=1,
                ),
                Panel(
                    "Questions by outcome",
                    "Runs that ended, per second. Failed ones are explained on the dashboard Runs.",
                    "reqps",
                    (Query(rate("bos_runs_total", "outcome"), "{{outcome}}"),),
                ),
                Panel(
                    "Time of a question",
                    "From acceptance to the end, of questions that were answered; the time that "
                    "people took for approvals is included.",
                    "s",
                    tuple(
                        Query(
                            quantile(
                                share,
                                "bos_run_duration_seconds",
                                where='outcome=~"succeeded|partially_succeeded"',
                            ),
                            f"p{share * 100:g}",
                            exemplars=True,
                        )
                        for share in (0.5, 0.95, 0.99)
                    ),
                ),
            ),
        ),
    ),
)
