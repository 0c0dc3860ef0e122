"""Ceilings belong to exact names and dtypes, and a device that cannot run a step says why in one sentence."""

from __future__ import annotations

import sys
import types
import warnings

import pytest

from measurements import devices
from measurements.devices import DTYPES, GPUS, ROWS, DeviceError, driver_peak, gpu, why_not

# name: (cores, boost clock in MHz that the datasheet's peak is made of, and how much faster than in fp32 the
# GPU is in fp16 and in tf32). Sources: NVIDIA's architecture whitepapers, TechPowerUp's GPU database.
MADE_OF = {
    "Tesla P100-PCIE-16GB": (3584, 1303, 2, None),
    "Tesla P100-PCIE-12GB": (3584, 1303, 2, None),
    "Tesla P100-SXM2-16GB": (3584, 1480, 2, None),
    "Tesla V100-PCIE-16GB": (5120, 1370, 8, None),
    "Tesla V100-PCIE-32GB": (5120, 1370, 8, None),
    "Tesla V100-SXM2-16GB": (5120, 1530, 8, None),
    "Tesla V100-SXM2-32GB": (5120, 1530, 8, None),
    "Tesla T4": (2560, 1590, 8, None),
    "NVIDIA A100-PCIE-40GB": (6912, 1410, 16, 8),
    "NVIDIA A100 80GB PCIe": (6912, 1410, 16, 8),
    "NVIDIA A100-SXM4-40GB": (6912, 1410, 16, 8),
    "NVIDIA A100-SXM4-80GB": (6912, 1410, 16, 8),
    "NVIDIA A10": (9216, 1695, 4, 2),
    "NVIDIA L4": (7424, 2040, 4, 2),
    "NVIDIA L40S": (18176, 2520, 4, 2),
    "NVIDIA GeForce RTX 3090": (10496, 1695, 2, 1),  # 4 and 2 where the sum is in float16
    "NVIDIA GeForce RTX 4090": (16384, 2520, 2, 1),
    "NVIDIA H100 PCIe": (14592, 1755, 14.8, 7.4),  # 16 and 8 at the lower clock of its tensor cores
    "NVIDIA H100 80GB HBM3": (16896, 1980, 14.8, 7.4),
    "NVIDIA H200": (16896, 1980, 14.8, 7.4),
    "NVIDIA B200": (18944, 1980, 30, 15),  # 32 and 16 at the lower clock
}


@pytest.mark.parametrize("name", MADE_OF)
def test_a_peak_is_made_of_cores_and_clock(name):
    """Two sources for each number: a peak with sparsity, or of another GPU, is off by a factor of 2 or so."""
    row = gpu(name)
    cores, megahertz, half, tf32 = MADE_OF[name]
    fp32 = cores * megahertz * 1e6 * 2

    assert row.peak("fp32") == pytest.approx(fp32, rel=0.015)
    assert row.peak("fp16") == pytest.approx(half * fp32, rel=0.025)
    assert row.flop_per_s.get("bf16") == (row.peak("fp16") if tf32 else None)
    if tf32:
        assert row.peak("tf32") == pytest.approx(tf32 * fp32, rel=0.025)
    else:
        assert "tf32" not in row.flop_per_s


def test_every_row_is_whole():
    """A name, an alias, a source: each once, none empty."""
    assert [row.name for row in ROWS] == list(MADE_OF)
    assert len(GPUS) == sum(1 + len(row.aliases) for row in ROWS), "two rows share a name"
    assert [row.name for row in ROWS if not row.source or not 2e11 < row.bytes_per_s < 1e13] == []
    assert [row.name for row in ROWS if not set(row.flop_per_s) <= set(DTYPES)] == []


@pytest.mark.parametrize("known", ["A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB"])
def test_an_alias_is_the_same_gpu(known):
    """Drivers before 2021 leave the maker out."""
    assert gpu(known).name == "NVIDIA A100-SXM4-40GB"
    assert gpu(known).bytes_per_s == 1555e9


