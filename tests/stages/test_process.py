"""What a stage's process is told before torch is imported: how many threads, and which instructions."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stages.process import SAME_INSTRUCTIONS, set_instructions

ASK = (
    "from stages.process import set_instructions; set_instructions(); import torch; "
    "print(torch.backends.cpu.get_cpu_capability())"
)
HAS_AVX2 = Path("/proc/cpuinfo").is_file() and " avx2 " in Path("/proc/cpuinfo").read_text()


@pytest.mark.skipif(not HAS_AVX2, reason="this processor has no AVX2, or does not say")
@pytest.mark.parametrize(("given", "expected"), [({}, "AVX2"), ({"ATEN_CPU_CAPABILITY": "default"}, "DEFAULT")])
def test_torch_uses_the_instructions_that_machines_share(given, expected):
    environment = {name: value for name, value in os.environ.items() if name not in SAME_INSTRUCTIONS}
    asked = [sys.executable, "-c", ASK]
    done = subprocess.run(asked, env=environment | given, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == expected


def test_other_processors_are_left_alone(monkeypatch):
    for name in SAME_INSTRUCTIONS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "read_text", lambda path: "flags : sse sse2 ")
    set_instructions()
    assert not set(SAME_INSTRUCTIONS) & set(os.environ)
