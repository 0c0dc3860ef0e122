"""Every name that `--arch` takes gives the model it names; every other one ends in a sentence."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import models

if TYPE_CHECKING:
    from torch import nn

ROOT = Path(__file__).parents[2]

# Layer sizes as the study prints them (appendix A), multiplied out here: weights, then biases.
STUDY_PARAMETERS = {
    "linear_net": 150528 * 4096 + 4096 * 128 + 128 * 10 + (4096 + 128 + 10),
    "one_net": 1 * 4096 + 4096 * 128 + 128 * 10 + (4096 + 128 + 10),
    "conv_net": 32 * 3 * 49 + 64 * 32 * 49 + 64 * 10 + 10,
    "deeper_conv_net": 32 * 3 * 49 + 32 * 32 * 9 + 64 * 32 * 49 + 64 * 10 + 10,
    "mlp": 24 * 16 + 16 * 12 + 12 * 10,
}

# Published parameter counts, 10 classes.
PUBLISHED_PARAMETERS = {
    "resnet18": 11181642,
    "resnet34": 21289802,
    "resnet50": 23528522,
    "resnet101": 42520650,
    "resnet152": 58164298,
    "vgg11": 128807306,
    "vgg13": 128991818,
    "vgg16": 134301514,
    "vgg19": 139611210,
    "wide_resnet50_2": 66854730,
    "alexnet": 57044810,
    "mobilenet_v2": 2236682,
    "efficientnet_b0": 4020358,
}

# What each layer gives out at 3x224x224 and batch 2: (size + 2·padding - kernel) // stride + 1.
STUDY_SHAPES = {
    "linear_net": {"fc1": (2, 4096), "fc2": (2, 128), "fc3": (2, 10)},
    "one_net": {"fc1": (2, 4096), "fc2": (2, 128), "fc3": (2, 10)},
    "conv_net": {
        "conv1": (2, 32, 112, 112),
        "conv2": (2, 64, 28, 28),
        "maxpool": (2, 64, 14, 14),
        "avgpool": (2, 64, 1, 1),
        "fc1": (2, 10),
    },
    "deeper_conv_net": {
        "first_layer.0": (2, 32, 112, 112),
        "first_layer.2": (2, 32, 55, 55),
        "conv_layer.0": (2, 32, 55, 55),
        "convN": (2, 64, 28, 28),
        "avgpool": (2, 64, 1, 1),
        "fc1": (2, 10),
    },
    "mlp": {"fc1": (2, 16), "fc2": (2, 12), "fc3": (2, 10)},
}

MODULE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, num_classes=3):
        super().__init__()
        self.fc = nn.Linear(4, num_classes)

def takes_classes(width=5, *, classes):
    return nn.Linear(width, classes)

def takes_nothing():
    return nn.Linear(4, 2)

def reads_a_number():
    return nn.Linear(4, int(torch.arange(8).sum().item()))

def fails():
    raise KeyError("width")

def needs_width(width):
    return nn.Linear(width, 2)

def gives_a_list():
    return [nn.Linear(4, 2)]

built = nn.Linear(4, 2)
number = 7
"""


def on_meta(name: str, classes: int = 10) -> nn.Module:
    """The model of that name, without memory for its weights."""
    import torch

    with torch.device("meta"):
        return models.build(name, classes)


def printed(code: str) -> str:
    """What a fresh interpreter prints for the code, in the repository's root."""
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return ran.stdout.strip()


def parameters(model: nn.Module) -> int:
    """Elements of all weights and biases."""
    return sum(weight.numel() for weight in model.parameters())


def outputs(model: nn.Module, shape: tuple[int, ...]) -> dict[str, list[tuple[int, ...]]]:
    """Shapes of the tensors that each module gave out, call by call, in a forward on meta with batch 2."""
    import torch

    seen: dict[str, list[tuple[int, ...]]] = {}

    def watch(name: str) -> Callable[..., None]:
        def see(module: nn.Module, inputs: object, output: object) -> None:
            if isinstance(output, torch.Tensor):
                seen.setdefault(name, []).append(tuple(output.shape))

        return see

    for name, module in model.named_modules():
        module.register_forward_hook(watch(name))
    model(torch.empty(2, *shape, device="meta"))
    return seen


