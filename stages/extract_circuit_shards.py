"""Helps an `extract_circuits` that runs, or was killed, beside this process: makes shards that nobody else is making.

Any number of helpers may run, on one machine or on several that share the checkout's folder (and its file locks); with
GPUs, give each its own in CUDA_VISIBLE_DEVICES. The stage itself puts the shards together.
"""

from stages.extract_circuits import run_identity, shards_of_pool
from stages.params import load_params
from stages.scratch import helped_folder


def main(item: str | None = None) -> None:
    params = load_params()
    with helped_folder(*run_identity(params)) as folder:
        shards_of_pool(params, folder)
