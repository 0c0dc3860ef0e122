"""One call of each free operator on small tensors of distinct values.

A call is the overload, positional arguments and keywords. Torch comes as an argument.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Call = tuple[str, tuple[Any, ...], dict[str, Any]]

CUDA = "has kernels for CUDA alone"
BACKEND = "is implemented outside of PyTorch, by a backend"
META = "has a kernel for meta tensors alone, and a copy of it"
DRIVER = "asks the driver of an accelerator"
FUNCTIONAL = "is made for functionalization, which has no such tensors: sparse and nested ones have no kernel"
WRAPPER = "is answered in Python by the wrapper of nested tensors"
UNCALLABLE = {  # free operators that no CPU can run, each with the reason
    "aten._copy_from": BACKEND,
    "aten._copy_from_and_resize": BACKEND,
    "aten._cslt_compress": CUDA,
    "aten._cudnn_init_dropout_state": CUDA,
    "aten._cudnn_rnn_flatten_weight": CUDA,
    "aten._fill_mem_eff_dropout_mask": CUDA,
    "aten._convert_weight_to_int4pack": CUDA,
    "aten._nested_from_padded_tensor": WRAPPER,
    "aten._nested_get_jagged_dummy": WRAPPER,
    "aten._nested_get_lengths": WRAPPER,
    "aten._nested_get_max_seqlen": WRAPPER,
    "aten._nested_get_min_seqlen": WRAPPER,
    "aten._nested_get_offsets": WRAPPER,
    "aten._nested_get_ragged_idx": WRAPPER,
    "aten._nested_view_from_jagged_copy": FUNCTIONAL,
    "aten._pin_memory": DRIVER,
    "aten._resize_output": META,
    "aten._indices_copy": FUNCTIONAL,
    "aten._values_copy": FUNCTIONAL,
    "aten._sparse_broadcast_to_copy": FUNCTIONAL,
    "aten.indices_copy": FUNCTIONAL,
    "aten.values_copy": FUNCTIONAL,
    "aten._nested_get_values_copy": FUNCTIONAL,
    "aten._sparse_semi_structured_apply": CUDA,
    "aten._sparse_semi_structured_apply_dense": CUDA,
    "aten._to_sparse_semi_structured": CUDA,
    "aten._use_cudnn_ctc_loss": CUDA,
    "aten._use_miopen_ctc_loss": CUDA,
    "aten.record_stream": CUDA,
}


def call(*arguments: Any, overload: str = "default", **keywords: Any) -> Call:
    """A call of an overload."""
    return overload, arguments, keywords


def _numbers(torch: Any) -> Callable[..., Any]:
    """A function from sizes to a tensor of distinct numbers, none of them 0 or whole."""

    def numbers(*sizes: int) -> Any:
        n = torch.Size(sizes).numel()
        return (torch.arange(n, dtype=torch.float32) + 1.25 + n / 64).reshape(sizes).clone()

    return numbers


def views(torch: Any) -> dict[str, Call]:
    """Operators that name the same bytes."""
    n = _numbers(torch)
    x, column = n(3, 4), n(3, 1)
    return {
        "_lazy_clone": call(x),
        "_unsafe_view": call(x, [4, 3]),
        "as_strided_": call(x, [2, 2], [1, 2]),
        "detach_": call(n(3)),
        "lift": call(x),
        "resize_": call(x, [2, 3]),
        "resize_as_": call(x, column),
        "set_": call(column, x, overload="source_Tensor"),
        "squeeze_": call(column),
        "t_": call(x),
        "transpose_": call(x, 0, 1),
        "unsafe_split": call(x, 2, overload="Tensor"),
        "unsafe_split_with_sizes": call(x, [1, 2]),
        "unsqueeze_": call(x, 0),
    }


def copies(torch: Any) -> dict[str, Call]:
    """Operators that move or select elements."""
    n = _numbers(torch)
    x, y, line, cube = n(3, 4), n(3, 4) + 100, n(4), n(2, 4, 4)
    image, volume = n(1, 4, 4, 4), n(1, 2, 3, 3, 3)
    at, mask = torch.tensor([2, 0]), x > 4
    where = torch.tensor([[0, 1, 2], [1, 0, 3]])
    sparse = torch.sparse_coo_tensor(where, n(3), (3, 4)).coalesce()
    csr, csc = x.to_sparse_csr(), x.to_sparse_csc()
    ends = torch.tensor([0, 1, 3])
    nested = torch.nested.nested_tensor([n(2, 4), n(3, 4) + 50])
    sizes, strides = nested._nested_tensor_size(), nested._nested_tensor_strides()
    offsets = nested._nested_tensor_storage_offsets()
    z = torch.complex(x, y)
    selecting = {
        "_chunk_cat": call([x, y], 0, 1),
        "_coalesced": call(sparse, True),
        "_stack": call([x, y]),
        "_unsafe_index": call(x, [at], overload="Tensor"),
        "_unsafe_masked_index": call(x, mask, [torch.zeros(3, 4).long(), torch.arange(4).expand(3, 4)], 9.5),
        "block_diag": call([x, y]),
        "cat": call([x, y]),
        "channel_shuffle": call(image, 2),
        "clone": call(x),
        "complex": call(x, y),
        "constant_pad_nd": call(x, [1, 1], 9.5),
        "copy": call(x, y),
        "diag_embed": call(line),
        "diagonal_backward": call(n(3), [3, 4], 0, 0, 1),
        "embedding": call(x, at),
        "fill": call(x, 9.5, overload="Scalar"),
        "flip": call(x, [0]),
        "gather": call(x, 1, torch.tensor([[3, 1]])),
        "im2col": call(image, [2, 2], [1, 1], [1, 1], [1, 1]),
        "index": call(x, [at], overload="Tensor"),
        "index_copy": call(x, 0, at, n(2, 4) + 50),
        "index_fill": call(x, 0, at, 9.5, overload="int_Scalar"),
        "index_select": call(x, 0, at),
        "lu_unpack": call(n(3, 3), torch.tensor([1, 3, 3], dtype=torch.int32)),
        "masked_fill": call(x, mask, 9.5, overload="Scalar"),
        "masked_scatter": call(x, mask, y),
        "masked_select": call(x, mask),
        "max_unpool2d": call(n(1, 1, 2, 2), torch.tensor([[[[0, 3], [8, 10]]]]), [4, 4]),
        "max_unpool3d": call(n(1, 1, 1, 1, 2), torch.tensor([[[[[0, 5]]]]]), [2, 2, 4], [2] * 3, [0] * 3),
        "pixel_shuffle": call(image, 2),
        "pixel_unshuffle": call(image, 2),
        "reflection_pad1d": call(x, [1, 1]),
        "reflection_pad2d": call(cube, [1, 1, 1, 1]),
        "reflection_pad3d": call(volume, [1] * 6),
        "repeat": call(x, [2, 1]),
        "replication_pad1d": call(x, [1, 1]),
        "replication_pad2d": call(cube, [1, 1, 1, 1]),
        "replication_pad3d": call(volume, [1] * 6),
        "roll": call(x, [1]),
        "rot90": call(x),
        "select_backward": call(line, [3, 4], 0, 1),
        "select_scatter": call(x, line + 50, 0, 1),
        "shallow_copy_data_": call(n(3, 4), y),
        "slice_backward": call(n(2, 4), [3, 4], 0, 0, 2, 1),
        "slice_scatter": call(x, n(2, 4) + 50, 0, 0, 2),
        "stack": call([x, y]),
        "take": call(x, at),
        "tril": call(x),
        "triu": call(x),
        "where": call(mask, x, y, overload="self"),
        "zero": call(x),
        "_foreach_clone": call([x, line]),
        "_foreach_copy": call([x, line], [y, line + 50]),
        "_foreach_zero": call([x, line]),
        "as_strided_scatter": call(x, n(2, 2) + 50, [2, 2], [1, 2]),
        "diagonal_scatter": call(x, n(3) + 50),
        **{f"{kind}1d": call(n(1, 2, 4), [7]) for kind in ("upsample_nearest", "_upsample_nearest_exact")},
        **{f"{kind}2d": call(image, [7, 3]) for kind in ("upsample_nearest", "_upsample_nearest_exact")},
        **{f"{kind}3d": call(volume, [4, 5, 2]) for kind in ("upsample_nearest", "_upsample_nearest_exact")},
    }
    copied_views = {
        "_nested_view_from_buffer_copy": call(n(20), sizes, strides, offsets),
        "_reshape_alias_copy": call(x, [4, 3], [3, 1]),
        "_reshape_copy": call(x, [4, 3]),
        "alias_copy": call(x),
        "as_strided_copy": call(x, [2, 2], [1, 2]),
        "ccol_indices_copy": call(csc),
        "col_indices_copy": call(csr),
        "crow_indices_copy": call(csr),
        "detach_copy": call(x),
        "diagonal_copy": call(x),
        "expand_copy": call(line, [3, 4]),
        "lift_fresh_copy": call(x),
        "narrow_copy": call(x, 0, 1, 2),
        "permute_copy": call(x, [1, 0]),
        "row_indices_copy": call(csc),
        "select_copy": call(x, 0, 1, overload="int"),
        "slice_copy": call(x, 0, 0, 2, overload="Tensor"),
        "split_copy": call(x, 2, overload="Tensor"),
        "split_with_sizes_copy": call(x, [1, 2]),
        "squeeze_copy": call(n(3, 1)),
        "t_copy": call(x),
        "transpose_copy": call(x, 0, 1, overload="int"),
        "unbind_copy": call(x, overload="int"),
        "unfold_copy": call(x, 1, 2, 1),
        "unsqueeze_copy": call(x, 0),
        "view_as_complex_copy": call(n(3, 2)),
        "view_as_real_copy": call(z),
        "view_copy": call(x, [4, 3]),
    }
    ragged = {
        "_jagged_to_padded_dense_forward": call(n(3, 4), [ends], [2]),
        "_padded_dense_to_jagged_forward": call(cube[:, :2], [ends], 3),
        "_nested_from_padded": call(cube, sizes),
        "_nested_from_padded_and_nested_example": call(cube, nested),
        "_nested_select_backward": call(n(2, 4), nested, 0, 0),
        "_nested_tensor_from_mask": call(cube, torch.tensor([[1, 1, 0, 0], [1, 1, 1, 0]]).bool()),
        "_nested_tensor_from_tensor_list": call([n(2, 4), n(3, 4) + 50]),
        "_pack_padded_sequence": call(n(3, 2, 4), torch.tensor([3, 2]), False),
        "to_padded_tensor": call(nested, 9.5),
    }
    stored = {
        "_sparse_coo_tensor_with_dims_and_tensors": call(
            2, 0, [3, 4], where, n(3), layout=torch.sparse_coo, device=torch.device("cpu")
        ),
        "_sparse_mask_projection": call(sparse, sparse),
        "_spdiags": call(x, torch.tensor([0, 1, -1]), [4, 4]),
        "copy_sparse_to_sparse": call(sparse, sparse),
        "resize_as_sparse": call(sparse, sparse),
        "sparse_compressed_tensor": call(
            csr.crow_indices(), csr.col_indices(), csr.values(), [3, 4],
            overload="comp_plain_value_size", layout=torch.sparse_csr,
        ),
        "sparse_mask": call(x, sparse),
        "sparse_resize": call(sparse, [5, 6], 2, 0),
        "sparse_resize_and_clear": call(sparse, [5, 6], 2, 0),
    }  # fmt: skip
    return selecting | copied_views | ragged | stored


def duals(torch: Any) -> dict[str, Call]:
    """Copies that forward-mode differentiation makes; they run in inference mode alone."""
    x = _numbers(torch)(3, 4)
    return {"_fw_primal_copy": call(x, 0), "_make_dual_copy": call(x, x + 100, 0)}


def casts(torch: Any) -> dict[str, Call]:
    """Operators that give equal values in another dtype or layout."""
    n = _numbers(torch)
    x, whole = n(4, 4), torch.arange(12, dtype=torch.int8).reshape(3, 4)
    scales = torch.ones(3, dtype=torch.float64)
    return {
        "_to_copy": call(x, dtype=torch.float64),
        "_to_dense": call(x.to_sparse()),
        "_to_sparse": call(x),
        "_to_sparse_bsc": call(x, [2, 2]),
        "_to_sparse_bsr": call(x, [2, 2]),
        "_to_sparse_csc": call(x),
        "_to_sparse_csr": call(x),
        "int_repr": call(torch._make_per_tensor_quantized_tensor(whole, 1.0, 0)),
        "_make_per_tensor_quantized_tensor": call(whole, 1.0, 0),
        "_make_per_channel_quantized_tensor": call(whole, scales, torch.zeros(3).long(), 0),
        "to_mkldnn": call(x),
        "_mkldnn_reshape": call(x.to_mkldnn(), [16, 1]),
        "_mkldnn_transpose": call(x.to_mkldnn(), 0, 1),
        "mkldnn_reorder_conv2d_weight": call(n(2, 3, 3, 3).to_mkldnn()),
        "mkldnn_reorder_conv3d_weight": call(n(2, 3, 3, 3, 3).to_mkldnn()),
    }


def factories(torch: Any, path: str) -> dict[str, Call]:
    """Operators that make a tensor of constants or integers; path: a file of 16 bytes."""
    x, key = _numbers(torch)(3, 4), torch.tensor([1, 0], dtype=torch.uint64)
    cpu = {"device": torch.device("cpu")}
    return {
        "_efficientzerotensor": call([3]),
        "_new_zeros_with_same_feature_meta": call(x, x),
        "_sparse_coo_tensor_with_dims": call(2, 0, [3, 4], layout=torch.sparse_coo, **cpu),
        "_philox_key_fold_in": call(key, 1),
        "_philox_key_split": call(key, 2),
        "_philox_normal": call(x, key),
        "_philox_uniform": call(x, key),
        "arange": call(5),
        **{f"{name}_window": call(8) for name in ("bartlett", "blackman", "hamming", "hann", "kaiser")},
        "eye": call(3),
        "fft_fftfreq": call(5),
        "fft_rfftfreq": call(5),
        "from_file": call(path, False, 4, dtype=torch.float32),
        "full": call([3], 2.5),
        "full_like": call(x, 2.5),
        "linspace": call(0, 1, 5),
        "logspace": call(0, 1, 5),
        "new_full": call(x, [3], 2.5),
        "new_ones": call(x, [3]),
        "new_zeros": call(x, [3]),
        "ones": call([3]),
        "ones_like": call(x),
        "range": call(0, 4, overload="default"),
        "scalar_tensor": call(2.5),
        "sparse_coo_tensor": call([3, 4], overload="size", layout=torch.sparse_coo, **cpu),
        "tril_indices": call(3, 3),
        "triu_indices": call(3, 3),
        "zeros": call([3]),
        "zeros_like": call(x),
    }


def uninitialized(torch: Any) -> dict[str, Call]:
    """Operators that make a tensor without giving it elements."""
    x = _numbers(torch)(3, 4)
    quantized = torch.quantize_per_tensor(x, 0.5, 0, torch.qint8)
    scales = torch.ones(3, dtype=torch.float64)
    return {
        "_make_dep_token": call(),
        "_sparse_compressed_tensor_with_dims": call(
            2, 0, [3, 4], [], torch.int64, layout=torch.sparse_csr, dtype=torch.float32
        ),
        "empty": call([3, 4], overload="memory_format"),
        "empty_like": call(x),
        "empty_permuted": call([3, 4], [0, 1]),
        "empty_strided": call([3, 4], [4, 1]),
        "new_empty": call(x, [3, 4]),
        "new_empty_strided": call(x, [3, 4], [4, 1]),
        "empty_quantized": call([3, 4], quantized),
        "_empty_affine_quantized": call([3, 4], dtype=torch.qint8, scale=1.0),
        "_empty_per_channel_affine_quantized": call(
            [3, 4], scales=scales, zero_points=torch.zeros(3).long(), axis=0, dtype=torch.qint8
        ),
    }


def drawn(torch: Any) -> dict[str, Call]:
    """Operators that draw random numbers."""
    x = _numbers(torch)(3, 40)
    return {
        "_sample_dirichlet": call(x),
        "_standard_gamma": call(x),
        "bernoulli": call(x / 200),
        "binomial": call(x, x / 200),
        "cauchy": call(x),
        "exponential": call(x),
        "geometric": call(x, 0.01),
        "log_normal": call(x),
        "multinomial": call(x, 5),
        "normal": call(x, x, overload="Tensor_Tensor"),
        "normal_functional": call(x),
        "poisson": call(x),
        "rand": call([64]),
        "rand_like": call(x),
        "randint": call(1000, [64]),
        "randint_like": call(x, 1000),
        "randn": call([64]),
        "randn_like": call(x),
        "random": call(x, 1000, overload="to"),
        "randperm": call(64),
        "uniform": call(x),
    }


def books(torch: Any) -> dict[str, Call]:
    """Operators that keep integer books."""
    n = _numbers(torch)
    x, token = n(3, 4), torch.empty(0)
    where = torch.tensor([[0, 1, 2], [1, 0, 3]])
    sparse = torch.sparse_coo_tensor(where, n(3), (3, 4)).coalesce()
    csr = x.to_sparse_csr()
    nested = torch.nested.nested_tensor([n(2, 4), n(3, 4)])
    yes = torch.tensor([True, False])
    whole = torch.arange(6, dtype=torch.int8).reshape(2, 3)
    per_tensor = torch._make_per_tensor_quantized_tensor(whole, 0.5, 0)
    axis = torch.tensor([0.5, 0.25], dtype=torch.float64), torch.zeros(2).long()
    per_channel = torch._make_per_channel_quantized_tensor(whole, *axis, 0)
    scale = torch.tensor(4.0), torch.tensor(0, dtype=torch.int32), torch.tensor(0.0)
    heads = n(1, 2, 8, 8)
    return {
        "_amp_update_scale": call(*scale, 2.0, 0.5, 2000),
        "_assert_async": call(torch.tensor(True)),
        "_assert_scalar": call(1, "x"),
        "_assert_tensor_metadata": call(x, [3, 4]),
        "_convert_indices_from_coo_to_csr": call(torch.tensor([0, 1, 1]), 3),
        "_convert_indices_from_csr_to_coo": call(torch.tensor([0, 1, 3]), torch.tensor([0, 1, 2])),
        "_convert_weight_to_int4pack_for_cpu": call(torch.ones(32, 32, dtype=torch.int32), 2),
        "_dimI": call(sparse),
        "_dimV": call(sparse),
        "_dyn_quant_pack_4bit_weight": call(
            torch.ones(32, 32, dtype=torch.uint8), torch.ones(64), None, 64, 64, 32
        ),
        "_functional_assert_async": call(torch.tensor(True), "x", token, overload="msg"),
        "_functional_assert_scalar": call(1, "x", token),
        "_functional_sym_constrain_range": call(3, 0, 9, token),
        "_functional_sym_constrain_range_for_size": call(3, 2, 9, token),
        "_fused_sdp_choice": call(heads, heads, heads),
        "_has_same_storage_numel": call(x, x),
        "_is_all_true": call(yes),
        "_is_any_true": call(yes),
        "_linalg_check_errors": call(torch.tensor(0, dtype=torch.int32), "x", is_matrix=True),
        "_local_scalar_dense": call(torch.tensor(2.5)),
        "_nested_compute_contiguous_strides_offsets": call(nested._nested_tensor_size()),
        "_nested_tensor_from_mask_left_aligned": call(n(2, 3, 4), torch.ones(2, 3).bool()),
        "_nested_tensor_size": call(nested),
        "_nested_tensor_storage_offsets": call(nested),
        "_nested_tensor_strides": call(nested),
        "_nnz": call(sparse),
        "_print": call(""),
        "_validate_compressed_sparse_indices": call(True, csr.crow_indices(), csr.col_indices(), 3, 4, 12),
        "dense_dim": call(sparse),
        "dim": call(x),
        "hash_tensor": call(x),
        "is_coalesced": call(sparse),
        "is_contiguous": call(x),
        "is_pinned": call(x),
        "is_same_size": call(x, x),
        "is_set_to": call(x, x),
        "nonzero": call(x),
        "nonzero_static": call(x, size=4),
        "numel": call(x),
        "q_per_channel_axis": call(per_channel),
        "q_per_channel_scales": call(per_channel),
        "q_per_channel_zero_points": call(per_channel),
        "q_scale": call(per_tensor),
        "q_zero_point": call(per_tensor),
        "qscheme": call(per_tensor),
        "repeat_interleave": call(torch.tensor([2, 0, 1]), overload="Tensor"),
        "size": call(x),
        "sparse_dim": call(sparse),
        "storage_offset": call(x),
        "stride": call(x),
        "sym_constrain_range": call(3, min=0, max=9),
        "sym_constrain_range_for_size": call(3, min=2, max=9),
        "sym_is_contiguous": call(x),
        "sym_numel": call(x),
        "sym_size": call(x),
        "sym_storage_offset": call(x),
        "sym_stride": call(x),
    }
