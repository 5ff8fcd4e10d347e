"""Dashboard of services: rate, errors and duration of every RPC and request."""

from __future__ import annotations

from panels import Dashboard, Panel, Query, Row, quantile, rate

_FAULTS = 'grpc_code=~"INTERNAL|UNKNOWN|DATA_LOSS|UNAVAILABLE|DEADLINE_EXCEEDED"'

SERVICES = Dashboard(
    "services",
    "Services",
    "Rate, errors and duration of every RPC as served and as called, of HTTP, and the processes.",
    (
        Row(
            "RPCs as served",
            (
                Panel(
                    "Rate",
                    "RPCs per second by service.",
                    "reqps",
                    (Query(rate("bos_rpc_server_handled_total", "service"), "{{service}}"),),
                ),
                Panel(
                    "Errors",
                    "RPCs per second that did not end OK, by service, method and code.",
                    "reqps",
                    (
                        Query(
                            rate(
                                "bos_rpc_server_handled_total",
                                "service, grpc_method, grpc_code",
                                'grpc_code!="OK"',
                            ),
                            "{{service}} {{grpc_method}} {{grpc_code}}",
                        ),
                    ),
                ),
                Panel(
                    "Duration",
                    "95th percentile by service and method; streams last as long as their runs.",
                    "s",
                    (
                        Query(
                            quantile(
                                0.95, "bos_rpc_server_duration_seconds", "service, grpc_method"
                            ),
                            "{{service}} {{grpc_method}}",
                            exemplars=True,
                        ),
                    ),
                ),
                Panel(
                    "In flight",
                    "RPCs being handled, by service.",
                    "none",
                    (Query("sum by (service) (bos_rpc_server_in_flight)", "{{service}}"),),
                ),
            ),
        ),
        Row(
            "RPCs as called",
            (
                Panel(
                    "Rate by caller",
                    "RPCs per second by the service that calls.",
                    "reqps",
                    (Query(rate("bos_rpc_client_handled_total", "service"), "{{service}}"),),
                ),
                Panel(
                    "Errors by caller",
                    "Calls that the other side failed or did not answer in time.",
                    "reqps",
                    (
                        Query(
                            rate(
                                "bos_rpc_client_handled_total",
                                "service, grpc_method, grpc_code",
                                _FAULTS,
                            ),
                            "{{service}} {{grpc_method}} {{grpc_code}}",
                        ),
                    ),
                ),
                Panel(
                    "Duration by caller",
                    "95th percentile by calling service and method, transport retries included.",
                    "s",
                    (
                        Query(
                            quantile(
                                0.95, "bos_rpc_client_duration_seconds", "service, grpc_method"
                            ),
                            "{{service}} {{grpc_method}}",
                            exemplars=True,
                        ),
                    ),
                ),
            ),
        ),
        Row(
            "HTTP",
            (
                Panel(
                    "REST requests",
                    "Per second, by code.",
                    "reqps",
                    (Query(rate("bos_rest_requests_total", "code"), "{{code}}"),),
                ),
                Panel(
                    "REST duration",
                    "95th percentile by route, streams left out.",
                    "s",
                    (
                        Query(
                            quantile(0.95, "bos_rest_request_duration_seconds", "route"),
                            "{{route}}",
                            exemplars=True,
                        ),
                    ),
                ),
                Panel(
                    "REST streams",
                    "Clients that follow a run, and requests being handled.",
                    "none",
                    (
                        Query("sum(bos_rest_stream_clients)", "streams"),
                        Query("sum(bos_rest_in_flight)", "in flight"),
                    ),
                ),
                Panel(
                    "REST events",
                    "Sent to clients, and streams that went on over another connection.",
                    "ops",
                    (
                        Query(rate("bos_rest_stream_events_total"), "events"),
                        Query(rate("bos_rest_stream_retries_total"), "resumed"),
                    ),
                ),
                Panel(
                    "Requests of other HTTP servers",
                    "Protocols and mcp_db, by code.",
                    "reqps",
                    (
                        Query(
                            rate("bos_http_server_requests_total", "service, code"),
                            "{{service}} {{code}}",
                        ),
                    ),
                ),
                Panel(
                    "Duration of other HTTP servers",
                    "95th percentile; the protocols service streams answers.",
                    "s",
                    (
                        Query(
                            quantile(0.95, "bos_http_server_duration_seconds", "service"),
                            "{{service}}",
                        ),
                    ),
                ),
            ),
        ),
        Row(
            "Accounts and secrets",
            (
                Panel(
                    "Sign-ins",
                    "By outcome; many throttled ones mean that passwords are being guessed.",
                    "ops",
                    (
                        Query(rate("bos_identity_logins_total", "outcome"), "log-in {{outcome}}"),
                        Query(
                            rate("bos_identity_refreshes_total", "outcome"), "refresh {{outcome}}"
                        ),
                    ),
                ),
                Panel(
                    "Certificates",
                    "Time until the certificate of a service ends.",
                    "s",
                    (
                        Query(
                            "min by (service) "
                            "(bos_certificate_not_after_timestamp_seconds - time())",
                            "{{service}}",
                        ),
                    ),
                    least=604800,
                ),
                Panel(
                    "Secret files not usable",
                    "By service and variable; the old value counts meanwhile.",
                    "none",
                    (
                        Query(
                            "max by (service, variable) (bos_secret_file_unusable)",
                            "{{service}} {{variable}}",
                        ),
                    ),
                    most=1,
                ),
                Panel(
                    "Accounts being deleted",
                    "As the replicas of identity last saw them.",
                    "none",
                    (Query("max(bos_identity_account_deletions)", "accounts"),),
                ),
                Panel(
                    "Accounts made",
                    "Per second; many at once want a look at who may register.",
                    "ops",
                    (Query(rate("bos_identity_registrations_total"), "accounts"),),
                ),
                Panel(
                    "Time of a password",
                    "95th percentile of hashing or verifying one, the wait for a thread included.",
                    "s",
                    (Query(quantile(0.95, "bos_identity_hash_duration_seconds"), "p95"),),
                ),
                Panel(
                    "Signing keys",
                    "Published for those who verify tokens; none means that no user can sign in.",
                    "none",
                    (Query("min(bos_identity_signing_keys)", "keys"),),
                    "stat",
                    least=1,
                ),
                Panel(
                    "Signing keys read",
                    "How long ago, by the replica that did so last of all.",
                    "s",
                    (Query("time() - min(bos_identity_keys_loaded_timestamp_seconds)", "age"),),
                ),
            ),
        ),
        Row(
            "Memory",
            (
                Panel(
                    "Calls of memory",
                    "Of gateways, by method and outcome; no run fails by them.",
                    "ops",
                    (
                        Query(
                            rate("bos_gateway_memory_calls_total", "method, outcome"),
                            "{{method}} {{outcome}}",
                        ),
                    ),
                ),
                Panel(
                    "Turns recorded",
                    "Questions with their answers, per second.",
                    "ops",
                    (Query(rate("bos_memory_turns_total"), "turns"),),
                ),
            ),
        ),
        Row(
            "Processes",
            (
                Panel(
                    "CPU",
                    "Processors in use, by process.",
                    "none",
                    (
                        Query(
                            'rate(process_cpu_seconds_total{job="bos"}[$__rate_interval])',
                            "{{instance}}",
                        ),
                    ),
                ),
                Panel(
                    "Memory",
                    "Resident, by process.",
                    "bytes",
                    (Query('process_resident_memory_bytes{job="bos"}', "{{instance}}"),),
                ),
                Panel(
                    "Open files",
                    "Share of the limit, by process.",
                    "percentunit",
                    (
                        Query(
                            'process_open_fds{job="bos"} / process_max_fds{job="bos"}',
                            "{{instance}}",
                        ),
                    ),
                    most=0.8,
                ),
            ),
        ),
    ),
)