@pytest.fixture
def my_nets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of an importable module with factories of every kind."""
    (tmp_path / "my_nets.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_nets", raising=False)
    return "my_nets"


def test_importing_models_and_looking_up_a_listed_shape_imports_no_torch():
    """The list costs a collection nothing."""
    code = "import models, sys; models.input_shape('resnet18'); print('torch' in sys.modules)"

    assert printed(code) == "False"


@pytest.mark.parametrize("name", ["resnet18", "my_nets:Net"])
def test_the_first_import_of_torchvision_may_happen_on_meta(name, tmp_path, monkeypatch):
    """It fails on torch 2.7.1 unless the default device is lifted while modules are imported."""
    (tmp_path / "my_nets.py").write_text(f"import torchvision\n{MODULE}")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    code = f"import torch, models\nwith torch.device('meta'): print(models.build('{name}').fc.weight.device)"

    assert printed(code) == "meta"


def test_the_list_holds_the_studied_networks_and_no_other():
    """Four networks of the ratio study, its first table's, and the thirteen classifiers."""
    assert set(models.ARCHITECTURES) == set(STUDY_PARAMETERS) | set(PUBLISHED_PARAMETERS)


@pytest.mark.parametrize("name", STUDY_PARAMETERS)
def test_a_network_of_the_study_has_its_printed_layers(name):
    """Weights and biases, counted from the printed sizes."""
    assert parameters(on_meta(name)) == STUDY_PARAMETERS[name]


@pytest.mark.parametrize("name", PUBLISHED_PARAMETERS)
def test_a_classifier_has_its_published_number_of_parameters(name):
    """The last layer for 10 classes included."""
    assert parameters(on_meta(name)) == PUBLISHED_PARAMETERS[name]


@pytest.mark.parametrize("name", STUDY_SHAPES)
def test_layers_of_a_network_of_the_study_see_the_shapes_worked_out_by_hand(name):
    """Strides and paddings are the printed ones."""
    seen = outputs(on_meta(name), models.input_shape(name))

    assert {layer: seen[layer][-1] for layer in STUDY_SHAPES[name]} == STUDY_SHAPES[name]


@pytest.mark.parametrize("name", models.ARCHITECTURES)
def test_a_listed_network_tells_as_many_classes_apart_as_it_is_asked_to(name):
    """One output a class, one row a sample."""
    assert outputs(on_meta(name, classes=7), models.input_shape(name))[""] == [(2, 7)]


def test_one_net_is_three_layers_with_relu_between_them_only():
    """The forward pass, written out."""
    import torch
    from torch.nn import functional as F

    net, x = models.build("one_net"), torch.randn(5, 1)
    w1, b1, w2, b2, w3, b3 = net.parameters()
    by_hand = F.linear(F.linear(F.linear(x, w1, b1).clamp(min=0), w2, b2).clamp(min=0), w3, b3)

    assert by_hand.min() < 0
    assert torch.equal(net(x), by_hand)


def test_mlp_has_no_bias_and_a_relu_on_its_output_too():
    """The forward column of the study's table, written out."""
    import torch

    net, x = models.build("mlp"), torch.randn(50, 24)
    w1, w2, w3 = (weight.t() for weight in net.parameters())
    by_hand = (((x @ w1).clamp(min=0) @ w2).clamp(min=0) @ w3).clamp(min=0)

    assert (by_hand == 0).any()
    torch.testing.assert_close(net(x), by_hand)


def test_mlp_takes_its_sizes():
    """Any input, hidden layers and output."""
    from models.mlp import MLP

    assert parameters(MLP(inputs=2, hidden1=3, hidden2=5, outputs=7)) == 2 * 3 + 3 * 5 + 5 * 7


@pytest.mark.parametrize(
    ("name", "times"), [("deeper_conv_net_0", 0), ("deeper_conv_net_3", 3), ("deeper_conv_net", 100)]
)
def test_deeper_conv_net_applies_one_convolution_n_times(name, times):
    """More depth, the same weights."""
    model = on_meta(name)

    assert parameters(model) == STUDY_PARAMETERS["deeper_conv_net"]
    assert outputs(model, models.input_shape(name)).get("conv_layer.0", []) == [(2, 32, 55, 55)] * times


