"""Settings of the API agent."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, SecretStr
from pydantic_settings import SettingsConfigDict

from bos_agentkit import AgentServiceSettings
from bos_http import HttpPolicy

SINGLE = "api"
"""Name of the API that is configured by single variables."""
SAMPLE = "company"
"""Name of the sample company's API."""


class ApiSettings(BaseModel):
    """One API: where its documentation and the API itself are, and the operator's credentials.

    The credentials are sent to the origin of ``base_url`` and to no other.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    openapi: str = Field(default="", description="OpenAPI 3 document: a URL or a file")
    catalogue: Path | None = Field(
        default=None, description="Curated catalogue (YAML), which completes the document"
    )
    base_url: str = Field(
        default="", description="Base URL of the paths, such as https://x.com/api"
    )
    token: SecretStr | None = Field(default=None, description="Bearer token")
    token_file: Path | None = Field(
        default=None, description="File with the bearer token; it may be replaced at any time"
    )
    token_url: str = Field(
        default="https://identitytoolkit.googleapis.com/v1/accounts:signInWithPassword",
        description="URL that exchanges e-mail and password for a token",
    )
    web_api_key: SecretStr | None = Field(default=None, description="Key for the token URL")
    email: SecretStr | None = Field(default=None, description="E-mail for the token URL")
    password: SecretStr | None = Field(default=None, description="Password for the token URL")
    headers: dict[str, SecretStr] = Field(
        default={}, description="Headers of every call, such as X-Api-Key"
    )


class ApiDocsSettings(AgentServiceSettings):
    """``BOS_API_DOCS_…``. Durations are in seconds."""

    model_config = SettingsConfigDict(env_prefix="BOS_API_DOCS_")

    openapi: str = Field(
        default="", description="OpenAPI 3 document of the API: a URL or a file (JSON or YAML)"
    )
    catalogue_path: Path | None = Field(
        default=None,
        description="Curated catalogue of the API (YAML): endpoints and documentation snippets",
    )
    apis: dict[str, ApiSettings] = Field(
        default={},
        max_length=20,
        description="Several APIs by name, as JSON: openapi, catalogue, base_url, token, "
        "token_file, token_url, web_api_key, email, password, headers; the first is the default",
    )
    sample_api: ApiSettings | None = Field(
        default=None, description="API of the sample company; set by standalone"
    )
    agent_base_url: str = Field(
        default="",
        validation_alias="API_AGENT_BASE_URL",
        description="Base URL of the default API; api_base_url of a request takes precedence",
    )
    default_base_url: str = Field(
        default="",
        validation_alias=AliasChoices("BOS_API_DOCS_DEFAULT_BASE_URL", "DEFAULT_BASE_URL"),
        description="Base URL if neither the request nor the API has one",
    )
    token_file: Path | None = Field(
        default=None,
        validation_alias="FIREBASE_TOKEN_FILE",
        description="File with the bearer token of the default API",
    )
    web_api_key: SecretStr | None = Field(
        default=None,
        validation_alias="FIREBASE_WEB_API_KEY",
        description="Web API key for the token URL of the default API",
    )
    email: SecretStr | None = Field(
        default=None,
        validation_alias="FIREBASE_EMAIL",
        description="E-mail for the token URL of the default API",
    )
    password: SecretStr | None = Field(
        default=None,
        validation_alias="FIREBASE_PASSWORD",
        description="Password for the token URL of the default API",
    )
    http: HttpPolicy = Field(default_factory=HttpPolicy.load)
    requires_approval: Literal["writes", "all"] = Field(
        default="writes",
        description="Calls that need approval: those that may change something, or all",
    )
    top_endpoints: int = Field(
        default=5, ge=1, le=50, description="Endpoints shown to the model for a question"
    )
    top_snippets: int = Field(
        default=5, ge=0, le=50, description="Documentation snippets shown to the model"
    )
    request_timeout_s: float = Field(default=30.0, gt=0, description="Timeout of one HTTP request")
    max_pages: int = Field(default=10, ge=1, le=1_000, description="Maximum pages read of one list")
    max_rows: int = Field(
        default=1_000, ge=1, le=50_000, description="Maximum rows kept of one list"
    )
    max_list_bytes: int = Field(
        default=8 * 1024 * 1024, ge=1024, description="Maximum bytes read of all pages of one list"
    )
    summary_timeout_s: float = Field(
        default=15.0,
        gt=0,
        description="Timeout of the model's summary; after it the response is stated plainly",
    )
    reload_s: float = Field(
        default=300.0,
        ge=0,
        description="Interval of reloading changed catalogues; 0: load at start only",
    )

    def all_apis(self) -> dict[str, ApiSettings]:
        """Every API by name; the first is the default one, which single variables complete."""
        found: dict[str, ApiSettings] = {}
        documented = bool(self.openapi) or self.catalogue_path is not None
        alone = not self.apis and self.sample_api is None
        if SINGLE not in self.apis and (documented or (alone and self.agent_base_url)):
            found[SINGLE] = ApiSettings(openapi=self.openapi, catalogue=self.catalogue_path)
        found |= self.apis
        if self.sample_api is not None:
            found.setdefault(SAMPLE, self.sample_api)
        for name in list(found)[:1]:
            found[name] = self._completed(found[name])
        return found

    def _completed(self, api: ApiSettings) -> ApiSettings:
        single = {
            "base_url": self.agent_base_url,
            "token_file": self.token_file,
            "web_api_key": self.web_api_key,
            "email": self.email,
            "password": self.password,
        }
        return api.model_copy(update={name: value for name, value in single.items() if value})
