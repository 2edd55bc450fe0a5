"""A real RabbitMQ for the tests, as processes of their own."""

import os
import shutil
import signal
import socket

import pika

from helpers.servers.postgres import as_nobody, open_to_nobody
from helpers.servers.processes import HOST, ConnectedServer, free_port, needed, until

BINARY_VARIABLE = "IDEMPOTENCE_TEST_RABBITMQ"
REMEDY = (
    "install rabbitmq-server (Debian and Ubuntu: apt-get install rabbitmq-server), or set "
    f"{BINARY_VARIABLE} to the path of the script rabbitmq-server"
)
DEBIAN = "/usr/lib/rabbitmq/bin/rabbitmq-server"  # the one in /usr/sbin changes the user

FILES = (
    *("MNESIA_BASE", "LOG_BASE", "PID_FILE", "ENABLED_PLUGINS_FILE", "CONFIG_FILE"),
    "CONFIG_FILES",
)


class RabbitServer(ConnectedServer):
    refused = pika.exceptions.AMQPError

    def __init__(self):
        wanted = os.environ.get(BINARY_VARIABLE)
        places = [wanted] if wanted else [DEBIAN, "rabbitmq-server"]
        found = [shutil.which(place) for place in places]
        self._binary = needed(next(filter(None, found), None), f"no RabbitMQ server: {REMEDY}")

    def start(self) -> None:
        """Start the node and its port mapper in one process group; a second time with its data."""
        open_to_nobody(self.directory)
        self.port = self.port or free_port()  # always the same, as the node's name
        mapper = free_port()
        self.url = f"amqp://guest:guest@{HOST}:{self.port}/%2F"
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.directory),  # of the cookie
            "ERL_EPMD_PORT": str(mapper),
            "RABBITMQ_NODENAME": f"test{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": HOST,
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(free_port()),
            **{f"RABBITMQ_{name}": f"{self.directory}/{name}" for name in FILES},
            "RABBITMQ_ADVANCED_CONFIG_FILE": f"{self.directory}/advanced.config",
            "RABBITMQ_CONF_ENV_FILE": os.devnull,
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
                "-kernel inet_dist_use_interface {127,0,0,1} +sbwt none"
            ),
        }
        # A mapper that the node starts itself would be a daemon, and outlive the test. This one
        # ends with the group, or with a node that ends by itself.
        command = f'epmd -port {mapper} -address {HOST} & "$0"; kill $!'
        options = {"cwd": "/", "env": environment, **as_nobody()}
        self._launch(["sh", "-c", command, self._binary], self._answers, 60, **options)

    def _answers(self) -> bool:
        return self._listens() and super()._answers()  # pika would log at length

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((HOST, self.port)) == 0

    def connect(self) -> pika.BlockingConnection:
        return pika.BlockingConnection(pika.URLParameters(self.url))

    def stop(self) -> None:
        if self._process and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            until(lambda: not self._listens(), 10)
