"""How a step is run: compiled, under a context, checkpointed, in several batches; and optimizers."""

from __future__ import annotations

from tests.cases.case import BENCHMARK, DEEPSPEED, LITGPT, PTFLOPS, PYTORCH, RATIO, Case
from tests.cases.modules import FIRST, NET, NET_BACK

COMPILED = (
    Case(
        "compiled_cold",
        "compiled",
        "compiled(Named(), 'aot_eager')",
        "d(5, 6)",
        NET,
        NET_BACK,
        f"{PTFLOPS}issues/110",
    ),
    Case(
        "compiled_warm",
        "compiled",
        "warm(compiled(Named(), 'eager'), 5, 6)",
        "d(5, 6)",
        NET,
        NET_BACK,
        f"{PYTORCH}issues/140909",
    ),
    Case(
        "compiled_inductor",
        "compiled",
        "warm(compiled(Named(), 'inductor'), 5, 6)",
        "d(5, 6)",
        NET,
        NET_BACK,
        f"{BENCHMARK}pull/2390",
        needs="a C++ compiler",
        no_model="code compiled to C++",
    ),
)

CONTEXTS = (
    Case(
        "autocast",
        "layout and dtype",
        "Under(bfloat16, Named())",
        "d(5, 6)",
        NET,
        NET_BACK,
        f"{PYTORCH}issues/119806",
    ),
    Case(
        "no_grad",
        "no gradient",
        "Under(torch.no_grad, Named())",
        "d(5, 6)",
        NET,
        None,
        f"{PYTORCH}issues/126268",
    ),
    Case(
        "inference_mode",
        "no gradient",
        "Under(torch.inference_mode, Named())",
        "d(5, 6)",
        NET,
        None,
        f"{PYTORCH}issues/126268",
    ),
)

AGAIN = (
    Case(  # what runs again ends with the last tensor that is needed, the input of the second layer
        "checkpoint",
        "checkpoint",
        "Checkpointed(Named(), reentrant=False)",
        "d(5, 6)",
        NET,
        NET_BACK,
        f"{DEEPSPEED}pull/3362",
        recomputed=FIRST,
    ),
    Case(  # this kind runs again to its end, and only where the input needs a gradient
        "checkpoint_reentrant",
        "checkpoint",
        "Checkpointed(Named(), reentrant=True)",
        "r(5, 6)",
        NET,
        NET_BACK + FIRST,
        "https://github.com/stas00/ml-engineering/pull/47",
        recomputed=NET,
    ),
    Case(
        "accumulation",
        "accumulation",
        "Each(Named())",
        "d(5, 6), d(5, 6), d(5, 6)",
        3 * NET,
        3 * NET_BACK,
        f"{LITGPT}issues/403",
    ),
)

STEP = "an optimizer's step"

OPTIMIZERS = (
    Case(  # it scales and adds
        "adamw",
        "optimizer",
        "Update('AdamW', 6, 8, foreach=True)",
        "d(1)",
        0,
        None,
        RATIO,
        update=0,
        no_model=STEP,
    ),
    Case(  # five Newton-Schulz rounds on X, 6 x 8: A = X Xᵀ, A A, and B X
        "muon",
        "optimizer",
        "Update('Muon', 6, 8)",
        "d(1)",
        0,
        None,
        f"{PYTORCH}issues/93121",
        update=5 * (2 * 6 * 8 * 6 + 2 * 6 * 6 * 6 + 2 * 6 * 6 * 8),
        needs="torch.optim.Muon",
        no_model=STEP,
    ),
)

CASES = (*COMPILED, *CONTEXTS, *AGAIN, *OPTIMIZERS)
