"""Checks and defaults before any service starts: required secrets, model choice, no TLS."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bos_chassis.settings import TlsSettings, is_loopback
from bos_errors import ConfigurationError
from bos_identity.settings import IdentitySettings
from bos_llm import ModelPrice, ModelSettings

if TYPE_CHECKING:
    from bos_chassis.settings import AuthSettings
    from bos_demo.service import Demo

_SCRIPTED = "scripted"


def require_secrets(host: str, auth: AuthSettings) -> None:
    """Refuse to listen on a network with generated secrets only.

    Raises:
        ConfigurationError: no issuer and no keys are configured.
    """
    if is_loopback(host) or auth.names_issuer:
        return
    # Other settings of identity are checked later; its keys are checked before anything starts.
    own = IdentitySettings.load(store_url="unknown")
    if own.key_encryption_keys is None and not own.signing_key_files:
        raise ConfigurationError(
            f"BOS_STANDALONE_HOST={host} would open Bos to the network without configured "
            "secrets. Set BOS_IDENTITY_KEY_ENCRYPTION_KEYS (32 random bytes in URL-safe base64), "
            "or BOS_AUTH_ISSUER of an OpenID issuer, or stay on 127.0.0.1."
        )


def today(company: Demo) -> dict[str, str]:
    """Today's date of the sample company under both context keys, so that they never differ."""
    day = company.today.isoformat()
    return {"current_date": day, "current_datetime_utc": f"{day}T12:00:00+00:00"}


def plain() -> TlsSettings:
    """TLS settings without certificates: those in the environment are for separate processes."""
    return TlsSettings.load(cert_file=None, key_file=None, ca_file=None)


class ModelChoice:
    """Choice of the model: the configured one, else the scripted one, else none.

    Args:
        own_database: Whether there is another database than the sample company.

    Raises:
        ConfigurationError: a model is configured, but not enough of it.
    """

    def __init__(self, *, own_database: bool) -> None:
        self._settings = ModelSettings.load()
        settings = self._settings
        self._config = settings.get_agent_model_config("")
        self._missing = settings.missing("", self._config)
        if self._missing and (settings.base_url or settings.azure_endpoint or settings.provider):
            raise ConfigurationError(
                f"A model is configured, but not completely: set {' and '.join(self._missing)}."
            )
        self.scripted = bool(self._missing) and not own_database
        """Whether the scripted model is used: no other is configured, and it knows the database."""

    @property
    def name(self) -> str:
        """Name of the model, for display."""
        if self.scripted:
            return "the scripted demo model"
        none = "none: plans and answers follow fixed rules"
        return none if self._missing else self._config.model

    def settings(self, company: Demo | None) -> ModelSettings:
        """Model settings of all services; ``company`` serves the scripted model."""
        if not self.scripted or company is None:
            return self._settings
        # A price of 0 is stated, as a model without a price logs a warning.
        prices = {_SCRIPTED: ModelPrice(input=0, output=0)}
        return ModelSettings.load(base_url=company.model_base_url, model=_SCRIPTED, prices=prices)
