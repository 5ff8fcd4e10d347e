"""Dashboard of models: tokens, cost, calls."""

from __future__ import annotations

from panels import Dashboard, Panel, Query, Row, increase, quantile, rate

MODELS = Dashboard(
    "models",
    "Models and cost",
    "What models are asked, how well they answer, and what that costs.",
    (
        Row(
            "Cost and tokens",
            (
                Panel(
                    "Cost in the time shown",
                    "Of calls with a known price.",
                    "currencyUSD",
                    (Query(increase("bos_model_cost_dollars_total")),),
                    "stat",
                ),
                Panel(
                    "Tokens in the time shown",
                    "Sent and received.",
                    "short",
                    (Query(increase("bos_model_tokens_total", "direction"), "{{direction}}"),),
                    "stat",
                ),
                Panel(
                    "Calls in the time shown",
                    "Retries are not counted.",
                    "none",
                    (Query(increase("bos_model_calls_total")),),
                    "stat",
                ),
                Panel(
                    "Calls without a price",
                    "They count as costing nothing: set BOS_MODEL_PRICES.",
                    "none",
                    (Query(f"{increase('bos_model_unpriced_calls_total')} or vector(0)"),),
                    "stat",
                ),
                Panel(
                    "Cost per hour by agent",
                    "Of calls with a known price.",
                    "currencyUSD",
                    (
                        Query(
                            f"3600 * {rate('bos_model_cost_dollars_total', 'agent')}", "{{agent}}"
                        ),
                    ),
                ),
                Panel(
                    "Cost per hour by model",
                    "Of calls with a known price.",
                    "currencyUSD",
                    (
                        Query(
                            f"3600 * {rate('bos_model_cost_dollars_total', 'model')}", "{{model}}"
                        ),
                    ),
                ),
                Panel(
                    "Tokens by agent",
                    "Per second, by direction.",
                    "short",
                    (
                        Query(
                            rate("bos_model_tokens_total", "agent, direction"),
                            "{{agent}} {{direction}}",
                        ),
                    ),
                ),
                Panel(
                    "Tokens per question",
                    "Tokens of models over runs that ended.",
                    "short",
                    (Query(f"{rate('bos_model_tokens_total')} / {rate('bos_runs_total')}"),),
                ),
            ),
        ),
        Row(
            "Calls",
            (
                Panel(
                    "Calls by outcome",
                    "Per second; all but ok and cancelled are errors.",
                    "reqps",
                    (
                        Query(
                            rate("bos_model_calls_total", "model, outcome"), "{{model}} {{outcome}}"
                        ),
                    ),
                ),
                Panel(
                    "Share of failed calls",
                    "By model; above 20 % an operator is paged.",
                    "percentunit",
                    (
                        Query(
                            "1 - ("
                            + rate("bos_model_calls_total", "model", 'outcome=~"ok|cancelled"')
                            + " / "
                            + rate("bos_model_calls_total", "model")
                            + ")",
                            "{{model}}",
                        ),
                    ),
                    most=0.2,
                ),
                Panel(
                    "Time of a call",
                    "Retries included, by agent: 95th percentile.",
                    "s",
                    (
                        Query(
                            quantile(0.95, "bos_model_call_duration_seconds", "agent"),
                            "{{agent}}",
                            exemplars=True,
                        ),
                    ),
                ),
                Panel(
                    "Attempts repeated, keys turned away",
                    "An endpoint is down, slow, or limits calls.",
                    "reqps",
                    (
                        Query(rate("bos_model_retries_total", "model"), "repeated {{model}}"),
                        Query(
                            rate("bos_model_key_rests_total", "profile, reason"),
                            "key of {{profile}} {{reason}}",
                        ),
                    ),
                ),
                Panel(
                    "Citations of answers",
                    "Known ones, and unknown ones that were dropped: over 5 % the composer wants "
                    "another model.",
                    "ops",
                    (Query(rate("bos_composer_citations_total", "outcome"), "{{outcome}}"),),
                ),
                Panel(
                    "Memory",
                    "Facts looked for and summaries made, by outcome.",
                    "ops",
                    (
                        Query(rate("bos_memory_extractions_total", "outcome"), "facts {{outcome}}"),
                        Query(rate("bos_memory_summaries_total", "outcome"), "summary {{outcome}}"),
                    ),
                ),
            ),
        ),
    ),
)
