"""Files that are cut, flipped or made to harm: a clear error, or a policy.

``FORESTALL_FUZZ=10000`` runs every one of these so many times.
"""

import copy
import io
import json
import struct
import zipfile

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forestall import baselines, store
from forestall.errors import StoreError
from forestall.method import Policy
from fuzzing import tries
from stored import CONTEXTS, DATA, PROBLEM, history, told

often = settings(
    max_examples=tries(25),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
STORED = sorted(path.stem for path in DATA.glob("*.forestall"))
NUMBERS = (0, -1, 3, 2**31, 2**63, 2**64, 10**400, -(10**400), 0.5, 1e308)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.sampled_from(NUMBERS)
    | st.text(max_size=8)
    | st.sampled_from(["nan", "os.system", "problem.Problem", "history.Fingerprint"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["array", "object", "float", "list", "dict", "slice", "class", "fields"]
            )
            | st.text(max_size=4),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def policy():
    return baselines.NoAction().fit(PROBLEM, history())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("hostile")


@pytest.fixture(scope="module")
def members(policy, folder):
    return read_members(policy.save(folder / "sound"))


@pytest.fixture(scope="module")
def sound(policy, folder):
    return policy.save(folder / "sound").read_bytes()


@pytest.fixture(scope="module")
def document(members):
    return json.loads(members["policy.json"])


class Kept:
    """A sound file, and what it consists of."""

    def __init__(self, path):
        """Read it."""
        self.content = path.read_bytes()
        self.members = read_members(path)
        self.document = json.loads(self.members["policy.json"])
        self.told = told(store.load(path))


@pytest.fixture(scope="module", params=["no-action", *STORED])
def kept(request, policy, folder):
    if request.param in STORED:
        return Kept(DATA / f"{request.param}.forestall")
    return Kept(policy.save(folder / "sound"))


def read_members(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(members, **options):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", **options) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


def with_document(members, document):
    text = document if isinstance(document, bytes) else json.dumps(document).encode()
    return packed(members | {"policy.json": text})


def loaded(folder, content):
    """Load what was made; an error must be ours, and clear."""
    path = folder / "made"
    path.write_bytes(content)
    found = [outcome(store.load, path, mmap=mmap) for mmap in (False, True)]
    assert type(found[0]) is type(found[1])
    about = outcome(store.about, path)
    for each in (*found, about):
        if isinstance(each, StoreError):
            assert str(each).startswith("Expected ")
            assert len(str(each)) < 2000
    if isinstance(found[0], StoreError):
        return None
    assert isinstance(found[0], Policy)
    assert isinstance(about, dict)
    return found[0]


def outcome(read, path, **options):
    try:
        return read(path, **options)
    except StoreError as error:
        return error


def refused(folder, content, said):
    path = folder / "made"
    path.write_bytes(content)
    with pytest.raises(StoreError, match=said):
        store.load(path)


@often
@given(data=st.data())
def test_a_file_that_was_cut_is_refused(folder, kept, data):
    size = data.draw(st.integers(0, len(kept.content) - 1))
    assert loaded(folder, kept.content[:size]) is None


@often
@given(data=st.data())
def test_a_flipped_bit_is_noticed_or_changes_nothing(folder, kept, data):
    bit = data.draw(st.integers(0, 8 * len(kept.content) - 1))
    content = bytearray(kept.content)
    content[bit // 8] ^= 1 << bit % 8
    found = loaded(folder, bytes(content))
    if found is not None:
        assert told(found) == kept.told


@often
@given(data=st.data())
def test_bytes_that_were_overwritten_are_noticed_or_change_nothing(folder, kept, data):
    at = data.draw(st.integers(0, len(kept.content) - 1))
    content = kept.content[:at] + data.draw(st.binary(min_size=1, max_size=64))
    content += kept.content[len(content) :]
    found = loaded(folder, content)
    if found is not None:
        assert told(found) == kept.told


@often
@given(content=st.binary(max_size=200))
def test_arbitrary_bytes_are_refused(folder, content):
    assert loaded(folder, content) is None


def places(value, path=()):
    """List every place in a document."""
    yield path
    if isinstance(value, dict | list):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in pairs:
            yield from places(inner, (*path, key))


@often
@given(data=st.data())
def test_a_document_with_other_values_is_refused_or_is_a_policy(folder, kept, data):
    made = copy.deepcopy(kept.document)
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from([p for p in places(made) if p]))
        holder = made
        for key in path[:-1]:
            holder = holder[key]
        if data.draw(st.booleans()):
            holder[path[-1]] = data.draw(JSON)
        else:
            del holder[path[-1]]
    loaded(folder, with_document(kept.members, made))


@often
@given(data=st.data())
def test_objects_that_refer_to_others_at_will_are_refused_or_are_a_policy(
    folder, kept, data
):
    made = copy.deepcopy(kept.document)
    spots = [p for p in places(made["objects"]) if p and p[-1] in ("object", "array")]
    for path in data.draw(st.lists(st.sampled_from(spots), min_size=1, max_size=3)):
        holder = made["objects"]
        for key in path[:-1]:
            holder = holder[key]
        holder[path[-1]] = data.draw(st.integers(-2, len(made["objects"])))
    loaded(folder, with_document(kept.members, made))


def header(member):
    return member[10:].partition(b"}")[0]


@often
@given(data=st.data())
def test_members_that_are_not_what_the_document_says_are_refused(folder, kept, data):
    name = data.draw(st.sampled_from([k for k in kept.members if k != "policy.json"]))
    content = kept.members[name]
    other = data.draw(
        st.sampled_from([b"", content[:-1], content + b"\0", content[:9]])
        | st.binary(max_size=100)
        | st.sampled_from(
            [v for v in kept.members.values() if header(v) != header(content)]
        )
    )
    assert loaded(folder, packed(kept.members | {name: other})) is None


def test_compressed_members_are_refused(folder, members):
    content = packed(members, compression=zipfile.ZIP_DEFLATED)
    refused(folder, content, "got a compressed member")


def test_a_bomb_is_refused_before_it_goes_off(folder, members, document):
    made = copy.deepcopy(document)
    made["arrays"][0]["shape"] = [2**38]
    zeros = {made["arrays"][0]["name"]: bytes(1 << 20)}
    refused(folder, with_document(members | zeros, made), "got no array in")
    content = packed(members | zeros, compression=zipfile.ZIP_DEFLATED)
    refused(folder, content, "got a compressed member")


@pytest.mark.parametrize(
    "shape", [[2**41], [2**21, 2**21], [0, 2**41], [-1], [1.0], [True], "3", [1] * 9]
)
def test_impossible_shapes_are_refused(folder, members, document, shape):
    made = copy.deepcopy(document)
    made["arrays"][0]["shape"] = shape
    refused(folder, with_document(members, made), "got an array")


def test_a_header_and_a_document_that_lie_alike_are_held_against_the_bytes(
    folder, members, document
):
    made = copy.deepcopy(document)
    entry = made["arrays"][0]
    entry["shape"] = [2**20, 2]
    header = repr(
        {"descr": entry["dtype"], "fortran_order": False, "shape": (2**20, 2)}
    ).encode()
    raw = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header) + 1) + header + b"\n"
    content = with_document(members | {entry["name"]: raw + bytes(16)}, made)
    refused(folder, content, "got 16 bytes for an array of 16777216")


@pytest.mark.parametrize("dtype", ["|O", "|V8", "<M8[s]", ">f8", "<U5", "f8", "<f16"])
def test_arrays_of_anything_but_numbers_are_refused(folder, members, document, dtype):
    made = copy.deepcopy(document)
    made["arrays"][0]["dtype"] = dtype
    said = "got an array that does not consist of plain numbers"
    refused(folder, with_document(members, made), said)


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 100_000,
        b'{"format":' * 50_000,
        b'{"format": ' + b"9" * 5000 + b"}",
        b'{"format": NaN}',
        b"\xff\xfe",
        b"",
        b"null",
        b'{"format": true}',
        b'{"format": 1}',
    ],
    ids=range(9),
)
def test_documents_that_are_none_are_refused(folder, members, text):
    refused(folder, with_document(members, text), "got a policy.json")


