"""The files of the deployment guide: each is parsed, agrees with the others, and what it runs is run."""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio

from carmy_engine import ExecutionRequest
from carmy_http import open_http

from .conftest import FILES, TOKEN, environment, serving

PATIENCE_SECONDS = 40
SETTINGS: dict[str, Any] = tomllib.loads((FILES / "carmy.toml").read_text())
INSTRUCTION = re.compile(r"^([A-Z]+)\s+(.+)$")


def dockerfile() -> list[tuple[str, str]]:
    """The instructions of the last stage."""
    lines = (FILES / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    found = [match.groups() for line in lines if (match := INSTRUCTION.match(line))]
    last = max(number for number, (name, _) in enumerate(found) if name == "FROM")
    return [(name, value) for name, value in found[last:]]


def value_of(name: str) -> str:
    (value,) = (value for each, value in dockerfile() if each == name)
    return value


def units() -> dict[str, configparser.ConfigParser]:
    found = {}
    for name in ("shop.socket", "shop.service"):
        parser = configparser.ConfigParser(strict=False, interpolation=None)
        parser.optionxform = str  # type: ignore[assignment, method-assign]
        parser.read(FILES / name)
        found[name] = parser
    return found


def manifests() -> dict[str, Any]:
    yaml: Any = pytest.importorskip("yaml")
    return {found["kind"]: found for found in yaml.safe_load_all((FILES / "kubernetes.yaml").read_text())}


def test_the_image_runs_as_an_ordinary_user() -> None:
    """The user is a number that is not root's, which a cluster can check, and the store's directory is its own."""
    user = value_of("USER")
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)
    uid, gid = user.split(":")
    assert f"install -d -o {uid} -g {gid} -m 0700 /data" in value_of("RUN")
    assert json.loads(value_of("VOLUME")) == ["/data"]
    assert SETTINGS["store"]["url"].startswith("sqlite:/data/")
    assert value_of("STOPSIGNAL") == "SIGTERM"


def test_the_image_has_the_files_and_the_ports_of_the_settings() -> None:
    """What is copied exists, and what is exposed is where the servers listen."""
    for name, value in dockerfile():
        if name == "COPY" and not value.startswith("--from"):
            *sources, target = value.split()
            assert target == "./"
            assert all((FILES / source).is_file() for source in sources)
    ports = {
        SETTINGS[key] if isinstance(SETTINGS[key], str) else SETTINGS[key]["address"] for key in ("address", "metrics")
    }
    assert {port.rpartition(":")[2] for port in ports} == set(value_of("EXPOSE").split())


async def test_the_commands_of_the_image_work(installed: Path) -> None:
    """CMD serves with the settings of the file, HEALTHCHECK passes, callers need the token, and nothing but the store is written."""
    before = sorted(installed.rglob("*"))
    said: list[bytes] = []
    with trio.fail_after(PATIENCE_SECONDS):
        async with serving(installed, *json.loads(value_of("CMD")), said=said) as server:
            _, _, command = value_of("HEALTHCHECK").partition("CMD ")
            python, *words = json.loads(command)
            assert python == "python"
            words = [word.replace("http://127.0.0.1:3000", server.url) for word in words]
            await trio.run_process([sys.executable, *words])
            async with open_http(server.url, token=TOKEN) as client:
                request = ExecutionRequest(tool="order", arguments={"sku": "tea"}, request_id="order-1")
                assert (await client.execute(request)).unwrap() == "1 x tea"
            async with httpx2.AsyncClient(trust_env=False) as stranger:
                assert (await stranger.get(f"{server.url}/agent/tools")).status_code == 401
            server.process.terminate()
            assert await server.process.wait() == 0
    assert sorted(installed.rglob("*")) == before
    assert (installed.parent / "data" / "shop.db").is_file()
    lines = [json.loads(line) for line in b"".join(said).decode().splitlines() if line.startswith("{")]
    assert any(line.get("tool") == "order" for line in lines), said


async def test_several_processes_serve(installed: Path) -> None:
    """The same service runs in several processes, and a retry that reaches another one is a replay."""
    with trio.fail_after(PATIENCE_SECONDS):
        async with serving(installed, "carmy", "serve", "--processes", "2") as server:
            request = ExecutionRequest(tool="order", arguments={"sku": "tea"}, request_id="order-1")
            ids = set()
            for _ in range(8):
                async with open_http(server.url, token=TOKEN) as client:
                    ids.add((await client.execute(request)).execution_id)
            assert len(ids) == 1


