"""A real Prometheus that scrapes targets of a test and evaluates alerts."""

import json
import os
import shutil
import urllib.parse
import urllib.request

import pytest
import yaml

from helpers.servers.processes import HOST, ServerProcess, free_port

SCRAPE_SECONDS = 0.5


def prometheus_binary() -> str:
    """Return the server's binary; without one the test is skipped, or fails where CI is set."""
    if found := shutil.which("prometheus"):
        return found
    remedy = "No Prometheus: install it (Debian: apt-get install prometheus)."
    return pytest.fail(remedy) if os.environ.get("CI") else pytest.skip(remedy)


class Prometheus(ServerProcess):
    """A Prometheus server: the URLs of what it scrapes by job, and the groups of alert rules."""

    ready = "/-/ready"

    def __init__(self, targets: dict[str, str], rules: dict | None = None):
        self._targets, self._rules = targets, rules or {"groups": []}
        self._binary = prometheus_binary()

    def start(self) -> None:
        self.port = free_port()
        self.url = f"http://{HOST}:{self.port}"
        (self.directory / "rules.yml").write_text(yaml.safe_dump(self._rules))
        settings = {
            "global": {
                "scrape_interval": f"{SCRAPE_SECONDS * 1000:.0f}ms",
                "evaluation_interval": f"{SCRAPE_SECONDS * 1000:.0f}ms",
                "scrape_timeout": f"{SCRAPE_SECONDS * 1000:.0f}ms",
            },
            "rule_files": ["rules.yml"],
            "scrape_configs": [self._job(*target) for target in self._targets.items()],
        }
        file = self.directory / "prometheus.yml"
        file.write_text(yaml.safe_dump(settings))
        command = [
            self._binary,
            f"--config.file={file}",
            f"--web.listen-address={HOST}:{self.port}",
        ]
        command += [f"--storage.tsdb.path={self.directory}/data", "--log.level=warn"]
        self._launch(command, self._answers, 30, cwd=self.directory)

    @staticmethod
    def _job(name: str, url: str) -> dict:
        parts = urllib.parse.urlsplit(url)
        return {
            "job_name": name,
            "metrics_path": parts.path,
            "static_configs": [{"targets": [parts.netloc]}],
        }

    def _get(self, path: str, **query: object) -> dict:
        url = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]

    def query(self, expression: str) -> list[dict]:
        """Return the series of an expression now; an invalid one raises."""
        return self._get("query", query=expression)["result"]

    def query_range(self, expression: str, start: float, end: float, step: float) -> list[dict]:
        return self._get("query_range", query=expression, start=start, end=end, step=step)[
            "result"
        ]

    def firing(self) -> set[str]:
        alerts = self._get("alerts")["alerts"]
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}
