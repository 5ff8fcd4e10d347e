"""docs/reference/configuration.md and .env.example say what the settings classes say."""

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import pytest
from pydantic import AliasChoices, BaseModel, Field, SecretStr
from pydantic_settings import SettingsConfigDict

from bos_api_docs.settings import ApiDocsSettings
from bos_chassis.settings import ServerSettings, Settings
from bos_cli.main import main as command_line
from bos_errors import ConfigurationError
from bos_gateway.settings import GatewaySettings
from bos_llm.settings import ModelSettings

sys.path.append(str(Path(__file__).parents[2] / "libs/chassis"))
from settings_reference import render, settings_classes, variables

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/reference/configuration.md"
EXAMPLE = ROOT / ".env.example"
ASSIGNMENT = re.compile(r"^#? ?([A-Z][A-Z0-9_]*)=(.*)$", re.MULTILINE)
PER_AGENT = re.compile(
    r"([A-Z][A-Z0-9_]*)_(MODEL_PROVIDER|MODEL_KEYS|MODEL_TIER|MODEL|TEMPERATURE"
    r"|REASONING_EFFORT|MAX_REPLY_TOKENS|EXTRA_BODY)"
)
USES_A_MODEL = {"PLANNER", "COMPOSER", "SQL", "COMPUTATION", "CODE", "MEMORY"}


def known_names() -> set[str]:
    """Every variable that some settings class reads, parts spelled out."""
    names: set[str] = set()
    for cls in settings_classes():
        names |= {name for variable in variables(cls) for name in variable.names}
        prefix = str(cls.model_config["env_prefix"])
        for field, info in cls.model_fields.items():
            part = info.annotation
            if isinstance(part, type) and issubclass(part, Settings):
                names |= {f"{prefix}{field}__{inner}".upper() for inner in part.model_fields}
    return names


def example() -> dict[str, str]:
    return dict(ASSIGNMENT.findall(EXAMPLE.read_text(encoding="utf-8")))


def problems_of(cls: type[Settings]) -> list[str]:
    """What is wrong with the present environment, one entry per variable."""
    try:
        cls.load()
    except ConfigurationError as error:
        said = error.message.removeprefix("Configuration is not usable. ")
        return re.split(r"; (?=[A-Z])", said)  # a description may have a semicolon too
    return []


def test_variables_of_the_command_line_are_on_the_page() -> None:
    variables_read = {str(p.envvar) for p in command_line.params if getattr(p, "envvar", None)}
    assert variables_read
    assert not [v for v in variables_read if f"`{v}`" not in PAGE.read_text(encoding="utf-8")]


def test_settings_outside_a_module_of_that_name_are_on_the_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert "`BOS_HTTP_HOSTS`" in page
    assert '| `BOS_HTTP_METHODS` | JSON | `["GET", "HEAD"]` |' in page


def test_every_setting_says_what_it_is_for() -> None:
    silent = [v.names for cls in settings_classes() for v in variables(cls) if not v.purpose]
    assert not silent


def test_every_service_is_on_the_page() -> None:
    packages = {cls.__module__.partition(".")[0] for cls in settings_classes()}
    services = {
        path.parent.name
        for pattern in ("services/*/src/bos_*/settings.py", "services/agents/*/src/*/settings.py")
        for path in ROOT.glob(pattern)
    }
    assert services <= packages


_OTHER_NAMES = [
    (GatewaySettings, "HITL_TIMEOUT_SECONDS", "BOS_GATEWAY_APPROVAL_TIMEOUT_S", "0"),
    (GatewaySettings, "MAX_REVISIONS", "BOS_GATEWAY_MAX_REVISIONS", "11"),
    (ModelSettings, "HITL_CLASSIFIER_PROVIDER", "HITL_CLASSIFIER_MODEL_PROVIDER", ""),
    (ApiDocsSettings, "DEFAULT_BASE_URL", "BOS_API_DOCS_DEFAULT_BASE_URL", ""),
]


@pytest.mark.parametrize(("cls", "name", "own", "wrong"), _OTHER_NAMES)
@pytest.mark.requirement("N-08", "M-06", "M-17", "C-21", "E-07")
def test_other_names_are_read_shown_and_not_contradicted(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    cls: type[Settings],
    name: str,
    own: str,
    wrong: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert f"`{name}`" in PAGE.read_text(encoding="utf-8")
    if wrong:
        monkeypatch.setenv(name, wrong)
        assert [each for each in problems_of(cls) if each.startswith(f"{own} or {name}: ")]
    monkeypatch.setenv(name, "5")
    assert not [each for each in problems_of(cls) if name in each]
    monkeypatch.setenv(own, "6")
    problem = problems_of(cls)[0]
    assert problem.startswith(f"{own} and {name} mean the same")


@pytest.mark.requirement("N-08")
def test_variables_of_the_example_exist() -> None:
    unknown = set(example()) - known_names()
    assert {
        name
        for name in unknown
        if not ((match := PER_AGENT.fullmatch(name)) and match[1] in USES_A_MODEL)
    } == set()


@pytest.mark.requirement("N-08")
def test_example_is_complete_for_a_first_start() -> None:
    """Variables that the README asks users to set are in the example."""
    wanted = {"OPENAI_API_KEY", "OPENAI_BASE_URL", "BOS_MODEL"}
    assert wanted | {"BOS_DATABASE_URL", "BOS_DATABASE_ALLOWED_TABLES"} <= set(example())
    # All others are on the page; here is what a first deployment sets.
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) <= 70


@pytest.mark.requirement("S-15")
def test_no_value_of_the_example_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in example().items():
        monkeypatch.setenv(name, value)
    # What deployment must set is not in the example, because `make run` sets it.
    refused = [
        problem
        for cls in settings_classes()
        for problem in problems_of(cls)
        if ": must be set" not in problem
    ]
    assert not refused


class Price(BaseModel):
    amount: float


class SampleSettings(Settings):
    """Sample of everything."""

    model_config = SettingsConfigDict(env_prefix="BOS_SAMPLE_")

    server: ServerSettings = Field(default_factory=ServerSettings.load)
    url: str = Field(description="Where it is")
    mode: Literal["fast", "slow"] = Field(default="fast", description="How")
    level: int = Field(default=3, ge=1, le=9, description="How much")
    ratio: float | None = Field(default=None, gt=0, description="Share | part")
    key: SecretStr | None = Field(
        default=None, validation_alias=AliasChoices("A_KEY", "B_KEY"), description="Key"
    )
    prices: Mapping[str, Price] = Field(default_factory=dict, description="Prices")
    collected: Mapping[str, SecretStr] = Field(default_factory=dict)


def test_rows_name_variable_type_bounds_default_and_purpose() -> None:
    rows = [line for line in render([SampleSettings]).splitlines() if line.startswith("| `")]
    assert rows == [
        "| `BOS_SAMPLE_SERVER__…` | part `ServerSettings` |  | For this service alone |",
        "| `BOS_SAMPLE_URL` | text | **required** | Where it is |",
        "| `BOS_SAMPLE_MODE` | `fast` or `slow` | `fast` | How |",
        "| `BOS_SAMPLE_LEVEL` | whole number, 1 to 9 | `3` | How much |",
        "| `BOS_SAMPLE_RATIO` | number, above 0 | unset | Share \\| part |",
        "| `A_KEY` or `B_KEY` | secret | unset | Key |",
        "| `BOS_SAMPLE_PRICES` | JSON map with the keys `amount` | empty | Prices |",
    ]
