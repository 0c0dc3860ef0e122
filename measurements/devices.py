"""Ceilings of devices: peaks by dtype and memory bandwidth by exact name, and what this machine can run.

Peaks are dense; the numbers for 2:4 sparsity that datasheets print are twice these. Each is that of a dtype:
fp32   float32 on the ordinary cores
tf32   float32 in memory, multiplied by tensor cores; NVIDIA Ampere and later
fp16   tensor cores where there are any, else (P100) the ordinary cores, two at a time
bf16   tensor cores; NVIDIA Ampere and later
Tensor cores accumulate in float32, as PyTorch asks them to. GeForce cards do that at half the rate at which
they accumulate in float16; their rows hold that half.
"""

from __future__ import annotations

import difflib
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from measurements.records import MeasurementError

T = TypeVar("T")

DTYPES = ("fp32", "tf32", "bf16", "fp16")


class DeviceError(MeasurementError):
    """Something about a device that is not known: one sentence that names what to change."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One kind of GPU.

    name: as the driver and torch.cuda.get_device_name say it. aliases: as other versions of the driver do.
    flop_per_s: dtype -> dense peak, FLOP/s, only the dtypes that it has. bytes_per_s: of its memory.
    """

    name: str
    flop_per_s: Mapping[str, float]
    bytes_per_s: float
    source: str
    aliases: tuple[str, ...] = ()

    def peak(self, dtype: str) -> float:
        """Dense peak in that dtype, FLOP/s.

        Raises: DeviceError where the GPU has no such dtype.
        """
        _known_dtype(dtype)
        if dtype not in self.flop_per_s:
            raise DeviceError(f"{self.name} has no {dtype}; has {', '.join(sorted(self.flop_per_s))}")
        return self.flop_per_s[dtype]


def _known_dtype(dtype: str) -> None:
    if dtype not in DTYPES:
        raise DeviceError(f"unknown dtype {dtype!r}; have {', '.join(DTYPES)}")


def _tera(**peaks: float) -> dict[str, float]:
    return {dtype: 1e12 * peak for dtype, peak in peaks.items()}


def _tensor(fp32: float, tf32: float, half: float) -> dict[str, float]:
    """Peaks of a GPU whose tensor cores know all dtypes, TFLOP/s; bf16 and fp16 are one number."""
    return _tera(fp32=fp32, tf32=tf32, bf16=half, fp16=half)


_P100_PCIE = _tera(fp32=9.3, fp16=18.7)
_V100_PCIE, _V100_SXM2 = _tera(fp32=14, fp16=112), _tera(fp32=15.7, fp16=125)
_A100 = _tensor(19.5, 156, 312)

_IMAGES = "https://images.nvidia.com/content"
_CENTER = "https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center"
_P100 = f"NVIDIA Tesla P100 PCIe datasheet, {_IMAGES}/tesla/pdf/nvidia-tesla-p100-PCIe-datasheet.pdf"
_V100 = (
    f"NVIDIA V100 datasheet, {_IMAGES}/technologies/volta/pdf/volta-v100-datasheet-update-us-1165301-r5.pdf"
)
_A100_SHEET = f"NVIDIA A100 datasheet, {_CENTER}/a100/pdf/nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf"
_H100 = (
    "NVIDIA H100 datasheet, https://resources.nvidia.com/en-us-tensor-core/nvidia-tensor-core-gpu-datasheet; "
    "all digits and dense: H100 architecture whitepaper, table 2"
)

