"""The service answers over HTTP what the library answers in Python."""

import json
import math
import warnings
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest

from forestall import NestedRehearsal, Problem, StagedRehearsal
from forestall.search import Search
from forestall.serve import Limits
from forestall.serve.questions import row_text
from serving import CONTEXT, TOKEN, post, served
from worlds import DOSING, LENDING, dosing, lending

QUICK = Search(n_screened=16, n_kept=4, n_starts=1, n_steps=2, n_draws=4, n_paths=4)
SHARES = ("probability", "lower", "upper", "no_action", "support")


@pytest.fixture(scope="module")
def policy():
    return NestedRehearsal().fit(LENDING, lending(150))


@pytest.fixture(scope="module")
def url(policy):
    with served(policy) as address:
        yield address


@pytest.fixture(scope="module")
def staged():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        method = StagedRehearsal(n_draws=4, n_paths=8, search=QUICK)
        return method.fit(DOSING, dosing(80))


@pytest.fixture(scope="module")
def staged_url(staged):
    with served(staged) as address:
        yield address


@pytest.fixture(scope="module")
def mixed():
    """A policy with categories, by text and by number."""
    rng = np.random.default_rng(0)
    n = 120
    history = {
        "job": rng.choice(["cook", "smith"], n),
        "grade": rng.integers(1, 4, n),
        "age": rng.uniform(20, 70, n),
        "dose": rng.uniform(0, 1, n),
    }
    history["effect"] = history["dose"] + rng.normal(0, 0.3, n)
    problem = Problem(
        context=["job", "grade", "age"],
        actions={"dose": (0, 1)},
        outcomes=["effect"],
        desired=["effect >= 0.5"],
        categorical=["grade"],
    )
    return NestedRehearsal().fit(problem, history)


def contexts(n, seed=1):
    history = lending(n, seed)
    rows = zip(history["score"].tolist(), history["debt"].tolist(), strict=True)
    return [{"score": score, "debt": debt} for score, debt in rows]


def columns(rows):
    return {name: [row[name] for row in rows] for name in rows[0]}


def assert_same(row, decision):
    expected = json.loads(row_text(decision))
    for name in SHARES:
        assert row[name] == pytest.approx(expected[name], abs=1e-9), name
    assert row["actions"] == pytest.approx(expected["actions"], abs=1e-7)
    for name in ("verdict", "extrapolates", "explanation"):
        assert row[name] == expected[name]


def test_recommends_what_the_library_recommends(url, policy):
    rows = contexts(40)
    answer = post(url, "recommend", {"contexts": rows})
    assert answer.status_code == 200
    told = answer.json()["decisions"]
    for row, decision in zip(told, policy.recommend(columns(rows)), strict=True):
        assert_same(row, decision)


def test_many_clients_at_once_get_each_their_own_answers(url, policy):
    rows = contexts(160)
    expected = policy.recommend(columns(rows))
    actions = {"rate": 0.25}
    given = policy.evaluate(columns(rows), actions)

    def ask(part):
        with httpx.Client(timeout=30) as client:
            for i in part.tolist():
                body = {"contexts": [rows[i]]}
                told = client.post(f"{url}/v1/recommend", json=body).json()
                assert_same(told["decisions"][0], expected[i])
                body["actions"] = actions
                told = client.post(f"{url}/v1/whatif", json=body).json()
                assert_same(told["decisions"][0], given[i])
        return len(part)

    with ThreadPoolExecutor(32) as pool:
        assert sum(pool.map(ask, np.array_split(range(160), 32))) == 160
    metrics = httpx.get(f"{url}/metrics").text
    batches = _metric(metrics, "forestall_batch_rows_count")
    assert _metric(metrics, "forestall_batch_rows_sum") > 1.5 * batches


def _metric(text, name):
    line = next(line for line in text.splitlines() if line.startswith(f"{name} "))
    return float(line.split()[1])


def test_assesses_one_action_for_all_or_one_for_each(url, policy):
    rows = contexts(3)
    each = [{"rate": 0.2}, {"rate": 0.5}, {"rate": 1.5}]
    told = post(url, "whatif", {"contexts": rows, "actions": each}).json()["decisions"]
    expected = policy.evaluate(columns(rows), columns(each))
    for row, decision in zip(told, expected, strict=True):
        assert_same(row, decision)
    assert told[2]["verdict"] == "abstain"
    assert "outside its feasible interval" in told[2]["explanation"]
    body = {"contexts": rows, "actions": each[:2]}
    answer = post(url, "whatif", body)
    assert answer.status_code == 422
    assert "one action for each of 3 contexts; got 2" in answer.json()["error"]