def test_lists_within_lists_are_refused(folder, members, document):
    made = copy.deepcopy(document)
    deep = []
    for _ in range(500):
        deep = [deep]
    made["objects"][0]["fields"]["texts"] = deep
    refused(folder, with_document(members, made), "got lists within lists")


@pytest.mark.parametrize(
    "name", ["os.system", "builtins.eval", "observations.np", "method.Policy", ""]
)
def test_classes_that_are_not_known_are_refused(folder, members, document, name):
    made = copy.deepcopy(document)
    made["objects"][0]["class"] = name
    refused(folder, with_document(members, made), "got an object of an unknown class")


def test_an_object_cannot_refer_to_itself(folder, members, document):
    made = copy.deepcopy(document)
    made["objects"][0]["fields"]["texts"] = [{"object": 0}]
    refused(folder, with_document(members, made), "got a reference to no object, 0")


def test_values_of_another_type_are_refused_by_the_name_of_the_field(
    folder, members, document
):
    made = copy.deepcopy(document)
    made["objects"][-1]["fields"]["kernel"] = 3
    said = r"NoActionPolicy whose kernel is not what it should be\. Save it anew"
    refused(folder, with_document(members, made), said)


def test_a_field_that_nobody_knows_is_refused(folder, members, document):
    made = copy.deepcopy(document)
    made["objects"][-1]["fields"]["extra"] = 3
    refused(folder, with_document(members, made), "with an unknown field, 'extra'")


