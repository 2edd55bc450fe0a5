"""A real Prometheus that scrapes targets of a test and evaluates alerts."""

import json
import shutil
import urllib.parse
import urllib.request

import yaml
from helpers.servers.processes import HOST, ServerProcess, free_port, needed

SCRAPE_SECONDS = 0.5


class Prometheus(ServerProcess):
    """A Prometheus server: the URLs of what it scrapes by job, and the groups of alert rules."""

    ready = "/-/ready"

    def __init__(self, targets: dict[str, str], rules: dict | None = None):
        self._targets, self._rules = targets, rules or {"groups": []}
        remedy = "No Prometheus: install it (Debian: apt-get install prometheus)."
        self._binary = needed(shutil.which("prometheus"), remedy)

    def start(self) -> None:
        self.port = free_port()
        self.url = f"http://{HOST}:{self.port}"
        (self.directory / "rules.yml").write_text(yaml.safe_dump(self._rules))
        often = f"{SCRAPE_SECONDS * 1000:.0f}ms"
        times = ("scrape_interval", "evaluation_interval", "scrape_timeout")
        settings = {
            "global": dict.fromkeys(times, often),
            "rule_files": ["rules.yml"],
            "scrape_configs": [self._job(*target) for target in self._targets.items()],
        }
        file = self.directory / "prometheus.yml"
        file.write_text(yaml.safe_dump(settings))
        place = f"--web.listen-address={HOST}:{self.port}"
        data = f"--storage.tsdb.path={self.directory}/data"
        command = [self._binary, f"--config.file={file}", place, data, "--log.level=warn"]
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
        return self._get("query", query=expression)["result"]

    def firing(self) -> set[str]:
        alerts = self._get("alerts")["alerts"]
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}