def test_no_contexts_are_no_decisions(url):
    assert post(url, "recommend", {"contexts": []}).json() == {"decisions": []}
    body = {"contexts": [], "actions": {"rate": 0.1}}
    assert post(url, "whatif", body).json() == {"decisions": []}


def test_a_context_that_cannot_be_read_abstains_beside_the_others(url, policy):
    rows = [CONTEXT, {"score": None, "debt": 1}, {"score": "high", "debt": True}]
    told = post(url, "recommend", {"contexts": rows}).json()["decisions"]
    assert_same(told[0], policy.recommend(CONTEXT)[0])
    assert [row["verdict"] for row in told[1:]] == ["abstain", "abstain"]
    assert told[1]["probability"] is None
    assert "Expected a finite number for 'score'; got nan" in told[1]["explanation"]
    assert "got 'high'" in told[2]["explanation"]


def test_other_columns_of_a_context_are_passed_over_as_in_the_library(url, policy):
    body = {"contexts": [{**CONTEXT, "id": "x-17"}]}
    (row,) = post(url, "recommend", body).json()["decisions"]
    assert_same(row, policy.recommend(CONTEXT)[0])


def test_the_landscape_over_one_action_is_what_evaluate_gives(url, policy):
    body = {"context": CONTEXT, "over": ["rate"], "points": 7}
    told = post(url, "landscape", body).json()
    grid = np.linspace(0, 1, 7)
    expected = policy.evaluate(columns([CONTEXT] * 7), {"rate": grid})
    assert told["over"] == ["rate"]
    assert told["axes"] == [grid.tolist()]
    for name in ("probability", "lower", "upper", "support"):
        np.testing.assert_allclose(told[name], getattr(expected, name), atol=1e-9)
    assert told["extrapolates"] == expected.extrapolates.tolist()
    assert told["no_action"] == pytest.approx(expected.no_action[0], abs=1e-9)


def test_the_landscape_over_two_actions_has_a_row_for_each_of_the_first(staged_url):
    body = {"context": {"age": 50}, "over": ["time", "dose"], "points": 3}
    told = post(staged_url, "landscape", body).json()
    assert told["axes"] == [[-1.0, 0.0, 1.0], [0.0, 1.0, 2.0]]
    map_ = np.array(told["probability"])
    assert map_.shape == (3, 3)
    line = {"context": {"age": 50}, "over": ["dose"], "at": {"time": 0}, "points": 3}
    along = post(staged_url, "landscape", line).json()
    assert along["at"] == {"time": 0.0}
    np.testing.assert_allclose(map_[1], along["probability"], atol=1e-9)


def test_the_landscape_holds_the_other_actions_as_recommended(staged_url, staged):
    body = {"context": {"age": 50}, "over": ["dose"], "points": 2}
    told = post(staged_url, "landscape", body).json()
    advised = staged.recommend({"age": 50})[0].actions
    assert told["at"] == pytest.approx({"time": advised["time"]})


def test_outcomes_are_drawn_and_never_records(staged_url, staged):
    body = {"context": {"age": 50}, "actions": {"dose": 1.0}, "draws": 301}
    told = post(staged_url, "outcomes", body).json()
    assert told["outcomes"] == ["effect"]
    draws = np.array(told["draws"])
    assert draws.shape == (301, 1)
    assert not set(draws[:, 0]) & set(staged.data.y_raw[:, 0])
    body["actions"] = {"dose": 0.0}
    less = np.array(post(staged_url, "outcomes", body).json()["draws"])
    assert less.mean() < draws.mean()


def test_outcomes_need_a_policy_that_simulates(url):
    answer = post(url, "outcomes", {"context": CONTEXT})
    assert answer.status_code == 422
    assert "learned a mechanism for each variable" in answer.json()["error"]


