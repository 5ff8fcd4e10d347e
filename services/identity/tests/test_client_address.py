import pytest
from identity_harness import REST, Starter, coming_from

from bos_chassis.settings import AuthSettings
from bos_errors import PermissionDenied, ResourceExhausted, Unauthenticated
from bos_testkit.address_tokens import AddressTokens


async def test_a_forged_header_does_not_hide_the_client_address(start: Starter) -> None:
    identity = await start(address_attempts=3, throttle_first_s=100.0)
    await identity.register()
    for number in range(3):
        with pytest.raises(Unauthenticated):
            await identity.log_in(f"user{number}", x_forwarded_for=f"203.0.113.{number}")
    with pytest.raises(ResourceExhausted):
        await identity.log_in(x_forwarded_for="203.0.113.9")
    assert await identity.log_in(**coming_from("203.0.113.9"))


async def test_callers_of_unknown_address_do_not_slow_down_others(start: Starter) -> None:
    identity = await start(address_attempts=3, throttle_first_s=100.0)
    await identity.register()
    nowhere = coming_from("")
    for number in range(10):
        with pytest.raises(Unauthenticated):
            await identity.log_in(f"user{number}", **nowhere)
    opened = await identity.log_in(**nowhere)
    sessions = await identity.sessions(opened.tokens.access_token)
    assert [session.client_address for session in sessions] == [""]


async def test_an_unknown_proxy_gets_an_error_that_says_so(start: Starter) -> None:
    known, none = await start(), await start(auth=AuthSettings.load())
    await known.register()
    anonymous = {"bos_proxy_token": AddressTokens().token("203.0.113.7")}
    for identity in (known, none):
        with pytest.raises(PermissionDenied, match="BOS_AUTH_PROXY_PUBLIC_KEYS") as error:
            await identity.log_in(**anonymous)
        assert error.value.reason == "PROXY_UNKNOWN"
    late = {"bos_proxy_token": REST.token("203.0.113.7", iat=1, exp=61)}
    with pytest.raises(PermissionDenied):
        await known.log_in(**late)
    assert await known.log_in(**coming_from("203.0.113.7"))
