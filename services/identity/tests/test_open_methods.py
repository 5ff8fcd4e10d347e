import pytest

from bos.common.v1 import open_method
from bos.identity.v1 import (
    administration_service_pb2,
    api_key_service_pb2,
    credential_service_pb2,
    identity_service_pb2,
    open_id_service_pb2,
)
from bos_identity import api
from bos_identity.credentials import api as credentials
from bos_identity.openid import api as openid


@pytest.mark.parametrize(
    ("contract", "open_methods"),
    [
        (identity_service_pb2, api.OPEN_METHODS),
        (credential_service_pb2, credentials.OPEN_METHODS),
        (administration_service_pb2, ()),
        (api_key_service_pb2, ()),
        (open_id_service_pb2, openid.OPEN_METHODS),
    ],
)
def test_the_contracts_say_what_needs_no_credential(
    contract: object, open_methods: tuple[str, ...]
) -> None:
    (service,) = contract.DESCRIPTOR.services_by_name.values()  # type: ignore[attr-defined]
    marked = [each.name for each in service.methods if each.GetOptions().Extensions[open_method]]
    assert sorted(marked) == sorted(open_methods)