def test_actions_can_be_left_alone_where_the_method_can(staged_url, staged, url):
    body = {"contexts": [{"age": 50}], "only": ["dose"]}
    (row,) = post(staged_url, "recommend", body).json()["decisions"]
    assert_same(row, staged.recommend({"age": 50}, only=["dose"])[0])
    assert list(row["actions"]) == ["dose"]
    body = {"contexts": [{"age": 50}], "at_most": 1}
    (row,) = post(staged_url, "recommend", body).json()["decisions"]
    assert len(row["actions"]) == 1
    for contexts in ([{"age": 50}], []):
        body = {"contexts": contexts, "only": ["dos"]}
        answer = post(staged_url, "recommend", body)
        assert answer.status_code == 422
        assert "Did you mean 'dose'?" in answer.json()["error"]
    answer = post(url, "recommend", {"contexts": [CONTEXT], "at_most": 1})
    assert answer.status_code == 422
    assert "got KernelPolicy, which sets all of them" in answer.json()["error"]


@pytest.mark.parametrize(
    ("path", "body", "text"),
    [
        ("recommend", {"contexts": [{"score": 1}]}, "Expected the column 'debt'"),
        ("recommend", {"contexts": [{}]}, "Expected the column 'score'"),
        ("recommend", {"contexts": CONTEXT}, "In contexts: "),
        ("recommend", {"context": [CONTEXT]}, "In contexts: Field required"),
        ("recommend", {"contexts": [], "x": 1}, "In x: Extra inputs"),
        ("recommend", {"contexts": [{**CONTEXT, "score": [1]}]}, "got an array"),
        ("recommend", {"contexts": [{**CONTEXT, "score": 10**200}]}, "-1e+100 to"),
        ("recommend", {"contexts": [{**CONTEXT, "score": "x" * 1001}]}, "at most 1000"),
        ("recommend", {"contexts": [CONTEXT], "at_most": 1.5}, "a whole number"),
        ("whatif", {"contexts": [CONTEXT], "actions": {}}, "missing: rate"),
        ("whatif", {"contexts": [CONTEXT], "actions": {"rate": "1"}}, "got text"),
        ("whatif", {"contexts": [CONTEXT], "actions": {"rate": True}}, "a boolean"),
        ("whatif", {"contexts": [CONTEXT], "actions": {"rate": None}}, "got null"),
        (
            "whatif",
            {"contexts": [CONTEXT], "actions": {"rate": 1, "rat": 1}},
            "got 'rat'. Did you mean 'rate'?",
        ),
        ("landscape", {"context": CONTEXT, "over": []}, "In over: "),
        ("landscape", {"context": CONTEXT, "over": ["rat"]}, "Did you mean 'rate'?"),
        ("landscape", {"context": CONTEXT, "over": ["rate"] * 2}, "two different ones"),
        (
            "landscape",
            {"context": CONTEXT, "over": ["rate"], "points": 101},
            "In points: ",
        ),
        (
            "landscape",
            {"context": {"score": None, "debt": 1}, "over": ["rate"]},
            "Expected a finite number for 'score'",
        ),
    ],
)
def test_a_body_that_does_not_fit_is_told_why(url, path, body, text):
    answer = post(url, path, body)
    assert answer.status_code == 422, answer.text
    assert list(answer.json()) == ["error"]
    assert text in answer.json()["error"]


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e999", "9" * 400])
def test_numbers_that_cannot_be_computed_with_are_refused(url, value):
    text = f'{{"contexts": [{{"score": {value}, "debt": 1}}]}}'
    headers = {"content-type": "application/json"}
    answer = httpx.post(f"{url}/v1/recommend", content=text, headers=headers)
    assert answer.status_code == 422
    assert value[:9] not in answer.text


def test_answers_never_hold_what_json_cannot(url, staged_url):
    def refused(constant):
        raise AssertionError(constant)

    body = {"contexts": [{"score": 1e99, "debt": -1e99}, {"score": None, "debt": None}]}
    told = json.loads(post(url, "recommend", body).text, parse_constant=refused)
    assert [row["verdict"] for row in told["decisions"]] == ["abstain", "abstain"]
    body["actions"] = {"rate": 1e99}
    told = json.loads(post(url, "whatif", body).text, parse_constant=refused)
    assert len(told["decisions"]) == 2
    body = {"context": {"age": 1e99}, "actions": {"dose": -1e99}, "draws": 3}
    answer = post(staged_url, "outcomes", body)
    assert answer.status_code == 200
    json.loads(answer.text, parse_constant=refused)


def test_an_absurd_request_does_not_touch_those_beside_it(url, policy):
    expected = policy.evaluate(CONTEXT, {"rate": 0.4})[0]
    absurd = {"contexts": [{"score": 1e99, "debt": -1e99}], "actions": {"rate": 1e99}}
    sound = {"contexts": [CONTEXT], "actions": {"rate": 0.4}}
    with ThreadPoolExecutor(16) as pool:
        bodies = [absurd, sound] * 16
        answers = list(pool.map(lambda body: post(url, "whatif", body), bodies))
    assert all(answer.status_code == 200 for answer in answers)
    for answer in answers[1::2]:
        assert_same(answer.json()["decisions"][0], expected)