ROWS = (
    Gpu("Tesla P100-PCIE-16GB", _P100_PCIE, 732e9, _P100),
    Gpu("Tesla P100-PCIE-12GB", _P100_PCIE, 549e9, _P100),
    Gpu(
        "Tesla P100-SXM2-16GB",
        _tera(fp32=10.6, fp16=21.2),
        732e9,
        f"NVIDIA Tesla P100 datasheet, {_IMAGES}/tesla/pdf/nvidia-tesla-p100-datasheet.pdf",
    ),
    Gpu("Tesla V100-PCIE-16GB", _V100_PCIE, 900e9, _V100),
    Gpu("Tesla V100-PCIE-32GB", _V100_PCIE, 900e9, _V100),
    Gpu("Tesla V100-SXM2-16GB", _V100_SXM2, 900e9, _V100),
    Gpu("Tesla V100-SXM2-32GB", _V100_SXM2, 900e9, _V100),
    Gpu(
        "Tesla T4",
        _tera(fp32=8.1, fp16=65),
        320e9,
        f"NVIDIA T4 datasheet, {_CENTER}/tesla-t4/t4-tensor-core-datasheet-951643.pdf; "
        "bandwidth: product brief PB-09256",
        ("NVIDIA T4",),
    ),
    Gpu("NVIDIA A100-PCIE-40GB", _A100, 1555e9, _A100_SHEET, ("A100-PCIE-40GB",)),
    Gpu(
        "NVIDIA A100 80GB PCIe",
        _A100,
        1935e9,
        _A100_SHEET,
        ("A100 80GB PCIe", "NVIDIA A100-PCIE-80GB", "A100-PCIE-80GB"),
    ),
    Gpu("NVIDIA A100-SXM4-40GB", _A100, 1555e9, _A100_SHEET, ("A100-SXM4-40GB",)),
    Gpu(
        "NVIDIA A100-SXM4-80GB",
        _A100,
        2039e9,
        _A100_SHEET,
        ("A100-SXM4-80GB", "NVIDIA A100-SXM-80GB", "A100-SXM-80GB"),
    ),
    Gpu(
        "NVIDIA A10",
        _tensor(31.2, 62.5, 125),
        600e9,
        f"NVIDIA A10 datasheet, {_CENTER}/a10/pdf/a10-datasheet.pdf",
        ("A10",),
    ),
    Gpu(
        "NVIDIA L4",
        _tensor(30.3, 60, 121),
        300e9,
        "NVIDIA L4 datasheet, https://resources.nvidia.com/en-us-data-center-overview/l4-gpu-datasheet",
    ),
    Gpu(
        "NVIDIA L40S",
        _tensor(91.6, 183, 362.05),
        864e9,
        "NVIDIA L40S datasheet, https://resources.nvidia.com/en-us-l40s/l40s-datasheet-28413",
    ),
    Gpu(
        "NVIDIA GeForce RTX 3090",
        _tensor(35.6, 35.6, 71),
        936e9,
        "NVIDIA Ampere GA102 architecture whitepaper, appendix A: with FP32 accumulate",
        ("GeForce RTX 3090",),
    ),
    Gpu(
        "NVIDIA GeForce RTX 4090",
        _tensor(82.6, 82.6, 165.2),
        1008e9,
        "NVIDIA Ada architecture whitepaper, appendix A: with FP32 accumulate",
    ),
    Gpu("NVIDIA H100 PCIe", _tensor(51.2, 378, 756), 2000e9, _H100),
    Gpu("NVIDIA H100 80GB HBM3", _tensor(66.9, 494.7, 989.4), 3350e9, _H100),
    Gpu(
        "NVIDIA H200",
        _tensor(66.9, 494.7, 989.4),
        4800e9,
        "NVIDIA H200 datasheet, https://resources.nvidia.com/en-us-data-center-overview-mc/"
        "en-us-data-center-overview/hpc-datasheet-sc23-h200; peaks as H100 SXM, whose chip it is",
    ),
    Gpu(
        "NVIDIA B200",
        _tensor(75, 1100, 2250),
        7700e9,
        "NVIDIA Blackwell datasheet, one GPU of HGX B200, "
        "https://resources.nvidia.com/en-us-blackwell-architecture/datasheet",
    ),
)
"""One row for each GPU. Sizes of memory are part of a name, since bandwidth may depend on them."""

GPUS: dict[str, Gpu] = {name: row for row in ROWS for name in (row.name, *row.aliases)}
"""Exact name or alias -> row. There is no other match: an L40S is no L4, an A10G no A10."""


def gpu(name: str) -> Gpu:
    """The GPU of exactly that name.

    Raises: DeviceError with the names near it, since a ceiling of another GPU would be wrong.
    """
    if name in GPUS:
        return GPUS[name]
    spelled = {known.lower(): known for known in GPUS}
    keys = [key for key in spelled if name.lower() in key]
    keys += difflib.get_close_matches(name.lower(), spelled, n=5)
    near = [spelled[key] for key in dict.fromkeys(keys)][:5]
    names = f"near: {', '.join(near)}" if near else f"have {', '.join(row.name for row in ROWS)}"
    raise DeviceError(f"unknown device {name!r}; {names}; or give --peak")


