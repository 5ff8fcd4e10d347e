"""Network policies: exactly the edges that the settings of the services need."""

import json
from ipaddress import ip_network

import pytest
from chart_rendering import Chart, Rendered, called, component, environment, peers

_DNS = {("UDP", 53), ("TCP", 53)}


def _edges_of_settings(profile: Rendered) -> set[tuple[str, str]]:
    """Who calls whom, as the variables of each pod say."""
    edges = {
        (name, other)
        for name, pod in profile.services().items()
        for other in called(environment(pod))
    }
    for job in profile.of("Job").values():
        pod = job["spec"]["template"]["spec"]
        for number, container in enumerate(pod["containers"]):
            # Of the services' settings the job uses the tables alone.
            tables = {k: v for k, v in environment(pod, number).items() if k.endswith("STORE_URL")}
            given = {"argument": " ".join(container.get("args", []))}
            name = component(job["metadata"]["labels"])
            edges |= {(name, other) for other in called({**tables, **given})}
    return edges


def test_edges_are_what_settings_name_at_both_ends(profile: Rendered) -> None:
    policies = profile.policies().items()
    egress = {(name, to) for name, p in policies for to in peers(p.get("egress"), "to")}
    ingress = {(by, name) for name, p in policies for by in peers(p.get("ingress"), "from")}
    assert egress == ingress == _edges_of_settings(profile)
    assert len(egress) > 40


def test_pods_are_denied_everything_but_by_one_policy_of_their_own(profile: Rendered) -> None:
    deny = profile.of("NetworkPolicy")["default-deny"]["spec"]
    assert set(deny["policyTypes"]) == {"Ingress", "Egress"}
    assert not {"ingress", "egress"} & deny.keys()
    for name, template in profile.pods():
        labels = template["metadata"]["labels"]
        assert deny["podSelector"]["matchLabels"].items() <= labels.items(), name
    assert {name for name, _ in profile.pods()} == profile.policies().keys()
    for name, policy in profile.policies().items():
        assert set(policy["policyTypes"]) == {"Ingress", "Egress"}, name


def test_sandbox_calls_no_service_not_even_name_resolution(profile: Rendered) -> None:
    assert profile.policies()["sandbox"]["egress"] == []
    settings = environment(profile.services()["sandbox"])
    assert not called(settings)
    assert "BOS_OTLP_ENDPOINT" not in settings


def test_edges_between_services_are_open_on_their_port_alone(profile: Rendered) -> None:
    for name, policy in profile.policies().items():
        for rule in [*(policy.get("ingress") or []), *(policy.get("egress") or [])]:
            ports = {(port["protocol"], port["port"]) for port in rule["ports"]}
            if any("namespaceSelector" in peer for peer in rule.get("to", [])):
                assert ports == _DNS, name
            elif peers([rule], "to") or peers([rule], "from"):
                assert ports <= {("TCP", each) for each in ("main", "store", 5432, 6333)}, name
                assert len(ports) == 1, name


def test_rest_is_open_to_clients_and_metrics_to_monitoring(profile: Rendered) -> None:
    reachable = set()
    for name, policy in profile.policies().items():
        for rule in policy.get("ingress") or []:
            spaces = [
                peer["namespaceSelector"] for peer in rule["from"] if "namespaceSelector" in peer
            ]
            names = {each["matchLabels"]["kubernetes.io/metadata.name"] for each in spaces}
            ports = {port["port"] for port in rule["ports"]}
            reachable |= {(space, name if space == "ingress" else "*", *ports) for space in names}
    assert reachable == {("ingress", "rest", "main"), ("monitoring", "*", "metrics")}


@pytest.mark.parametrize(
    ("name", "public"),
    [
        ("sql", True),  # its model
        ("gateway", True),  # webhooks
        ("web", True),
        ("rest", False),
        ("protocols", False),
        ("mcp-db", False),
        ("sandbox", False),
        ("identity", False),
    ],
)
def test_public_internet_is_open_to_those_that_need_it(
    rendered: dict[str, Rendered], name: str, public: bool
) -> None:
    rules = rendered["ha"].policies()[name]["egress"]
    blocks = [peer["ipBlock"] for rule in rules for peer in rule.get("to", []) if "ipBlock" in peer]
    assert any(block["cidr"] == "0.0.0.0/0" for block in blocks) == public
    for block in blocks:
        if block["cidr"] == "0.0.0.0/0":
            assert {"10.0.0.0/8", "169.254.0.0/16", "192.168.0.0/16"} <= set(block["except"])


def test_airgapped_release_reaches_private_networks_alone(rendered: dict[str, Rendered]) -> None:
    profile = rendered["airgapped"]
    seen = 0
    for name, policy in profile.policies().items():
        for rule in policy.get("egress") or []:
            assert rule.get("to"), f"{name} may reach any address on {rule['ports']}"
            for peer in rule["to"]:
                if "ipBlock" in peer:
                    seen += 1
                    assert ip_network(peer["ipBlock"]["cidr"]).is_private, name
    assert seen
    assert not {"web", "mail"} & profile.services().keys()


def test_uploaded_files_are_asked_through_mcp_db_if_files_are_on(
    chart: Chart,
) -> None:
    on, off = chart.render("ha"), chart.render("ha", 'services.files={"enabled": false}')
    audiences = [
        environment(each.services()["gateway"])["BOS_GATEWAY_AGENT_AUDIENCES"] for each in (on, off)
    ]
    assert [json.loads(each)["sql"] for each in audiences] == [
        ["mcp_db", "file_tables"],
        ["mcp_db"],
    ]
    assert "files" in peers(on.policies()["mcp-db"]["egress"], "to")
    assert "mcp-db" in peers(on.policies()["files"]["ingress"], "from")
    assert "sql" not in peers(on.policies()["files"]["ingress"], "from")
    assert "files" not in peers(off.policies()["mcp-db"]["egress"], "to")
    assert "BOS_MCP_DB_FILES_TARGET" not in environment(off.services()["mcp-db"])


def test_service_that_is_off_leaves_no_edge_behind(chart: Chart) -> None:
    profile = chart.render("ha", 'services.memory={"enabled": false}')
    assert "memory" not in profile.services()
    assert all("memory" not in pair for pair in _edges_of_settings(profile))
    assert all(
        "memory" not in peers(policy["egress"], "to") for policy in profile.policies().values()
    )


def test_agent_of_ones_own_is_a_row_and_gets_its_edges(chart: Chart) -> None:
    row = 'services.jira={"kind": "agent", "image": {"name": "mcp"}, "outside": ["tools"]}'
    profile = chart.render("ha", row)
    gateway = environment(profile.services()["gateway"])
    assert "jira=dns:///bos-jira:8080" in gateway["BOS_GATEWAY_AGENT_TARGETS"].split(",")
    assert (
        profile.services()["jira"]["containers"][0]["image"] == "registry.example.org/bos/mcp:0.1.0"
    )
    assert peers(profile.policies()["jira"]["egress"], "to") == {"gateway"}
    assert "jira" in peers(profile.policies()["gateway"]["egress"], "to")
    assert ("gateway", "jira") in _edges_of_settings(profile)