def test_the_policy_is_told_without_any_record(url, policy):
    told = httpx.get(f"{url}/v1/policy").json()
    assert told["method"] == "NestedRehearsal"
    assert told["records"] == 150
    assert [field["name"] for field in told["contexts"]] == ["score", "debt"]
    assert told["actions"][0]["name"] == "rate"
    assert (told["actions"][0]["low"], told["actions"][0]["high"]) == (0.0, 1.0)
    assert told["outcomes"] == ["repaid", "roi"]
    assert told["desired"] == "repaid >= 0.6 and roi >= 0.3"
    assert [each["text"] for each in told["constraints"]] == [
        "repaid >= 0.6",
        "roi >= 0.3",
    ]
    assert told["identification"].startswith("Compared: records that are alike in")
    score = told["contexts"][0]
    values = np.asarray(lending(150)["score"])
    low, high = np.quantile(values, [0.05, 0.95])
    assert score["low"] == pytest.approx(low, abs=0.06)
    assert score["high"] == pytest.approx(high, abs=0.06)
    records = {value for column in lending(150).values() for value in column.tolist()}
    assert not records & set(_numbers(told))


def _numbers(told):
    if isinstance(told, dict):
        told = list(told.values())
    if isinstance(told, list):
        return [number for each in told for number in _numbers(each)]
    return [told] if isinstance(told, float) else []


def test_categories_are_told_by_name_and_read_back(mixed):
    with served(mixed) as url:
        fields = httpx.get(f"{url}/v1/policy").json()["contexts"]
        assert [field["kind"] for field in fields] == ["category", "category", "number"]
        assert fields[0]["categories"] == ["cook", "smith"]
        assert fields[1]["categories"] == [1, 2, 3]
        typical = {field["name"]: field["typical"] for field in fields}
        (row,) = post(url, "recommend", {"contexts": [typical]}).json()["decisions"]
        assert_same(row, mixed.recommend(typical)[0])
        body = {"context": {**typical, "job": "baker"}, "over": ["dose"]}
        answer = post(url, "landscape", body)
        assert answer.status_code == 422
        assert "Expected a known category for 'job'" in answer.json()["error"]
        body["context"] = {**typical, "grade": True}
        assert post(url, "landscape", body).status_code == 422


def test_health_says_which_policy_is_served(url, staged_url):
    told = httpx.get(f"{url}/healthz").json()
    assert told["status"] == "ready"
    other = httpx.get(f"{staged_url}/healthz").json()
    assert told["fingerprint"] != other["fingerprint"]
    assert told["fingerprint"] == httpx.get(f"{url}/v1/policy").json()["fingerprint"]


def test_metrics_count_requests_by_path_and_status(url):
    def count(path, status):
        text = httpx.get(f"{url}/metrics").text
        label = f'path="{path}",status="{status}"'
        lines = [x for x in text.splitlines() if "requests_total" in x and label in x]
        return sum(float(line.split()[-1]) for line in lines)

    before = count("/v1/recommend", 422), count("other", 404)
    post(url, "recommend", {})
    httpx.get(f"{url}/a/name/of/somebody")
    assert count("/v1/recommend", 422) == before[0] + 1
    assert count("other", 404) == before[1] + 1
    assert "somebody" not in httpx.get(f"{url}/metrics").text


def test_every_error_has_one_shape(url):
    for answer in (
        httpx.get(f"{url}/nothing"),
        httpx.get(f"{url}/v1/recommend"),
        httpx.post(f"{url}/healthz"),
        httpx.post(f"{url}/v1/recommend", content=b"{}"),
        httpx.get(f"{url}/static/nothing.js"),
        httpx.get(f"{url}/static/..%2Fapp.py"),
    ):
        assert 400 <= answer.status_code < 500
        assert list(answer.json()) == ["error"]
        assert answer.headers["content-type"] == "application/json"


def test_every_answer_carries_headers_that_keep_browsers_strict(url):
    for path in ("/healthz", "/v1/policy", "/nothing", "/static/plotly.min.js"):
        headers = httpx.get(url + path).headers
        assert headers["content-security-policy"].startswith("default-src 'self';")
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-request-id"]
        assert "server" not in headers


