"""`env: slurm` and its kin: jobs of a batch scheduler, through dask-jobqueue."""

import logging
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from statsprep.errors import ConfigError
from statsprep.parallel.backend import Backend, parameters_of
from statsprep.parallel.job_queues import QUEUES, JobQueue, lifetime_arguments, single_as_list
from statsprep.parallel.keys import KeyFolder, security_of
from statsprep.parallel.settings import DASHBOARD, job_exports
from statsprep.parallel.supply import Supply


class Batch(Backend):
    """Jobs of a batch scheduler, each with one worker unless `processes` says more."""

    package = "dask_jobqueue"
    extra = "dask-jobqueue"
    timeout_s = 1800.0

    def __init__(self, env: str, workers: int | Mapping[str, int], options: Mapping[str, Any]) -> None:
        super().__init__(env, workers, options)
        self.queue: JobQueue = QUEUES[env]()
        self.log_directory = Path(os.path.abspath(self.options.get("log_directory") or "parallel_logs"))

    def start(self) -> Any:
        base = getattr(self.module(self.package), self.queue.cluster)
        known = parameters_of(*base.__mro__, *base.job_cls.__mro__)
        takers = f"dask_jobqueue.{self.queue.cluster}"
        self.check_options(known - {"job_cls", "scheduler", "scheduler_cls"}, takers)
        program = base.job_cls.submit_command
        if shutil.which(program) is None:
            raise ConfigError(
                f"parallel.env: {self.env!r} needs the program {program}, which is not on PATH; run on a "
                "host that can submit jobs"
            )
        return self.build(base, takers)

    def build(self, base: Any, takers: str) -> Any:
        """The cluster without asking for a job; its `job_script()` shows what would be submitted."""
        from statsprep.parallel.batch_jobs import cluster_class

        if "\n" in str(self.log_directory):
            raise ConfigError(
                f"parallel.options.log_directory: {str(self.log_directory)!r} has a line break, which no job "
                "script can name; expected another folder"
            )
        options = self.cluster_options()
        try:
            self.log_directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"parallel.options.log_directory: {self.log_directory}: {error.strerror}; expected a folder "
                "that this user can write to and all nodes see"
            ) from error
        files = {}
        if options["security"] is not None:
            self.keys = KeyFolder(options["security"], options["shared_temp_directory"])
            files = self.keys.files("worker")
        return self.built(cluster_class(base, files), takers, **options)

    def cluster_options(self) -> dict[str, Any]:
        """The user's options completed: what dask-jobqueue's class gets."""
        given = single_as_list(self.options)
        options = {
            "processes": 1,
            "job_name": "statsprep",
            "silence_logs": logging.CRITICAL,
            **given,
            "log_directory": str(self.log_directory),
            "shared_temp_directory": given.get("shared_temp_directory") or str(self.log_directory),
            "scheduler_options": {"dashboard_address": DASHBOARD, **given.get("scheduler_options", {})},
            "security": security_of(given),
        }
        extra = options.get("job_extra_directives") or []
        if not isinstance(extra, Mapping):
            options["job_extra_directives"] = [
                *self.queue.missing_directives(extra, self.log_directory),
                *extra,
            ]
        threads = max(1, int(options.get("cores") or 1) // int(options["processes"] or 1))
        options["job_script_prologue"] = [*job_exports(threads), *(given.get("job_script_prologue") or [])]
        arguments = ["--no-dashboard", *(given.get("worker_extra_args") or [])]
        if given.get("walltime") is not None:
            options["walltime"] = self.queue.walltime(given["walltime"])
        if self.queue.has_walltime and "--lifetime" not in arguments:
            arguments += lifetime_arguments(self.queue.walltime_s(self.walltime_of(options)))
        return {**options, "worker_extra_args": arguments}

    def walltime_of(self, options: Mapping[str, Any]) -> str:
        import dask

        section = options.get("config_name") or self.env
        return str(options.get("walltime") or dask.config.get(f"jobqueue.{section}.walltime", "00:30:00"))

    def ask(self, cluster: Any) -> None:
        if self.is_adaptive:
            cluster.adapt(**self.bounds)
        else:
            cluster.scale(self.bounds["minimum"])

    def watch(self, cluster: Any, timeout_s: float) -> Supply:
        num_workers = None if self.is_adaptive else self.bounds["minimum"]
        return Supply(cluster, self.queue, num_workers, timeout_s, self.log_directory)
