"""Dashboard of documents: uploads, reading, search."""

from __future__ import annotations

from panels import Dashboard, Panel, Query, Row, quantile, rate

DOCUMENTS = Dashboard(
    "documents",
    "Documents",
    "Whether uploads are read and found.",
    (
        Row(
            "Backlog",
            (
                Panel(
                    "Jobs that wait",
                    "Due, and without an owner.",
                    "none",
                    (Query("max(bos_documents_jobs_waiting)"),),
                    "stat",
                ),
                Panel(
                    "Oldest job",
                    "For how long it has been waiting; above ten minutes a ticket is made.",
                    "s",
                    (Query("max(bos_documents_oldest_job_seconds)"),),
                    "stat",
                    most=600,
                ),
                Panel(
                    "Uploads under way",
                    "Of documents and of files of workspaces.",
                    "none",
                    (Query("sum(bos_documents_uploads_open) + sum(bos_files_uploads_open)"),),
                    "stat",
                ),
                Panel(
                    "Disk free",
                    "Least free share of a disk of documents; below a tenth an operator is paged.",
                    "percentunit",
                    (
                        Query(
                            'min(bos_disk_free_bytes{service="documents"} / '
                            'bos_disk_size_bytes{service="documents"})'
                        ),
                    ),
                    "stat",
                    least=0.1,
                ),
            ),
        ),
        Row(
            "Reading",
            (
                Panel(
                    "Uploads",
                    "By outcome, per second.",
                    "ops",
                    (Query(rate("bos_documents_uploads_total", "outcome"), "{{outcome}}"),),
                ),
                Panel(
                    "Uploads to workspaces",
                    "Of files that steps work on, by outcome, per second.",
                    "ops",
                    (Query(rate("bos_files_uploads_total", "outcome"), "{{outcome}}"),),
                ),
                Panel(
                    "Stages of jobs",
                    "By stage and outcome, per second.",
                    "ops",
                    (
                        Query(
                            rate("bos_documents_stages_total", "stage, outcome"),
                            "{{stage}} {{outcome}}",
                        ),
                    ),
                ),
                Panel(
                    "Pages and chunks",
                    "Parsed and indexed, per second.",
                    "ops",
                    (
                        Query(rate("bos_documents_pages_total"), "pages"),
                        Query(rate("bos_documents_chunks_total"), "chunks"),
                    ),
                ),
                Panel(
                    "Parsers started",
                    "By whether the network is cut off; reachable wants a look.",
                    "ops",
                    (Query(rate("bos_documents_parsers_total", "network"), "{{network}}"),),
                ),
                Panel(
                    "Descriptions",
                    "Of documents: by the model or by rule.",
                    "ops",
                    (Query(rate("bos_documents_descriptions_total", "outcome"), "{{outcome}}"),),
                ),
                Panel(
                    "Repairs of the index",
                    "Documents indexed again, and orphaned vectors removed.",
                    "ops",
                    (Query(rate("bos_documents_repairs_total", "what"), "{{what}}"),),
                ),
            ),
        ),
        Row(
            "Search",
            (
                Panel(
                    "Searches",
                    "Per second.",
                    "ops",
                    (Query(rate("bos_documents_search_seconds_count"), "searches"),),
                ),
                Panel(
                    "Time of a search",
                    "From the call to the ranked passages.",
                    "s",
                    tuple(
                        Query(
                            quantile(share, "bos_documents_search_seconds"),
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