def test_static_files_are_sent_once_and_then_confirmed(url):
    answer = httpx.get(f"{url}/static/plotly.min.js")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/javascript")
    headers = {"if-none-match": answer.headers["etag"]}
    again = httpx.get(f"{url}/static/plotly.min.js", headers=headers)
    assert (again.status_code, again.content) == (304, b"")


def test_a_token_guards_everything_that_tells_of_the_policy(policy):
    body = {"contexts": [CONTEXT]}
    right = {"authorization": f"Bearer {TOKEN}"}
    wrong = [{}, {"authorization": "Bearer no"}, {"authorization": f"Basic {TOKEN}"}]
    wrong += [{"authorization": f"Bearer {TOKEN}x"}, {"authorization": "Bearer \xff"}]
    with served(policy, token=TOKEN) as url:
        for headers in wrong:
            pairs = [(k, v.encode("latin-1")) for k, v in headers.items()]
            for path in ("/v1/policy", "/metrics", "/openapi.json", "/nothing"):
                answer = httpx.get(url + path, headers=pairs)
                assert answer.status_code == 401
                assert answer.headers["www-authenticate"] == "Bearer"
                assert "Authorization: Bearer TOKEN" in answer.json()["error"]
            assert post(url, "recommend", body, headers=pairs).status_code == 401
        assert post(url, "recommend", body, headers=right).status_code == 200
        assert httpx.get(f"{url}/openapi.json", headers=right).status_code == 200
        assert httpx.get(f"{url}/healthz").status_code == 200
        assert httpx.get(f"{url}/static/plotly.min.js").status_code == 200


def test_without_a_token_only_this_machine_is_answered(url, policy):
    # A page elsewhere may point a name of its own at this machine.
    answer = httpx.get(f"{url}/v1/policy", headers={"host": "evil.example"})
    assert answer.status_code == 421
    assert "start the service with a token" in answer.json()["error"]
    for host in ("localhost", "localhost:80", "127.0.0.1:9", "[::1]:80"):
        answer = httpx.get(f"{url}/healthz", headers={"host": host})
        assert answer.status_code == 200
    with served(policy, token=TOKEN) as other:
        headers = {"host": "bank.example", "authorization": f"Bearer {TOKEN}"}
        assert httpx.get(f"{other}/v1/policy", headers=headers).status_code == 200


def test_a_body_that_is_not_called_json_is_refused(url):
    headers = {"content-type": "text/plain"}
    answer = httpx.post(f"{url}/v1/recommend", content=b"{}", headers=headers)
    assert answer.status_code == 415
    assert "application/json" in answer.json()["error"]


def test_limits_are_kept_and_told(policy):
    limits = Limits(body_bytes=2_000, rows=20)
    with served(policy, limits=limits) as url:
        assert post(url, "recommend", {"contexts": [CONTEXT] * 20}).status_code == 200
        answer = post(url, "recommend", {"contexts": [CONTEXT] * 21})
        assert answer.status_code == 413
        assert "at most 20 contexts in one request; got 21" in answer.json()["error"]
        answer = post(url, "recommend", {"contexts": [CONTEXT] * 200})
        assert answer.status_code == 413
        assert "at most 2000 bytes" in answer.json()["error"]
        body = {"context": CONTEXT, "over": ["rate"], "points": 21}
        answer = post(url, "landscape", body)
        assert answer.status_code == 413
        assert "at most 20 points" in answer.json()["error"]
        parts = iter([b'{"contexts": ['] + [b"{}, " * 500] * 3)
        headers = {"content-type": "application/json"}
        answer = httpx.post(f"{url}/v1/recommend", content=parts, headers=headers)
        assert answer.status_code == 413


@pytest.mark.parametrize("bad", [{"rows": 0}, {"seconds": math.inf}, {"queue": 1.5}])
def test_limits_are_checked(bad):
    (name,) = bad
    with pytest.raises(ValueError, match=f"above zero for the limit {name}; got"):
        Limits(**bad)


def test_ten_thousand_contexts_fit_in_one_request(url, policy):
    rows = contexts(10_000)
    answer = post(url, "recommend", {"contexts": rows})
    assert answer.status_code == 200
    told = answer.json()["decisions"]
    assert len(told) == 10_000
    expected = policy.recommend(columns(rows[-50:]))
    for row, decision in zip(told[-50:], expected, strict=True):
        assert_same(row, decision)
