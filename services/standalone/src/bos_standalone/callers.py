"""Authentication between the services of a standalone: keys of this start, settings of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import SecretStr

from bos_chassis.auth.callers import generate_keypair
from bos_chassis.names import ROLES
from bos_chassis.settings import AuthSettings, is_loopback
from bos_identity.accounts import LOCAL_USER_ID

if TYPE_CHECKING:
    from bos_identity.settings import IdentitySettings
    from bos_standalone.data_folder import DataFolder


class Callers:
    """Keys generated at this start, and the authentication settings of each service.

    Args:
        host: Address of the public services.
        folder: Holds the key of the local user.
    """

    def __init__(self, host: str, folder: DataFolder) -> None:
        self._host = host
        self.given = AuthSettings.load()
        """Authentication settings of the public services, as the environment sets them."""
        self.run_token_key, self._run_token_public_key = generate_keypair()
        # REST alone signs client addresses; the services trust this key and no other.
        self.rest_key, self._rest_public_key = generate_keypair()
        self.api_key = self._api_key(folder)
        """API key of the local user; on loopback there always is one."""

    def internal(self) -> AuthSettings:
        """Authentication of internal services: run tokens of this standalone's gateway only."""
        return AuthSettings.load(
            static_key=None,
            static_keys_file=None,
            run_token_public_keys=self._run_token_public_key,
            run_token_public_keys_file=None,
            run_token_check_target=None,
        )

    def public(
        self,
        identity_target: str = "",
        identity: IdentitySettings | None = None,
        *,
        run_tokens: bool = False,
    ) -> AuthSettings:
        """Authentication of public services: the local user's API key, and users who signed in.

        Args:
            identity_target: Where identity is; empty where there is none.
            identity: Its settings, with the issuer and audience of its access tokens.
            run_tokens: Whether the gateway calls too, with its run tokens.
        """
        update: dict[str, Any] = {
            "static_key": SecretStr(self.api_key) if self.api_key else None,
            "run_token_public_keys": self._run_token_public_key if run_tokens else None,
            "run_token_public_keys_file": None,
            "proxy_public_keys": "\n".join(
                filter(None, (self.given.proxy_public_keys, self._rest_public_key))
            ),
        }
        if "static_key_user" not in self.given.model_fields_set:
            update["static_key_user"] = str(LOCAL_USER_ID)
        if "static_key_roles" not in self.given.model_fields_set and is_loopback(self._host):
            update["static_key_roles"] = ROLES  # the holder of this key owns the machine
        if identity_target and identity is not None:
            update |= {
                "issuer": identity.issuer,
                "audience": identity.audience,
                "identity_target": identity_target,
            }
        return self.given.model_copy(update=update)

    def _api_key(self, folder: DataFolder) -> str:
        given = self.given.static_key
        if given is not None:
            return given.get_secret_value()
        return folder.api_key if is_loopback(self._host) else ""