def test_memory_is_part_of_a_name():
    """A P100 with 12 GB has three quarters of the bandwidth."""
    assert gpu("Tesla P100-PCIE-16GB").bytes_per_s == 732e9
    assert gpu("Tesla P100-PCIE-12GB").bytes_per_s == 549e9


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("NVIDIA L40", "near: NVIDIA L40S, NVIDIA L4, "),  # another GPU
        ("NVIDIA A10G", "near: NVIDIA A10, "),  # half an A10's tensor cores
        ("NVIDIA H100 NVL", "near: NVIDIA H100 PCIe, "),
        ("NVIDIA H100", "near: NVIDIA H100 PCIe, NVIDIA H100 80GB HBM3, "),
        ("P100", "near: Tesla P100-PCIE-16GB, Tesla P100-PCIE-12GB, Tesla P100-SXM2-16GB; "),
        ("Quadro 600", "have Tesla P100-PCIE-16GB, "),
    ],
)
def test_only_an_exact_name_has_a_ceiling(name, near):
    """Another GPU's peak gives utilizations of 152 %."""
    with pytest.raises(DeviceError) as error:
        gpu(name)

    assert str(error.value).startswith(f"unknown device {name!r}; {near}")
    assert str(error.value).endswith("; or give --peak")


def test_a_dtype_that_the_gpu_lacks_is_refused():
    """The peak of another dtype would be wrong."""
    with pytest.raises(DeviceError, match=r"^Tesla P100-PCIE-16GB has no bf16; has fp16, fp32$"):
        gpu("Tesla P100-PCIE-16GB").peak("bf16")
    with pytest.raises(DeviceError, match=r"^unknown dtype 'half'; have fp32, tf32, bf16, fp16$"):
        gpu("Tesla P100-PCIE-16GB").peak("half")


# The driver


class FakeNvml(types.ModuleType):
    """Stands for pynvml: one P100, or an error instead of it."""

    NVML_CLOCK_SM = 1

    class NVMLError(Exception):
        """NVML's own."""

    def __init__(self, fails=""):
        """A driver; fails: the function that raises."""
        super().__init__("pynvml")
        self.fails, self.open = fails, 0

    def _say(self, name, answer=None):
        if name == self.fails:
            raise self.NVMLError("Driver Not Loaded")
        return answer

    def nvmlInit(self):  # noqa: N802
        """Opens."""
        self._say("nvmlInit")
        self.open += 1

    def nvmlShutdown(self):  # noqa: N802
        """Closes."""
        self.open -= 1

    def nvmlDeviceGetHandleByIndex(self, index):  # noqa: N802
        """The only one."""
        return self._say("nvmlDeviceGetHandleByIndex", index)

    def nvmlDeviceGetName(self, handle):  # noqa: N802
        """Its name."""
        return "Tesla P100-PCIE-16GB"

    def nvmlDeviceGetNumGpuCores(self, handle):  # noqa: N802
        """Its cores."""
        return self._say("nvmlDeviceGetNumGpuCores", 3584)

    def nvmlDeviceGetMaxClockInfo(self, handle, clock):  # noqa: N802
        """Its clock, in MHz."""
        assert clock == self.NVML_CLOCK_SM
        return 1328


def test_the_drivers_peak_is_cores_x_clock_x_2(monkeypatch):
    """As NVIDIA defines it; what it is made of stands beside it."""
    nvml = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)

    peak, source = driver_peak()

    assert peak == 3584 * 1328e6 * 2
    assert source == "driver: Tesla P100-PCIE-16GB, 3584 cores x 1328 MHz x 2"
    assert nvml.open == 0


@pytest.mark.parametrize("fails", ["nvmlInit", "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetNumGpuCores"])
def test_without_a_driver_there_is_no_drivers_peak(monkeypatch, fails):
    """One sentence, and nothing left open."""
    nvml = FakeNvml(fails)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)

    with pytest.raises(DeviceError, match=r"needs a driver .* of GPU 3; NVML says: Driver Not Loaded"):
        driver_peak(3)
    assert nvml.open == 0


def test_without_the_package_there_is_no_drivers_peak(monkeypatch):
    """It is named."""
    monkeypatch.setitem(sys.modules, "pynvml", None)

    with pytest.raises(DeviceError, match="needs nvidia-ml-py"):
        driver_peak()


# What can run here

P100, V100, A100, H100 = (6, 0), (7, 0), (8, 0), (9, 0)
NEW = ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120", "compute_120"]  # of torch 2.14.1
OLD = ["sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90"]  # of torch 2.7.1