def test_a_field_that_is_missing_is_refused(folder, members, document):
    made = copy.deepcopy(document)
    del made["objects"][-1]["fields"]["ridge"]
    refused(folder, with_document(members, made), "NoActionPolicy without ridge")


def test_arrays_whose_shapes_do_not_agree_are_refused(folder, members, document):
    made = copy.deepcopy(document)
    horizon = next(o for o in made["objects"] if o["class"] == "support.Horizon")
    bounds = next(o for o in made["objects"] if o["class"] == "observations.Schema")
    horizon["fields"]["lower"] = bounds["fields"]["bounds"]
    said = "support.Horizon whose lower is not what it should be"
    refused(folder, with_document(members, made), said)


def test_hyperparameters_check_themselves(folder):
    members = read_members(DATA / "format-1-nested.forestall")
    made = json.loads(members["policy.json"])
    ascent = next(o for o in made["objects"] if o["class"] == "ascent.Ascent")
    ascent["fields"]["n_steps"] = -3
    said = r"got ascent\.Ascent that is refused \(Expected n_steps"
    refused(folder, with_document(members, made), said)


def test_a_problem_that_makes_no_sense_is_refused(folder, members, document):
    for desired in (["effect >= "], ["(" * 5000], ["effect >= 2", "effect <= 1"]):
        made = copy.deepcopy(document)
        made["problem"]["desired"] = desired
        refused(folder, with_document(members, made), "a problem that is refused")


def test_members_besides_those_listed_are_refused(folder, members):
    content = packed(members | {"run.py": b"print()"})
    refused(folder, content, "got other members than its policy.json lists")


def test_a_long_directory_is_refused_before_it_is_read(folder, sound):
    end = bytearray(sound[-22:])
    end[12:16] = struct.pack("<I", 1 << 30)
    refused(folder, sound[:-22] + bytes(end), "got a directory of 1073741824 bytes")


def test_truth_values_other_than_zero_and_one_are_refused(folder, members, document):
    entry = next(e for e in document["arrays"] if e["dtype"] == "|b1")
    content = members[entry["name"]][:-1] + b"\x07"
    said = "got truth values that are none"
    refused(folder, packed(members | {entry["name"]: content}), said)


def test_a_zip_made_by_hand_is_read_as_well(folder, members, policy):
    found = loaded(folder, packed(members))
    assert np.array_equal(
        found.evaluate(CONTEXTS, {"dose": 1.0}).probability,
        policy.evaluate(CONTEXTS, {"dose": 1.0}).probability,
    )
