"""What refusals of an endpoint become."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from pydantic import SecretStr

from agentcompass.errors import (
    ContextTooLongError,
    ModelAuthError,
    ModelError,
    ModelReplyError,
    ModelRequestError,
    ModelUnavailableError,
    RateLimitedError,
)
from agentcompass.llm.failure import retry_after_seconds

from .endpoints import WALL_SECONDS, always, open_setup

pytestmark = pytest.mark.anyio


def complaint(message: str = "no", **fields: object) -> dict[str, Any]:
    return {"error": {"message": message, **fields}}


@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (307, ModelRequestError, False),
        (400, ModelRequestError, False),
        (401, ModelAuthError, False),
        (402, RateLimitedError, False),
        (403, ModelAuthError, False),
        (404, ModelRequestError, False),
        (408, ModelUnavailableError, True),
        (409, ModelUnavailableError, True),
        (418, ModelRequestError, False),
        (422, ModelRequestError, False),
        (429, RateLimitedError, True),
        (500, ModelUnavailableError, True),
        (503, ModelUnavailableError, True),
        (529, ModelUnavailableError, True),
    ],
)
async def test_status_decides_the_error(status: int, kind: type[ModelError], retryable: bool) -> None:
    """Each status has its error, which says whether another try may help."""
    async with open_setup(always(body=complaint("so it is"), status=status), max_retries=0) as setup:
        with pytest.raises(ModelError, match=f"127.0.0.1:[0-9]+ answered {status}: so it is") as caught:
            await setup.ask()
    assert type(caught.value) is kind
    assert caught.value.retryable is retryable
    assert setup.calls.total.failed_calls == 1


@pytest.mark.parametrize("fields", [{"code": "insufficient_quota"}, {"type": "insufficient_quota"}])
async def test_used_up_quota_is_not_tried_again(fields: dict[str, str]) -> None:
    """Waiting does not bring money."""
    async with open_setup(always(body=complaint(**fields), status=429)) as setup:
        with pytest.raises(RateLimitedError) as caught:
            await setup.ask()
        assert len(setup.server.requests) == 1
    assert not caught.value.retryable


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, complaint(code="context_length_exceeded")),
        (400, complaint(type="exceed_context_size_error", code=400)),
        (
            400,
            {
                "object": "error",
                "message": "This model's maximum context length is 8192 tokens. However, you requested 9000",
                "type": "BadRequestError",
                "code": 400,
            },
        ),
        (422, {"error": "`inputs` tokens + `max_new_tokens` must be <= 4096", "error_type": "validation"}),
        (413, complaint("prompt is too long: 215000 tokens > 200000 maximum")),
    ],
)
async def test_too_long_prompt_is_told_apart(status: int, body: object) -> None:
    """It is the agent's doing and cannot be cured by another try."""
    async with open_setup(always(body=body, status=status)) as setup:
        with pytest.raises(ContextTooLongError) as caught:
            await setup.ask()
        assert len(setup.server.requests) == 1
    assert caught.value.agent_fault


async def test_wrong_parameter_is_not_taken_for_a_long_prompt() -> None:
    """Only codes and well-known phrases count."""
    body = complaint("the context parameter is too long", code="invalid_value")
    async with open_setup(always(body=body, status=400)) as setup:
        with pytest.raises(ModelRequestError):
            await setup.ask()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"code": 429, "message": "slow down"}, RateLimitedError),
        ({"code": 401, "message": "who?"}, ModelAuthError),
        ({"code": "boom", "message": "broke"}, ModelUnavailableError),
        ("broke", ModelUnavailableError),
        (None, ModelReplyError),
        ({}, ModelReplyError),
    ],
)
async def test_error_inside_a_good_status(error: object, kind: type[ModelError]) -> None:
    """Gateways answer 200 with an error inside; it is the endpoint's failure, not the model's."""
    async with open_setup(always(body={"error": error}), max_retries=0) as setup:
        with pytest.raises(ModelError) as caught:
            await setup.ask()
    assert type(caught.value) is kind


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"error": {"message": "m1"}}, ": m1"),
        ({"error": "m2"}, ": m2"),
        ({"message": "m3"}, ": m3"),
        ({"detail": [{"msg": "m4"}]}, ": [{'msg': 'm4'}]"),
        (b"bad\ngateway \xff", ": bad gateway \ufffd"),
        (b"", ""),
    ],
)
async def test_message_is_found_in_any_shape(body: object, said: str) -> None:
    """The endpoint's own words are in the error, on one line."""
    async with open_setup(always(body=body, status=400)) as setup:
        with pytest.raises(ModelRequestError) as caught:
            await setup.ask()
    assert str(caught.value).endswith(f"answered 400{said}")