@pytest.fixture
def cuda(monkeypatch):
    """A function that makes torch.cuda one of a GPU of that capability, and of wheels for those kernels."""
    import torch

    def pretend(capability, kernels):
        def get_device_capability():
            warnings.warn("Found GPU0 which is of cuda capability 6.0", stacklevel=2)  # as torch does
            return capability

        monkeypatch.setattr(torch, "__version__", "2.14.1+cu130")
        monkeypatch.setattr(torch.cuda, "is_available", lambda: capability is not None)
        monkeypatch.setattr(torch.cuda, "get_device_capability", get_device_capability)
        monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: kernels)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Tesla X")

    return pretend


@pytest.mark.parametrize(
    ("capability", "kernels", "dtype", "reason"),
    [
        (None, [], "fp32", "needs CUDA; has none"),
        (P100, NEW, "fp32", f"needs kernels for sm_60; torch 2.14.1 has {', '.join(NEW)}"),
        (V100, NEW, "fp32", f"needs kernels for sm_70; torch 2.14.1 has {', '.join(NEW)}"),
        (P100, [], "fp32", "needs kernels for sm_60; torch 2.14.1 has none"),
        (P100, OLD, "fp32", None),
        (P100, OLD, "fp16", None),
        (P100, OLD, "bf16", "needs bf16; Tesla X has none"),
        (P100, OLD, "tf32", "needs tf32; Tesla X has none"),
        ((7, 5), NEW, "bf16", "needs bf16; Tesla X has none"),
        (A100, NEW, "bf16", None),
        (A100, NEW, "tf32", None),
        (H100, OLD, "bf16", None),
    ],
)
def test_cuda_says_why_not(cuda, capability, kernels, dtype, reason):
    """What is missing, and what is there; torch's own warnings are no errors."""
    cuda(capability, kernels)

    assert why_not("cuda", dtype) == reason


@pytest.mark.parametrize(
    ("entry", "capability", "runs"),
    [
        ("sm_80", (8, 0), True),
        ("sm_80", (8, 6), True),  # the same major version, a higher minor one
        ("sm_86", (8, 0), False),
        ("sm_60", (7, 0), False),  # machine code of another major version
        ("sm_90", (10, 0), False),
        ("sm_100", (10, 0), True),
        ("sm_100", (10, 3), True),
        ("sm_120", (12, 1), True),
        ("sm_90a", (9, 0), True),
        ("sm_100a", (10, 3), False),  # made for one capability alone
        ("sm_100f", (10, 3), True),  # for its family
        ("sm_100f", (12, 0), False),
        ("compute_50", (6, 0), True),  # PTX, which the driver compiles
        ("compute_90", (8, 9), False),
        ("compute_90a", (10, 0), False),
        ("compute_100f", (10, 3), True),
        ("compute_100f", (12, 0), False),
        ("compute_120", (6, 0), False),
        ("gfx90a", (9, 0), False),
    ],
)
def test_code_runs_where_cuda_says_that_it_does(entry, capability, runs):
    """Binary compatibility, PTX compatibility, and what is made for one chip or family."""
    assert devices._runs(entry, capability) is runs


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
def test_a_cpu_runs_what_its_autocast_does(dtype):
    """Said, and done."""
    import torch

    assert why_not("cpu", dtype) is None
    layer, x = torch.nn.Conv2d(3, 4, 3), torch.rand(2, 3, 8, 8)
    cast = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[dtype]
    with torch.autocast("cpu", cast, enabled=dtype != "fp32"):
        y = layer(x)
    y.float().sum().backward()
    assert y.dtype == cast
    assert layer.weight.grad.dtype == torch.float32


def test_a_cpu_has_no_tf32():
    """It is a format of NVIDIA's tensor cores."""
    assert why_not("cpu", "tf32") == "needs tf32; a CPU has none"


@pytest.mark.parametrize(
    ("device", "dtype", "sentence"),
    [
        ("tpu", "fp32", "unknown device 'tpu'; have cpu, cuda"),
        ("cpu", "int8", "unknown dtype 'int8'; have fp32, tf32, bf16, fp16"),
    ],
)
def test_another_name_is_refused(device, dtype, sentence):
    """A slip is no skip."""
    with pytest.raises(DeviceError, match=sentence):
        why_not(device, dtype)
