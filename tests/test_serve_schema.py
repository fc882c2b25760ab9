"""The OpenAPI document says what the service does, and the service does it."""

import httpx
import pytest
from hypothesis import HealthCheck, given, settings

from forestall import NestedRehearsal
from serving import TOKEN, post, served
from worlds import LENDING, lending

schemathesis = pytest.importorskip("schemathesis", reason="needs schemathesis")

SETTINGS = settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    database=None,
)


@pytest.fixture(scope="module")
def url():
    with served(NestedRehearsal().fit(LENDING, lending(60))) as address:
        yield address


@pytest.fixture(scope="module")
def document(url):
    return schemathesis.openapi.from_url(f"{url}/openapi.json")


PATHS = ("recommend", "whatif", "landscape", "policy")


@pytest.mark.parametrize("mode", ["positive", "negative"])
@pytest.mark.parametrize("path", [*(f"/v1/{name}" for name in PATHS), "/healthz"])
def test_every_answer_is_as_the_document_says(document, path, mode):
    operation = next(iter(document[path].values()))
    mode = schemathesis.GenerationMode(mode)
    if mode.is_negative and not operation.body:
        return

    @SETTINGS
    @given(case=operation.as_strategy(generation_mode=mode))
    def check(case):
        answer = case.call(timeout=30)
        # No schema can say that two arrays have one length.
        told = case.body if isinstance(case.body, dict) else {}
        if mode.is_positive and isinstance(told.get("actions"), list):
            assert answer.status_code in (200, 422)
            return
        case.validate_response(answer)
        expected = (200,) if mode.is_positive else (400, 413, 415, 422)
        assert answer.status_code in expected, answer.text

    check()


def test_every_example_in_the_document_is_answered(url):
    document = httpx.get(f"{url}/openapi.json").json()
    bodies = {
        path: operations["post"]["requestBody"]["content"]["application/json"]
        for path, operations in document["paths"].items()
        if "post" in operations
    }
    assert set(bodies) == {"/v1/recommend", "/v1/whatif", "/v1/landscape"}
    for path, content in bodies.items():
        for example in content["examples"].values():
            answer = post(url, path.removeprefix("/v1/"), example["value"])
            assert answer.status_code == 200


def test_the_document_names_what_the_policy_names(url):
    document = httpx.get(f"{url}/openapi.json").json()
    content = document["paths"]["/v1/whatif"]["post"]["requestBody"]["content"]
    properties = content["application/json"]["schema"]["properties"]
    assert properties["contexts"]["items"]["required"] == ["score", "debt"]
    errors = document["paths"]["/v1/whatif"]["post"]["responses"]
    assert {"401", "413", "422", "429", "503"} <= set(errors)
    assert "securitySchemes" not in document["components"]


def test_the_document_asks_for_the_token_where_there_is_one():
    policy = NestedRehearsal().fit(LENDING, lending(60))
    with served(policy, token=TOKEN) as url:
        headers = {"authorization": f"Bearer {TOKEN}"}
        document = httpx.get(f"{url}/openapi.json", headers=headers).json()
    assert document["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    assert document["paths"]["/v1/policy"]["get"]["security"] == [{"token": []}]
    assert "security" not in document["paths"]["/healthz"]["get"]