async def test_long_message_is_shortened() -> None:
    """An endpoint cannot flood the records."""
    async with open_setup(always(body=complaint("x" * 10_000), status=400)) as setup:
        with pytest.raises(ModelRequestError) as caught:
            await setup.ask()
    assert len(str(caught.value)) < 600


KEY = "sk-canary-" + "7" * 40
QUERY = "code=canary%2Fin%2Fquery"


@pytest.mark.parametrize(
    "reply",
    [
        {"status": 401, "body": complaint(f"Incorrect API key provided: {KEY}")},
        {"status": 400, "body": complaint("x" * 480 + KEY)},
        {"status": 500, "body": f"Authorization: Bearer {KEY} for ?{QUERY}".encode()},
        {"status": 307, "headers": {"Location": f"http://other/?{QUERY}"}},
        {"body": f"{KEY} is not JSON".encode()},
        {"body": complaint(f"from the upstream: {KEY}")},
        {"headers": {"Content-Length": "junk"}},
        {"behaviour": "disconnect"},
        {"behaviour": "cut_body"},
        {"behaviour": "silence"},
    ],
)
async def test_secrets_never_show_in_an_error(reply: dict[str, Any]) -> None:
    """Neither the key, though the endpoint echoes it, nor the query of the URL, nor a piece of them."""
    key = SecretStr(KEY)
    settings: dict[str, Any] = {"max_retries": 0, "idle_timeout_seconds": 0.05}
    async with open_setup(always(**reply), path=f"?{QUERY}", api_key=key, **settings) as setup:
        with pytest.raises(ModelError) as caught:
            await setup.ask()
    error: BaseException | None = caught.value
    while error is not None:
        assert "canary" not in f"{error} {error!r}"
        error = error.__cause__


async def test_secret_is_hidden_though_encoded_text_is_not_guessed() -> None:
    """Only the value itself is replaced, so that the rest of a message stays readable."""
    other = base64.b64encode(b"harmless").decode()
    body = complaint(f"{other} {KEY} {other}")
    async with open_setup(always(body=body, status=400), api_key=SecretStr(KEY)) as setup:
        with pytest.raises(ModelRequestError) as caught:
            await setup.ask()
    assert str(caught.value).endswith(f"{other} *** {other}")


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "1000000000"}, 300.0),
        ({"retry-after": "Tue, 14 Nov 2023 22:13:27 GMT"}, 7.0),
        ({"retry-after": "Tue, 14 Nov 2023 22:13:00 GMT"}, None),
        ({"retry-after": "Tue, 14 Nov 2093 22:13:20 GMT"}, 300.0),
        ({"retry-after": "Tue, 99 Nov 2023 99:13:20 GMT"}, None),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after-ms": "x", "retry-after": "9"}, 9.0),
    ],
)
def test_pause_is_read_in_every_form(headers: dict[str, str], seconds: float | None) -> None:
    """Numbers, dates and milliseconds are understood; absurd values are capped or ignored."""
    assert retry_after_seconds(headers, wall_seconds=WALL_SECONDS) == seconds