def test_any_depth_of_deeper_conv_net_is_a_name():
    """Depths need no row of their own."""
    assert on_meta("deeper_conv_net_1000").n == 1000


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("linear_net", (3, 224, 224)),
        ("one_net", (1,)),
        ("deeper_conv_net_7", (3, 224, 224)),
        ("mlp", (24,)),
        ("inception_v3", (3, 299, 299)),
        ("efficientnet_b1", (3, 240, 240)),
        ("vit_h_14", (3, 224, 224)),  # published at 518 too, which takes another position embedding
        ("fcn_resnet50", (3, 520, 520)),
        ("r3d_18", (3, 16, 112, 112)),
        ("fasterrcnn_resnet50_fpn", (3, 224, 224)),
        ("my_nets:Net", (3, 224, 224)),
    ],
)
def test_an_input_has_the_size_that_the_model_is_published_with(name, shape):
    """3x224x224 where nothing else is known."""
    assert models.input_shape(name) == shape


@pytest.mark.parametrize(
    "name", ["squeezenet1_1", "vgg11_bn", "regnet_y_400mf", "vit_b_16", "r3d_18", "swin_v2_t", "densenet121"]
)
def test_every_other_torchvision_classifier_is_a_name(name):
    """Images and clips; on meta also where the constructor reads a tensor (regnet)."""
    assert outputs(on_meta(name, classes=7), models.input_shape(name))[""] == [(2, 7)]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ["googlenet", "inception_v3"])
def test_networks_with_auxiliary_classifiers_build_without_a_warning(name):
    """In training they give out the auxiliary logits too."""
    import torch

    model = on_meta(name, classes=7)
    logits, *auxiliary = model(torch.empty(2, *models.input_shape(name), device="meta"))

    assert logits.shape == (2, 7)
    assert {tuple(more.shape) for more in auxiliary} == {(2, 7)}


def test_segmentation_detection_and_optical_flow_build_without_a_download(monkeypatch):
    """No weights are asked for, those of a backbone included."""
    from torchvision.models import WeightsEnum

    def refuse(weights: object, *args: object, **options: object) -> None:
        raise AssertionError(f"loads {weights}")

    monkeypatch.setattr(WeightsEnum, "get_state_dict", refuse)
    segments, detects = on_meta("fcn_resnet50", 7), on_meta("retinanet_resnet50_fpn", 7)

    assert segments.classifier[4].out_channels == 7
    assert detects.head.classification_head.num_classes == 7
    assert parameters(on_meta("raft_small")) == 990162  # torchvision's own table of weights


@pytest.mark.parametrize(
    ("wrong", "near"),
    [
        ("resnet5", "resnet50"),
        ("ResNet-50", "resnet50"),
        ("efficientnet-b0", "efficientnet_b0"),
        ("One-Net", "one_net"),
        ("deeper_conv_net_-3", "deeper_conv_net"),
        ("Inception V3", "inception_v3"),
    ],
)
def test_a_wrong_name_lists_the_near_ones(wrong, near):
    """Whatever its case, dashes and spaces."""
    for ask in (models.build, models.input_shape):
        with pytest.raises(
            models.UnknownArchitecture, match=rf"unknown architecture '{wrong}'; near: "
        ) as error:
            ask(wrong)

        assert near in str(error.value).split("near: ")[1].split("; ")[0].split(", ")
        assert str(error.value).endswith("; or give pkg.module:factory")


def test_a_name_near_no_other_lists_what_there_is():
    """All listed names, and that there are more."""
    with pytest.raises(
        models.UnknownArchitecture, match=r"'zzzzqqq'; have linear_net, one_net, .*torchvision"
    ):
        models.build("zzzzqqq")


@pytest.mark.parametrize("classes", [0, -1])
def test_fewer_than_one_class_is_refused(classes):
    """Before anything is built."""
    with pytest.raises(models.ArchitectureError, match=f"classes is {classes}; give 1 or more"):
        models.build("resnet18", classes)


def test_a_timm_model_is_a_name_where_timm_is_installed():
    """With the input size that timm publishes."""
    pytest.importorskip("timm", reason="needs timm; has none")
    name = "timm:vit_base_patch16_384.augreg_in21k_ft_in1k"

    assert models.input_shape(name) == (3, 384, 384)
    assert outputs(on_meta(name, classes=7), (3, 384, 384))[""] == [(2, 7)]


