"""Settings of the web agent."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, SecretStr, model_validator
from pydantic_settings import SettingsConfigDict

from bos_agentkit import AgentServiceSettings
from bos_http import HttpPolicy

Provider = Literal["none", "tavily", "google", "searxng"]
Networks = tuple[IPv4Network | IPv6Network, ...]

DEFAULT_URLS: Mapping[str, str] = {
    "tavily": "https://api.tavily.com/search",
    "google": "https://www.googleapis.com/customsearch/v1",
}
_MAX_PAGE_BYTES = 3 * 1024 * 1024


class WebSettings(AgentServiceSettings):
    """``BOS_WEB_…``. Durations are in seconds."""

    model_config = SettingsConfigDict(env_prefix="BOS_WEB_")

    search_provider: Provider = Field(
        default="none",
        description="Search API: tavily, google (Custom Search JSON API) or searxng; none: the "
        "agent only reads pages at given addresses",
    )
    search_url: str = Field(
        default="",
        description="Address of the search API; empty: the provider's own. SearXNG needs one, such "
        "as https://searxng.example/search",
    )
    search_key: SecretStr | None = Field(default=None, description="Key of the search API")
    search_key_file: Path | None = Field(
        default=None,
        description="File with the key instead, such as a mounted secret; read again when it "
        "changes",
    )
    search_engine_id: str = Field(
        default="", description="Identifier of the Google search engine (`cx`)"
    )
    search_networks: Networks = Field(
        default=(),
        description="Networks of a search API inside the network; none: its addresses must be "
        "public",
    )
    search_timeout_s: float = Field(default=10.0, gt=0, description="Timeout of one search")
    search_results: int = Field(
        default=8, ge=1, le=20, description="Results of a search; Google returns at most 10"
    )
    site_hosts: tuple[str, ...] = Field(
        default=("*",),
        description='Public hosts whose pages may be read: names, "*.domain" for all below a '
        'domain, "*" for any',
    )
    site_origins: Mapping[str, Networks] = Field(
        default_factory=dict,
        description="Sites inside the network whose pages may be read, such as "
        "`http://wiki.corp:8080`, each with the networks that its addresses must be in",
    )
    plain_http: bool = Field(
        default=True, description="Read pages of public hosts that are served without TLS"
    )
    user_agent: str = Field(
        default="bos-web/0.1",
        pattern=r"^[A-Za-z][A-Za-z_-]*(?:/[!-~]+)?(?: [ -~]*[!-~])?$",
        description="User-Agent of requests for pages; its first word is the name that robots.txt "
        "is asked for. Name a page or address where site owners learn whose it is",
    )
    robots_txt: bool = Field(
        default=True,
        description="Respect robots.txt of public hosts and sites; turn off for your own alone",
    )
    robots_ttl_s: float = Field(
        default=3600.0, gt=0, le=86_400, description="Lifetime of a cached robots.txt"
    )
    max_crawl_delay_s: float = Field(
        default=10.0,
        ge=0,
        description="Maximum crawl delay of a robots.txt; a host that asks for more is read once "
        "in this time",
    )
    host_interval_s: float = Field(
        default=0.2, ge=0, description="Minimum interval of requests to one host"
    )
    host_requests: int = Field(
        default=2, ge=1, le=32, description="Concurrent requests to one host"
    )
    page_requests: int = Field(
        default=16, ge=1, le=256, description="Concurrent requests for pages, of all steps"
    )
    page_timeout_s: float = Field(default=15.0, gt=0, description="Timeout of one page")
    max_page_bytes: int = Field(
        default=_MAX_PAGE_BYTES, ge=1024, le=32 * 1024 * 1024, description="Maximum size of a page"
    )
    max_page_chars: int = Field(
        default=20_000,
        ge=500,
        le=200_000,
        description="Maximum characters of a page's text; the rest is truncated",
    )
    pages: int = Field(
        default=4, ge=1, le=10, description="Pages read for a deep search, or opened by one request"
    )
    extraction_timeout_s: float = Field(
        default=10.0,
        gt=0,
        description="Timeout of extracting the text of a page; its process is then killed",
    )
    extraction_memory_bytes: int = Field(
        default=1024 * 1024 * 1024,
        ge=256 * 1024 * 1024,
        description="Address space of the process that extracts the text of pages",
    )
    browser: str = Field(
        default="",
        description="Path of Chromium, such as `/usr/bin/chromium`, for pages rendered by scripts; "
        "empty: such pages are not read",
    )
    browser_sandbox: Literal["namespaces", "container"] = Field(
        default="namespaces",
        description="namespaces: the browser has a network without devices, and its own sandbox; "
        "the agent does not start where the kernel refuses that. container: neither, since the "
        "container of this service is the sandbox and its network policy lets out nothing else",
    )
    browser_pages: int = Field(
        default=1, ge=1, le=4, description="Concurrent browsers; each shows one page"
    )
    browser_timeout_s: float = Field(
        default=20.0, gt=0, description="Timeout of one page in a browser, its start included"
    )
    browser_settle_s: float = Field(
        default=5.0,
        ge=0.1,
        le=60,
        description="Time of a page's own clock that scripts have after it is loaded; that clock "
        "runs as fast as they do",
    )
    browser_requests: int = Field(
        default=100, ge=1, le=1_000, description="Maximum requests for one page in a browser"
    )
    browser_bytes: int = Field(
        default=16 * 1024 * 1024,
        ge=1024,
        le=256 * 1024 * 1024,
        description="Maximum bytes loaded for one page in a browser",
    )
    browser_memory_bytes: int = Field(
        default=1024 * 1024 * 1024,
        ge=512 * 1024 * 1024,
        description="Private memory limit of each process of a browser",
    )
    strategy_timeout_s: float = Field(
        default=10.0,
        gt=0,
        description="Timeout of the model's search strategy; after it the query is written by rule",
    )
    answer_timeout_s: float = Field(
        default=30.0,
        gt=0,
        description="Timeout of the model's answer; after it the best results are quoted",
    )

    @model_validator(mode="after")
    def _complete(self) -> Self:
        provider = self.search_provider
        if self.search_key is not None and self.search_key_file is not None:
            raise ValueError("set search_key or search_key_file, not both")
        has_key = self.search_key is not None or self.search_key_file is not None
        if provider in ("tavily", "google") and not has_key:
            raise ValueError(f"search_provider {provider} needs search_key or search_key_file")
        if provider == "google" and not self.search_engine_id:
            raise ValueError("search_provider google needs search_engine_id")
        if provider == "searxng" and not self.search_url:
            raise ValueError("search_provider searxng needs search_url")
        return self

    @property
    def api_url(self) -> str:
        """Address of the search API; empty where nothing searches."""
        return self.search_url or DEFAULT_URLS.get(self.search_provider, "")

    def site_policy(self) -> HttpPolicy:
        """What may be requested for pages: reading alone, of the hosts and sites set."""
        return HttpPolicy(
            hosts=self.site_hosts,
            internal_origins=self.site_origins,
            allow_http=self.plain_http,
            methods=("GET",),
            total_timeout_s=self.page_timeout_s,
            max_response_bytes=self.max_page_bytes,
            max_connections=self.page_requests,
            user_agent=self.user_agent,
        )
