"""Operations that cost nothing.

They name, move, make or convert data, or keep integer books. Each row says why.

A test shows for every row that it is what its row says.
"""

from __future__ import annotations

from enum import StrEnum


class Free(StrEnum):
    """Why an operation costs no FLOP."""

    VIEW = "view: other sizes, strides or names for the same bytes"
    COPY = "copy: moves or selects elements, also by index or mask"
    FACTORY = "factory: makes a tensor, of constants, of integers or of random numbers"
    CAST = "cast: another dtype, layout or device"
    INTEGER = "integer bookkeeping: indices, sizes, flags, checks"


_VIEW = """
_lazy_clone _resize_output _unsafe_view as_strided detach lift resize resize_as set squeeze t transpose
unsafe_split unsafe_split_with_sizes unsqueeze
"""
_COPY = """
_chunk_cat _coalesced _copy_from _copy_from_and_resize _cslt_compress _cudnn_rnn_flatten_weight _foreach_clone
_foreach_copy _foreach_zero _fw_primal_copy _indices_copy _jagged_to_padded_dense_forward _make_dual_copy
_nested_from_padded _nested_from_padded_and_nested_example _nested_from_padded_tensor _nested_get_values_copy
_nested_select_backward _nested_tensor_from_mask _nested_tensor_from_tensor_list _nested_view_from_buffer_copy
_nested_view_from_jagged_copy _pack_padded_sequence _padded_dense_to_jagged_forward _pin_memory
_reshape_alias_copy _reshape_copy _sparse_broadcast_to_copy _sparse_coo_tensor_with_dims_and_tensors
_sparse_mask_projection _sparse_semi_structured_apply _sparse_semi_structured_apply_dense _spdiags _stack
_unsafe_index _unsafe_masked_index _upsample_nearest_exact1d _upsample_nearest_exact2d
_upsample_nearest_exact3d _values_copy alias_copy as_strided_copy as_strided_scatter block_diag cat
ccol_indices_copy channel_shuffle clone col_indices_copy complex constant_pad_nd copy copy_sparse_to_sparse
crow_indices_copy detach_copy diag_embed diagonal_backward diagonal_copy diagonal_scatter embedding
expand_copy fill flip gather im2col index index_copy index_fill index_select indices_copy lift_fresh_copy
lu_unpack masked_fill masked_scatter masked_select max_unpool2d max_unpool3d narrow_copy permute_copy
pixel_shuffle pixel_unshuffle reflection_pad1d reflection_pad2d reflection_pad3d repeat replication_pad1d
replication_pad2d replication_pad3d resize_as_sparse roll rot90 row_indices_copy select_backward select_copy
select_scatter shallow_copy_data slice_backward slice_copy slice_scatter sparse_compressed_tensor sparse_mask
sparse_resize sparse_resize_and_clear split_copy split_with_sizes_copy squeeze_copy stack t_copy take
to_padded_tensor transpose_copy tril triu unbind_copy unfold_copy unsqueeze_copy upsample_nearest1d
upsample_nearest2d upsample_nearest3d values_copy view_as_complex_copy view_as_real_copy view_copy where zero
"""
_FACTORY = """
_cudnn_init_dropout_state _efficientzerotensor _empty_affine_quantized _empty_per_channel_affine_quantized
_fill_mem_eff_dropout_mask _make_dep_token _nested_get_jagged_dummy _new_zeros_with_same_feature_meta
_philox_key_fold_in _philox_key_split _philox_normal _philox_uniform _sample_dirichlet
_sparse_compressed_tensor_with_dims _sparse_coo_tensor_with_dims _standard_gamma arange bartlett_window
bernoulli binomial blackman_window cauchy empty empty_like empty_permuted empty_quantized empty_strided
exponential eye fft_fftfreq fft_rfftfreq from_file full full_like geometric hamming_window hann_window
kaiser_window linspace log_normal logspace multinomial new_empty new_empty_strided new_full new_ones new_zeros
normal normal_functional ones ones_like poisson rand rand_like randint randint_like randn randn_like random
randperm range scalar_tensor sparse_coo_tensor tril_indices triu_indices uniform zeros zeros_like
"""
_CAST = """
_make_per_channel_quantized_tensor _make_per_tensor_quantized_tensor _mkldnn_reshape _mkldnn_transpose
_to_copy _to_dense _to_sparse _to_sparse_bsc _to_sparse_bsr _to_sparse_csc _to_sparse_csr
_to_sparse_semi_structured int_repr mkldnn_reorder_conv2d_weight mkldnn_reorder_conv3d_weight to_mkldnn
"""
_INTEGER = """
_amp_update_scale _assert_async _assert_scalar _assert_tensor_metadata _convert_indices_from_coo_to_csr
_convert_indices_from_csr_to_coo _convert_weight_to_int4pack _convert_weight_to_int4pack_for_cpu _dimI _dimV
_dyn_quant_pack_4bit_weight _functional_assert_async _functional_assert_scalar _functional_sym_constrain_range
_functional_sym_constrain_range_for_size _fused_sdp_choice _has_same_storage_numel _is_all_true _is_any_true
_linalg_check_errors _local_scalar_dense _nested_compute_contiguous_strides_offsets _nested_get_lengths
_nested_get_max_seqlen _nested_get_min_seqlen _nested_get_offsets _nested_get_ragged_idx
_nested_tensor_from_mask_left_aligned _nested_tensor_size _nested_tensor_storage_offsets
_nested_tensor_strides _nnz _print _use_cudnn_ctc_loss _use_miopen_ctc_loss
_validate_compressed_sparse_indices dense_dim dim hash_tensor is_coalesced is_contiguous is_pinned
is_same_size is_set_to nonzero nonzero_static numel q_per_channel_axis q_per_channel_scales
q_per_channel_zero_points q_scale q_zero_point qscheme record_stream repeat_interleave size sparse_dim
storage_offset stride sym_constrain_range sym_constrain_range_for_size sym_is_contiguous sym_numel sym_size
sym_storage_offset sym_stride
"""