def driver_peak(index: int = 0) -> tuple[float, str]:
    """FLOP/s in float32 of this machine's GPU, by its driver, and what that is made of.

    cores x highest clock x 2: each core starts one fused multiply-add in a cycle. Index: NVML's own order, by
    place on the bus; CUDA_VISIBLE_DEVICES does not change it. The highest clock lies above the datasheet's
    boost clock (P100 PCIe: 9.5 TFLOP/s against 9.3).
    Source: "Achieved FLOPs", https://docs.nvidia.com/gameworks/content/developertools/desktop/analysis/report/
    cudaexperiments/kernellevel/achievedflops.htm
    Raises: DeviceError where there is no NVIDIA driver to ask, or no such GPU.
    """
    asked = _asked(
        index,
        lambda nvml, gpu: (
            nvml.nvmlDeviceGetName(gpu),
            nvml.nvmlDeviceGetNumGpuCores(gpu),
            nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_SM),
        ),
    )
    name, cores, megahertz = asked
    return cores * megahertz * 1e6 * 2, f"driver: {name}, {cores} cores x {megahertz} MHz x 2"


def driver_facts(index: int = 0) -> dict[str, object]:
    """What the driver says of a GPU that a time depends on: its name, highest clocks in MHz, and the driver.

    Raises: DeviceError as driver_peak.
    """
    return _asked(
        index,
        lambda nvml, gpu: {
            "gpu": nvml.nvmlDeviceGetName(gpu),
            "driver": nvml.nvmlSystemGetDriverVersion(),
            "core_megahertz": nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_SM),
            "memory_megahertz": nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_MEM),
        },
    )


def _asked(index: int, question: Callable[[Any, Any], T]) -> T:
    """What the driver answers to question(pynvml, handle of the GPU)."""
    try:
        import pynvml  # type: ignore[import-untyped]
    except ModuleNotFoundError:
        raise DeviceError(
            "needs nvidia-ml-py to ask the driver; has none: pip install nvidia-ml-py"
        ) from None
    try:
        pynvml.nvmlInit()
        try:
            return question(pynvml, pynvml.nvmlDeviceGetHandleByIndex(index))
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        raise DeviceError(
            f"needs a driver that tells cores and clock of GPU {index}; NVML says: {error}"
        ) from error


def why_not(device: str, dtype: str = "fp32") -> str | None:
    """Why a step in that dtype cannot run here on "cpu" or "cuda"; None where it can."""
    _known_dtype(dtype)
    if device == "cpu":
        return "needs tf32; a CPU has none" if dtype == "tf32" else None
    if device != "cuda":
        raise DeviceError(f"unknown device {device!r}; have cpu, cuda")
    with warnings.catch_warnings(action="ignore"):  # torch warns of what is said here in one sentence
        return _why_not_cuda(dtype)


def _why_not_cuda(dtype: str) -> str | None:
    import torch

    if not torch.cuda.is_available():
        return "needs CUDA; has none"
    major, minor = torch.cuda.get_device_capability()
    kernels = torch.cuda.get_arch_list()
    if not any(_runs(entry, (major, minor)) for entry in kernels):
        version = torch.__version__.partition("+")[0]
        return f"needs kernels for sm_{major}{minor}; torch {version} has {', '.join(kernels) or 'none'}"
    if dtype in ("bf16", "tf32") and major < 8:
        return f"needs {dtype}; {torch.cuda.get_device_name()} has none"
    return None


def _runs(entry: str, capability: tuple[int, int]) -> bool:
    """Whether code that torch was built for, as get_arch_list says it, runs on a GPU of that capability.

    sm_XY is machine code: same X, Y or more. compute_XY is PTX, which the driver compiles: X.Y or more. With
    an a at its end it is for X.Y alone, with an f for the same X, Y or more.
    Source: CUDA C++ programming guide: binary compatibility, PTX compatibility, family-specific features
    """
    found = re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)", entry)
    if found is None:
        return False
    built = int(found[2]), int(found[3])
    if found[4] == "a":
        return capability == built
    same_major = capability[0] == built[0] or (found[1] == "compute" and not found[4])
    return same_major and capability >= built
