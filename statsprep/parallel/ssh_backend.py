"""`env: ssh`: processes on hosts that sshd lets in, through Dask's SSHCluster."""

import logging
import os
import shlex
import sys
from typing import Any

from statsprep.errors import ConfigError
from statsprep.parallel.backend import Backend, parameters_of
from statsprep.parallel.keys import KeyFolder, security_of
from statsprep.parallel.settings import DASHBOARD

_SSH_TIMEOUT_S = 30


class Ssh(Backend):
    """Processes on hosts that sshd lets in: `hosts` has the scheduler's host first, then the workers'."""

    package = "asyncssh"
    extra = "asyncssh"

    def start(self) -> Any:
        from distributed import SSHCluster

        self.module(self.package)
        takers = "dask.distributed.SSHCluster"
        self.check_options(parameters_of(SSHCluster) | {"security", "protocol"}, takers)
        hosts = self.options.get("hosts")
        if not isinstance(hosts, list) or not hosts or self.is_adaptive:
            what = "n_workers: a range cannot be had" if self.is_adaptive else "options.hosts: missing"
            raise ConfigError(
                f"parallel.{what} with env: ssh; expected a number of workers, and a list of hosts with the "
                "scheduler's first, such as [login, node1, node2]"
            )
        return self.built(SSHCluster, takers, **self.cluster_options(hosts))

    def settings(self) -> dict[str, Any]:
        """Scheduler and workers, which are started over ssh, find the keys in Dask's settings."""
        security = security_of(self.options)
        if security is None:
            return {}
        self.keys = KeyFolder(security, os.getcwd())
        found: dict[str, Any] = {"distributed.comm.require-encryption": True}
        for role in ("scheduler", "worker", "client"):
            files = self.keys.files(role)
            found["distributed.comm.tls.ca-file"] = files["ca_file"]
            found[f"distributed.comm.tls.{role}.cert"] = files["cert"]
            found[f"distributed.comm.tls.{role}.key"] = files["key"]
        return found

    def cluster_options(self, hosts: list[str]) -> dict[str, Any]:
        """The user's options completed; the workers take turns on the hosts."""
        from distributed.security import Security

        given = {name: value for name, value in self.options.items() if name not in ("security", "protocol")}
        protocol = {"protocol": "tls://"} if self.keys is not None else {}
        python = given.get("remote_python") or sys.executable
        given["remote_python"] = (
            [shlex.quote(each) for each in python] if isinstance(python, list) else shlex.quote(python)
        )
        turns = [index % len(hosts[1:]) + 1 if hosts[1:] else 0 for index in range(self.bounds["minimum"])]
        for name in ("connect_options", "remote_python"):
            if isinstance(given.get(name), list):
                given[name] = [given[name][index] for index in [0, *turns]]
        connect = given.get("connect_options") or {}
        given["connect_options"] = (
            [{"connect_timeout": _SSH_TIMEOUT_S, **each} for each in connect]
            if isinstance(connect, list)
            else {"connect_timeout": _SSH_TIMEOUT_S, **connect}
        )
        return {
            "silence_logs": logging.CRITICAL,
            **given,
            "hosts": [hosts[index] for index in [0, *turns]],
            "scheduler_options": {
                "port": 0,
                "dashboard_address": DASHBOARD,
                **protocol,
                **(given.get("scheduler_options") or {}),
            },
            "worker_options": {"nthreads": 1, **protocol, **(given.get("worker_options") or {})},
            "security": Security(),
        }
