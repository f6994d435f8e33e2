"""The load of a training job's node, its GPUs and its network, which `report()` sends along.

This runs inside users' programs, so it imports the standard library only and runs on Python 3.8. psutil and NVML (the
packages `psutil` and `nvidia-ml-py`) are used where they are installed; what cannot be measured is left out.
"""

from __future__ import annotations

import os
import time
from typing import Any, Dict, Sequence

Load = Dict[str, float]
"""`gpu` and `gpu_memory`: the mean share in use of the GPUs that the job sees, in [0, 1]; `network`: the share of its
fastest interface's bandwidth that the node uses, in [0, 1]; `sent`: bytes per second that leave the node."""


class LoadMeter:
    """Measures the node's load; rates are since the measurement before."""

    def __init__(self) -> None:
        self._psutil = _module("psutil")
        self._nvml = _started_nvml()
        self._before: tuple[float, int, int] | None = None

    def measure(self) -> Load:
        """The present load, without what cannot be measured. Never raises."""
        try:
            return {**self._gpus(), **self._network()}
        except Exception:  # noqa: BLE001  a failing driver must not end the training
            return {}

    def _gpus(self) -> Load:
        if self._nvml is None:
            return {}
        rates, memory = [], []
        for name in visible_gpus(os.environ.get("CUDA_VISIBLE_DEVICES", ""), self._nvml.nvmlDeviceGetCount()):
            handle = self._handle(name)
            rates.append(self._nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100)
            held = self._nvml.nvmlDeviceGetMemoryInfo(handle)
            memory.append(held.used / held.total)
        return {"gpu": sum(rates) / len(rates), "gpu_memory": sum(memory) / len(memory)} if rates else {}

    def _handle(self, name: str) -> Any:
        if name.isdigit():
            return self._nvml.nvmlDeviceGetHandleByIndex(int(name))
        return self._nvml.nvmlDeviceGetHandleByUUID(name)

    def _network(self) -> Load:
        if self._psutil is None:
            return {}
        counters = self._psutil.net_io_counters(pernic=True)
        interfaces = [each for name, each in counters.items() if name != "lo"]
        sent = sum(each.bytes_sent for each in interfaces)
        received = sum(each.bytes_recv for each in interfaces)
        now, before = time.monotonic(), self._before
        self._before = now, sent, received
        if before is None or now <= before[0]:
            return {}
        rates = (sent - before[1]) / (now - before[0]), (received - before[2]) / (now - before[0])
        load = {"sent": max(0.0, rates[0])}
        # In megabits per second; virtual interfaces report 0.
        fastest = max((each.speed for name, each in self._psutil.net_if_stats().items() if name != "lo"), default=0)
        if fastest > 0:
            load["network"] = min(1.0, max(0.0, *rates) * 8 / (fastest * 1e6))
        return load


def visible_gpus(variable: str, count: int) -> Sequence[str]:
    """The indices or UUIDs in CUDA_VISIBLE_DEVICES, the indices of all `count` GPUs where it is empty."""
    named = [name.strip() for name in variable.split(",") if name.strip()]
    return named or [str(index) for index in range(count)]


def _module(name: str) -> Any:
    try:
        return __import__(name)
    except Exception:  # noqa: BLE001  a broken installation is as good as none
        return None


def _started_nvml() -> Any:
    nvml = _module("pynvml")
    try:
        if nvml is not None:
            nvml.nvmlInit()
    except Exception:  # noqa: BLE001  the library is installed, the driver is not
        return None
    return nvml
