"""Where the tasks of a flow run: threads of its own process, or the processes of a Dask cluster."""

import os
from typing import Any, cast

from prefect.futures import PrefectFuture
from prefect.task_runners import TaskRunner, ThreadPoolTaskRunner

from stages.process import CONCURRENT

DASK = "EFFACE_DASK"


def on_dask() -> bool:
    return bool(os.environ.get(DASK))


def at_once() -> int:
    """How many stages may run at the same time, from EFFACE_CONCURRENT_STAGES."""
    return int(os.environ.get(CONCURRENT) or 1)


def task_runner() -> TaskRunner[PrefectFuture[Any]]:
    """Threads, or the workers of the cluster that EFFACE_DASK names: `local` starts one process per concurrent stage.

    Workers on other machines need the checkout, its cache and its virtual environment under the same paths, on a file
    system with working locks. A stage is a process of its own either way.

    Raises: ModuleNotFoundError where EFFACE_DASK is set and the extra `dask` is not installed.
    """
    address = os.environ.get(DASK)
    if not address:
        return cast(TaskRunner[PrefectFuture[Any]], ThreadPoolTaskRunner(max_workers=at_once()))
    try:
        from prefect_dask import DaskTaskRunner
    except ModuleNotFoundError as error:
        remedy = "pip install 'efface[dask]'"
        raise ModuleNotFoundError(f"{DASK} is {address!r}, but {error.name} is missing: {remedy}") from error
    if address != "local":
        return cast(TaskRunner[PrefectFuture[Any]], DaskTaskRunner(address=address))
    cluster = {"n_workers": at_once(), "threads_per_worker": 1, "host": "127.0.0.1", "dashboard_address": None}
    return cast(TaskRunner[PrefectFuture[Any]], DaskTaskRunner(cluster_kwargs=cluster))