def test_a_wrong_timm_name_lists_the_near_ones():
    """As they would be typed."""
    pytest.importorskip("timm", reason="needs timm; has none")

    with pytest.raises(models.UnknownArchitecture, match=r"near: (.*, )?timm:resnet50,"):
        models.build("timm:resnet5")


def test_a_timm_name_without_timm_says_so(monkeypatch):
    """And how to get it."""
    monkeypatch.setitem(sys.modules, "timm", None)

    with pytest.raises(models.ArchitectureError, match=r"'timm:resnet18' needs timm; has none"):
        models.build("timm:resnet18")


@pytest.mark.parametrize(
    ("factory", "weight"),
    [("Net", (6, 4)), ("takes_classes", (6, 5)), ("takes_nothing", (2, 4)), ("reads_a_number", (28, 4))],
)
def test_a_factory_gets_the_classes_where_it_takes_them(my_nets, factory, weight):
    """A class or a function, by either word; on meta also where it reads a tensor."""
    made = next(on_meta(f"{my_nets}:{factory}", classes=6).parameters())

    assert tuple(made.shape) == weight
    assert made.is_meta


def test_a_factory_may_lie_in_the_current_directory(tmp_path, monkeypatch):
    """The import path is afterwards as before."""
    (tmp_path / "only_here.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    model = models.build("only_here:Net")
    monkeypatch.delitem(sys.modules, "only_here")

    assert type(model).__name__ == "Net"
    assert sys.path == before


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (
            "no_such_nets:Net",
            "no module 'no_such_nets'; install it or start from the directory that holds it",
        ),
        ("my_nets.deep:Net", "no module 'my_nets.deep'; install it or start from the directory"),
        ("my_nets:Nett", "'my_nets' has no 'Nett'; near: Net"),
        ("my_nets:number", "is of type int, which cannot be called; give a class or a function"),
        ("my_nets:built", "is a model already built; give the class or function that builds it"),
        ("my_nets:gives_a_list", "returned an object of type list; make it return a torch.nn.Module"),
        ("my_nets:fails", "failed to build its model (KeyError: 'width'); give a factory that"),
        ("my_nets:needs_width", "missing 1 required positional argument: 'width'); give a factory that"),
        ("my_nets:", "is not of the form pkg.module:factory"),
        ("nets/my.py:Net", "is not of the form pkg.module:factory"),
    ],
)
@pytest.mark.usefixtures("my_nets")
def test_a_wrong_factory_ends_in_one_sentence_that_names_what_to_change(name, sentence):
    """Not found, not callable, no model, raises."""
    with pytest.raises(models.ArchitectureError) as error:
        models.build(name)

    assert sentence in str(error.value)
    assert str(error.value).startswith(f"'{name}'")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("line", ["import no_such_package", "def (", "raise RuntimeError('no licence')"])
def test_a_module_that_does_not_import_is_told_from_one_that_is_not_there(line, tmp_path, monkeypatch):
    """Its own error is part of the sentence."""
    (tmp_path / "broken_nets.py").write_text(line)
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(models.ArchitectureError, match=r"importing 'broken_nets' failed \(\w+Error: .*\)"):
        models.build("broken_nets:Net")


@pytest.mark.parametrize(
    ("text", "shape"), [("3x64x64", (3, 64, 64)), ("1", (1,)), ("3x16x112x112", (3, 16, 112, 112))]
)
def test_a_shape_is_whole_numbers_joined_by_x(text, shape):
    """As many as the model takes."""
    assert models.parse_shape(text) == shape


@pytest.mark.parametrize(
    "text", ["", "3x0x64", "3x-1x64", "3x64x", "x3", "3,64,64", "3x6.4", "big", "3 x 64", "٣x2"]
)
def test_any_other_shape_is_refused(text):
    """The sentence repeats what was given."""
    with pytest.raises(
        ValueError, match="give whole numbers of 1 or more joined by x, such as 3x224x224"
    ) as error:
        models.parse_shape(text)

    assert repr(text) in str(error.value)
