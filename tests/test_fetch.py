"""Downloads, from a real server that cuts, forgets, refuses and serves wrong files."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from forestall.data import fetch as fetching
from forestall.data.fetch import fetch
from forestall.errors import DataError
from transport import published, write_xpt

TABLE = {"SEQN": np.arange(1.0, 2001.0), "LBXGH": np.linspace(4.0, 9.0, 2000).round(1)}
PART = ".GHB_J.XPT.part"


class Handler(BaseHTTPRequestHandler):
    """Serve ``server.files``, as ``server.moods`` say, one for each request."""

    def do_GET(self):
        server = self.server
        server.asked.append(self.headers.get("Range"))
        mood = server.moods.pop(0) if server.moods else "well"
        data = server.files.get(self.path.strip("/"))
        if data is None or isinstance(mood, int):
            return self.send_error(404 if data is None else mood)
        start = self.start(mood)
        if start > 0 and start >= len(data):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(data)}")
            self.send_header("Content-Length", "0")
            return self.end_headers()
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/999")
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        body = data[start:]
        self.wfile.write(body[: len(body) // 2] if mood == "cut" else body)
        self.close_connection = True

    def start(self, mood):
        asked = self.headers.get("Range")
        forgetful = asked is None or mood == "no ranges"
        return 0 if forgetful else int(asked.removeprefix("bytes=").rstrip("-"))

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.files, server.moods, server.asked = {}, [], []
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def whole(tmp_path):
    table = {k: v.tolist() for k, v in TABLE.items()}
    return write_xpt(tmp_path / "original.xpt", table).read_bytes()


@pytest.fixture
def file(server, whole):
    server.files["GHB_J.xpt"] = whole
    address = f"http://127.0.0.1:{server.server_port}/GHB_J.xpt"
    return published("GHB_J.XPT", address, TABLE)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "data" / "nhanes"


def get(file, folder):
    told = []
    paths = fetch([file], folder, told.append, pause=0.001)
    assert told == [file.file]
    return paths[0]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_downloaded_and_nothing_else_is_left(file, folder, whole):
    assert get(file, folder).read_bytes() == whole
    assert names(folder) == ["GHB_J.XPT"]


def test_a_file_that_is_there_is_not_asked_for_again(file, folder, server):
    get(file, folder)
    get(file, folder)
    assert server.asked == [None]


def test_a_file_that_is_there_but_damaged_is_replaced(file, folder, whole):
    get(file, folder).write_bytes(whole[:800])
    assert get(file, folder).read_bytes() == whole


def test_a_connection_that_is_cut_is_gone_on_with(file, folder, server, whole):
    server.moods = ["cut", "cut"]
    assert get(file, folder).read_bytes() == whole
    n = len(whole)
    assert server.asked == [None, f"bytes={n // 2}-", f"bytes={n // 2 + n // 4}-"]


def test_what_an_earlier_run_has_left_is_gone_on_with(file, folder, server, whole):
    folder.mkdir(parents=True)
    (folder / PART).write_bytes(whole[:1000])
    assert get(file, folder).read_bytes() == whole
    assert server.asked == ["bytes=1000-"]
    assert names(folder) == ["GHB_J.XPT"]


def test_a_server_without_ranges_sends_all_of_it_again(file, folder, server, whole):
    server.moods = ["cut", "no ranges"]
    assert get(file, folder).read_bytes() == whole


def test_a_part_that_is_already_whole_is_taken(file, folder, server, whole):
    folder.mkdir(parents=True)
    (folder / PART).write_bytes(whole)
    assert get(file, folder).read_bytes() == whole
    assert server.asked == [f"bytes={len(whole)}-"]


@pytest.mark.parametrize("length", [1000, 10**6])
def test_a_part_of_another_file_is_thrown_away(file, folder, whole, length):
    folder.mkdir(parents=True)
    (folder / PART).write_bytes(b"?" * length)
    assert get(file, folder).read_bytes() == whole


def test_a_busy_server_is_asked_again(file, folder, server, whole):
    server.moods = [503, 429]
    assert get(file, folder).read_bytes() == whole
    assert len(server.asked) == 3


def test_a_server_that_keeps_cutting_is_given_up_and_the_part_kept(
    file, folder, server, whole
):
    server.moods = ["cut"] * fetching.ATTEMPTS
    message = r"Expected to download http://127.*GHB_J\.xpt; got: the connection broke"
    with pytest.raises(DataError, match=message):
        get(file, folder)
    assert names(folder) == [PART]
    assert get(file, folder).read_bytes() == whole
    assert server.asked[-1].startswith("bytes=")


def test_a_file_that_the_publisher_lacks_is_asked_for_once(file, folder, server):
    server.files.clear()
    with pytest.raises(DataError, match=r"GHB_J\.xpt; got: HTTP 404 .*FORESTALL_DATA"):
        get(file, folder)
    assert len(server.asked) == 1
    assert names(folder) == []


def test_a_server_that_is_not_there_is_named(file, folder, server):
    server.server_close()
    with pytest.raises(DataError, match=r"GHB_J\.xpt; got: .*(refused|reset|timed)"):
        get(file, folder)


def other(tmp_path, **columns):
    table = {k: v.tolist() for k, v in {**TABLE, **columns}.items()}
    return write_xpt(tmp_path / "other.xpt", table).read_bytes()


def test_a_page_instead_of_the_file_is_refused_and_not_kept(file, folder, server):
    server.files["GHB_J.xpt"] = b"<html>Page not found</html>"
    message = r"GHB_J\.XPT at http://127.*; got another file\. .*begins with b'<html>"
    with pytest.raises(DataError, match=message):
        get(file, folder)
    assert names(folder) == []


def test_other_values_are_refused_and_not_kept(file, folder, server, tmp_path):
    changed = TABLE["LBXGH"] + 0.1
    server.files["GHB_J.xpt"] = other(tmp_path, LBXGH=changed)
    with pytest.raises(DataError, match=r"published values in GHB_J\.XPT, .*SHA-256"):
        get(file, folder)
    assert names(folder) == []


def test_other_rows_are_refused(file, folder, server, tmp_path):
    short = {k: v[:-1] for k, v in TABLE.items()}
    server.files["GHB_J.xpt"] = other(tmp_path, **short)
    with pytest.raises(DataError, match=r"Expected 2000 rows in GHB_J\.XPT.*got 1999"):
        get(file, folder)


def test_a_wrong_file_never_replaces_a_file(file, folder, server, tmp_path):
    folder.mkdir(parents=True)
    (folder / "GHB_J.XPT").write_bytes(b"mine")
    server.files["GHB_J.xpt"] = b"theirs"
    with pytest.raises(DataError, match="another file"):
        get(file, folder)
    assert (folder / "GHB_J.XPT").read_bytes() == b"mine"


def test_more_columns_and_another_order_of_rows_are_the_same_file(
    file, folder, server, tmp_path
):
    order = np.random.default_rng(0).permutation(2000)
    table = {k: v[order] for k, v in TABLE.items()}
    server.files["GHB_J.xpt"] = other(tmp_path, **table, WTSAF2YR=np.ones(2000))
    assert get(file, folder).exists()


def test_a_folder_that_cannot_be_made_is_named(file, tmp_path):
    (tmp_path / "data").write_text("a file in the way")
    with pytest.raises(DataError, match=r"Expected to write to .*nhanes; got: .*Name"):
        get(file, tmp_path / "data" / "nhanes")