def test_the_units_belong_together() -> None:
    """The service takes the socket of its unit, and systemd waits for longer than the server takes to stop."""
    service = units()["shop.service"]["Service"]
    assert units()["shop.service"]["Unit"]["Requires"] == "shop.socket"
    assert service["ExecStart"].endswith("carmy serve --address fd://3")
    assert float(service["TimeoutStopSec"]) > SETTINGS["drain_timeout_secs"] + 10
    assert service["KillMode"] == "mixed"
    assert f"/{service['StateDirectory']}/" in service["Environment"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_accepts_the_units(installed: Path) -> None:
    """systemd finds nothing wrong with the units."""
    carmy = Path(sys.executable).with_name("carmy")
    for name in ("shop.socket", "shop.service"):
        unit = installed / name
        unit.write_text(unit.read_text().replace("/srv/shop/.venv/bin/carmy", str(carmy)))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *(str(installed / name) for name in ("shop.socket", "shop.service"))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert [line for line in done.stderr.splitlines() if "shop." in line] == []


@pytest.mark.skipif(shutil.which("systemd-socket-activate") is None, reason="systemd is not installed")
async def test_the_socket_of_systemd_activates_the_service(installed: Path) -> None:
    """The first connection starts the service, waits until it serves, and gets its answer."""
    port = _free_port()
    command = units()["shop.service"]["Service"]["ExecStart"].split()[1:]
    words = [
        "systemd-socket-activate",
        "--listen",
        f"127.0.0.1:{port}",
        "--setenv",
        "CARMY_STORE_URL",
        "--setenv",
        "SHOP_TOKEN",
    ]
    kept = environment(installed, CARMY_ADDRESS="")
    for name in ("PATH", "CARMY_METRICS_ADDRESS", "PYTHONDONTWRITEBYTECODE"):
        words += ["--setenv", name]
    process = await trio.lowlevel.open_process(
        [*words, str(Path(sys.executable).with_name("carmy")), *command],
        cwd=installed,
        env=kept,
        stderr=subprocess.DEVNULL,
    )
    try:
        with trio.fail_after(PATIENCE_SECONDS):
            answer: httpx2.Response | None = None
            async with httpx2.AsyncClient(trust_env=False, timeout=PATIENCE_SECONDS) as client:
                while answer is None:
                    try:
                        answer = await client.get(f"http://127.0.0.1:{port}/health")
                    except httpx2.ConnectError:
                        await trio.sleep(0.02)  # systemd has not bound the port yet
            assert answer.status_code == 200
            process.terminate()
            assert await process.wait() == 0
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()


def _free_port() -> int:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


async def test_the_probes_of_the_cluster_are_answered(installed: Path) -> None:
    """Each probe has an address that the server answers without credentials; /ready turns 503 when the server stops."""
    (container,) = manifests()["Deployment"]["spec"]["template"]["spec"]["containers"]
    paths = {container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "liveness", "readiness")}
    assert paths == {"/health", "/ready"}
    with trio.fail_after(PATIENCE_SECONDS):
        async with serving(installed, "carmy", "serve") as server, httpx2.AsyncClient(trust_env=False) as client:
            for path in paths:
                assert (await client.get(server.url + path)).status_code == 200


def test_the_manifest_agrees_with_the_image() -> None:
    """User, ports, disk and times are those of the other files, and nothing runs with more rights than it needs."""
    pod = manifests()["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    uid, gid = map(int, value_of("USER").split(":"))
    security = pod["securityContext"]
    assert (security["runAsUser"], security["runAsGroup"], security["runAsNonRoot"]) == (uid, gid, True)
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip
    ports = {port["containerPort"] for port in container["ports"]}
    assert ports == {*map(int, value_of("EXPOSE").split())}
    assert container["volumeMounts"][0]["mountPath"] == json.loads(value_of("VOLUME"))[0]
    stop = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod["terminationGracePeriodSeconds"] > stop + SETTINGS["drain_timeout_secs"] + 10
    assert manifests()["Deployment"]["spec"]["replicas"] == 1


async def test_prometheus_finds_the_metrics(installed: Path) -> None:
    """The path of the scrape is answered, at the port of the settings."""
    yaml: Any = pytest.importorskip("yaml")
    (job,) = yaml.safe_load((FILES / "prometheus.yml").read_text())["scrape_configs"]
    (target,) = job["static_configs"][0]["targets"]
    assert target.rpartition(":")[2] == SETTINGS["metrics"]["address"].rpartition(":")[2]
    said: list[bytes] = []
    with trio.fail_after(PATIENCE_SECONDS):
        async with serving(installed, "carmy", "serve", said=said), httpx2.AsyncClient(trust_env=False) as client:
            while (found := re.search(rb"metrics on (http://[^\s/]+)", b"".join(said))) is None:  # noqa: ASYNC110
                await trio.sleep(0.01)
            answer = await client.get(found[1].decode() + job["metrics_path"])
    assert answer.status_code == 200
    assert "carmy_executions" in answer.text
