"""Settings of the bench's agents; named as standalone expects the settings of any agent."""

from pydantic_settings import SettingsConfigDict

from bos_agentkit import AgentServiceSettings


class OneCallSettings(AgentServiceSettings):
    """``BOS_ONE_CALL_…``, for all three of them."""

    model_config = SettingsConfigDict(env_prefix="BOS_ONE_CALL_")
