"""The OpenAPI document says what the service does, and the service does it.

``FORESTALL_FUZZ=10000`` makes up so many requests to every endpoint.
"""

import warnings

import httpx
import pytest
from hypothesis import HealthCheck, given, settings

from forestall import NestedRehearsal, Search, StagedRehearsal
from fuzzing import tries
from serving import TOKEN, post, served
from worlds import DOSING, LENDING, dosing, lending

schemathesis = pytest.importorskip("schemathesis", reason="needs schemathesis")

SETTINGS = settings(
    max_examples=tries(20),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    database=None,
)
QUICK = Search(n_screened=8, n_kept=2, n_starts=1, n_steps=2, n_draws=2, n_paths=4)


def nested():
    return NestedRehearsal().fit(LENDING, lending(60))


def staged():
    """Two actions, of which some may be left alone, and outcomes to be drawn."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        method = StagedRehearsal(n_draws=2, n_paths=4, search=QUICK)
        return method.fit(DOSING, dosing(60))


ASKED = ("/v1/recommend", "/v1/whatif", "/v1/landscape")
TOLD = ("/v1/policy", "/healthz", "/metrics")
POLICIES = {
    "nested": (nested, ASKED),
    "staged": (staged, (*ASKED, "/v1/outcomes")),
}


@pytest.fixture(scope="module", params=POLICIES)
def which(request):
    return request.param


@pytest.fixture(scope="module")
def url(which):
    fitted, _ = POLICIES[which]
    with served(fitted()) as address:
        yield address


@pytest.fixture(scope="module")
def document(url):
    return schemathesis.openapi.from_url(f"{url}/openapi.json")


@pytest.mark.parametrize("mode", ["positive", "negative"])
@pytest.mark.parametrize("path", [*ASKED, "/v1/outcomes", *TOLD])
def test_every_answer_is_as_the_document_says(document, which, path, mode):
    _, asked = POLICIES[which]
    if path not in (*asked, *TOLD):
        assert path not in list(document)
        return
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


def test_every_example_in_the_document_is_answered(url, which):
    document = httpx.get(f"{url}/openapi.json").json()
    bodies = {
        path: operations["post"]["requestBody"]["content"]["application/json"]
        for path, operations in document["paths"].items()
        if "post" in operations
    }
    assert tuple(bodies) == POLICIES[which][1]
    for path, content in bodies.items():
        for example in content["examples"].values():
            answer = post(url, path.removeprefix("/v1/"), example["value"])
            assert answer.status_code == 200


def body_of(document, path):
    content = document["paths"][path]["post"]["requestBody"]["content"]
    return content["application/json"]["schema"]["properties"]


def test_the_document_names_what_the_policy_names(url, which):
    document = httpx.get(f"{url}/openapi.json").json()
    problem = {"nested": LENDING, "staged": DOSING}[which]
    properties = body_of(document, "/v1/whatif")
    assert properties["contexts"]["items"]["required"] == list(problem.context)
    one, _ = properties["actions"]["anyOf"]
    assert one["required"] == list(problem.actions)
    errors = document["paths"]["/v1/whatif"]["post"]["responses"]
    assert {"401", "413", "422", "429", "503"} <= set(errors)
    assert "securitySchemes" not in document["components"]


def test_only_a_policy_that_can_leave_actions_alone_is_asked_to(url, which):
    document = httpx.get(f"{url}/openapi.json").json()
    extra = set(body_of(document, "/v1/recommend")) - {"contexts"}
    assert extra == ({"only", "at_most"} if which == "staged" else set())


def test_the_document_asks_for_the_token_where_there_is_one():
    with served(nested(), token=TOKEN) as url:
        headers = {"authorization": f"Bearer {TOKEN}"}
        document = httpx.get(f"{url}/openapi.json", headers=headers).json()
    assert document["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    assert document["paths"]["/v1/policy"]["get"]["security"] == [{"token": []}]
    assert "security" not in document["paths"]["/healthz"]["get"]
