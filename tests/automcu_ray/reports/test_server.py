"""The page that `automcu watch` serves: three paths, for this machine, and an event for each new report."""

import http.client
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from automcu_ray.core.errors import ConfigError
from automcu_ray.reports import server as report_server
from automcu_ray.reports.live import LiveReport
from automcu_ray.reports.server import ReportServer


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ReportServer]:
    monkeypatch.setattr(report_server, "LOOK_S", 0.01)
    with ReportServer(tmp_path / "report.html", 0) as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def ask(server: ReportServer, path: str, method: str = "GET", host: str = "") -> tuple[int, str, str]:
    """Return status, text and policy of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    connection.request(method, path, headers={"Host": host} if host else {})
    answer = connection.getresponse()
    found = answer.status, answer.read().decode(), answer.getheader("Content-Security-Policy") or ""
    connection.close()
    return found


def test_the_report_is_served_as_it_stands(server: ReportServer) -> None:
    assert "Nothing yet" in ask(server, "/report.html")[1]
    server.report.write_text("<p>one")
    assert ask(server, "/report.html")[:2] == (200, "<p>one")
    status, page, policy = ask(server, "/")
    assert status == 200 and 'src="/report.html"' in page and "default-src 'none'" in policy


@pytest.mark.parametrize(
    "path", ["/journal.jsonl", "/../config.yaml", "/report.html/../journal.jsonl", "//etc/passwd", "*"]
)
def test_nothing_else_of_the_run_is_served(server: ReportServer, path: str) -> None:
    (server.report.parent / "journal.jsonl").write_text("secret")
    assert ask(server, path)[0] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_can_be_changed(server: ReportServer, method: str) -> None:
    assert ask(server, "/", method)[0] == 501


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1:1", "localhost"])
def test_another_name_for_this_machine_is_no_way_in(server: ReportServer, host: str) -> None:
    server.report.write_text("<p>one")
    assert ask(server, "/report.html", host=host.format(port=server.server_port))[0] == 421
    assert ask(server, "/report.html", host=f"localhost:{server.server_port}")[0] == 200


def test_who_watches_is_told_of_each_new_report(server: ReportServer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    connection.request("GET", "/events")
    answer = connection.getresponse()
    assert answer.getheader("Content-Type") == "text/event-stream"
    for text in ("one", "two"):
        part = server.report.with_suffix(".part")
        part.write_text(text)
        part.replace(server.report)
        assert answer.readline() == b"data: rewritten\n" and answer.readline() == b"\n"
    connection.close()


def test_a_port_that_is_taken_is_said_so(server: ReportServer, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"port {server.server_port} .*--port"):
        ReportServer(tmp_path / "report.html", server.server_port)
    with pytest.raises(ConfigError, match="port 70000 "):
        ReportServer(tmp_path / "report.html", 70000)


def test_a_report_takes_a_small_share_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now, written = [100.0], []
    monkeypatch.setattr("automcu_ray.reports.live.time.monotonic", lambda: now[0])

    def write() -> None:
        written.append(now[0])
        now[0] += 1.0

    live = LiveReport(write)
    while now[0] < 300.0:
        live.refresh()
        now[0] += 0.5
    assert written == [100.0, 150.0, 200.0, 250.0]  # a second each, two in a hundred