_COMMUNICATION = """
c10d.allreduce_ c10d.allreduce_coalesced_ c10d.broadcast_ c10d.allgather_ c10d._allgather_base_
c10d.allgather_coalesced_ c10d.allgather_into_tensor_coalesced_ c10d.reduce_ c10d.reduce_scatter_
c10d._reduce_scatter_base_ c10d.reduce_scatter_tensor_coalesced_ c10d.gather_ c10d.scatter_ c10d.alltoall_
c10d.alltoall_base_ c10d.send c10d.recv_ c10d.recv_any_source_ _c10d_functional.all_reduce
_c10d_functional.all_reduce_ _c10d_functional.all_gather_into_tensor _c10d_functional.reduce_scatter_tensor
_c10d_functional.all_to_all_single _c10d_functional.broadcast _c10d_functional.wait_tensor
"""

_OTHERS = {
    "prim.device": Free.INTEGER,
    "prim.layout": Free.INTEGER,
    "profiler._record_function_enter": Free.INTEGER,
    "profiler._record_function_enter_new": Free.INTEGER,
    "profiler._record_function_exit": Free.INTEGER,
    "debugprims.load_tensor": Free.FACTORY,
    "inductor.resize_storage_bytes_": Free.VIEW,
    # communication moves data; the sums of a reduction over ranks are left out
    **dict.fromkeys(
        _COMMUNICATION.split(),
        Free.COPY,
    ),
    "c10d.barrier": Free.INTEGER,
    # fully_shard packs parameters and gradients for its collectives
    "fsdp.all_gather_copy_in": Free.COPY,
    "fsdp.chunk_cat": Free.COPY,
    "fsdp.copy": Free.COPY,
    "fsdp.split_with_sizes_copy": Free.COPY,
}

FREE: dict[str, Free] = {
    **{
        f"aten.{name}": why
        for why, names in (
            (Free.VIEW, _VIEW),
            (Free.COPY, _COPY),
            (Free.FACTORY, _FACTORY),
            (Free.CAST, _CAST),
            (Free.INTEGER, _INTEGER),
        )
        for name in names.split()
    },
    **_OTHERS,
}
"""Operator (without overload, without the underscore of an in-place variant) -> why it is free."""
