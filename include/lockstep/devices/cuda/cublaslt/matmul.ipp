#pragma once

#include "lockstep/devices/cuda/cublaslt/matmul.hpp"

#include <charconv>

namespace lockstep::detail::cuda {

LtMatmul::LtMatmul(cublasLtHandle_t handle, const LtProduct& p, std::size_t workspace,
                   std::string_view name)
    : handle_(handle) {
  check(cublaslt().cublasLtMatmulDescCreate(&matmul_.value, p.compute, CUDA_R_32F),
        "describing a matrix product");
  // A is our right matrix and B our left one; see the header.
  set(CUBLASLT_MATMUL_DESC_TRANSA, p.right_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_TRANSB, p.left_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, p.epilogue);
  has_bias_ = p.epilogue != CUBLASLT_EPILOGUE_DEFAULT && p.epilogue != CUBLASLT_EPILOGUE_RELU;
  if (has_bias_) {
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, p.bias);
    // Not dereferenced here; conveys the alignment to the heuristics.
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, reinterpret_cast<const void*>(alignment));
  }
  right_.make(p.factors, p.right_transposed ? p.depth : p.columns,
              p.right_transposed ? p.columns : p.depth);
  left_.make(p.factors, p.left_transposed ? p.rows : p.depth, p.left_transposed ? p.depth : p.rows);
  out_.make(p.result, p.columns, p.rows);
  if (name.empty())
    find(p, workspace);
  else
    read(name, workspace);
}

std::string LtMatmul::name(std::size_t algorithm) const {
  static constexpr char digits[] = "0123456789abcdef";
  std::string all;
  // cublasLtMatmulAlgo_t is plain data without pointers, so its words can be stored on disk.
  for (const std::uint64_t word : algorithms_[algorithm].algo.data)
    for (int shift = 60; shift >= 0; shift -= 4) all += digits[word >> shift & 15];
  return all;
}

void LtMatmul::run(std::size_t algorithm, const void* left, const void* right, void* bias,
                   void* out, void* workspace, cudaStream_t stream) {
  if (has_bias_) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(bias));
  // alpha and beta: out = 1 * product + 0 * out
  const float one = 1, zero = 0;
  check(cublaslt().cublasLtMatmul(handle_, matmul_.value, &one, right, right_.value, left,
                                  left_.value, &zero, out, out_.value, out, out_.value,
                                  &algorithms_[algorithm].algo, workspace,
                                  algorithms_[algorithm].workspaceSize, stream),
        "running a matrix product");
}

LtMatmul::Description::~Description() {
  if (value != nullptr) cublaslt().cublasLtMatmulDescDestroy(value);
}

LtMatmul::Layout::~Layout() {
  if (value != nullptr) cublaslt().cublasLtMatrixLayoutDestroy(value);
}

void LtMatmul::Layout::make(cudaDataType_t type, std::int64_t rows, std::int64_t columns) {
  check(cublaslt().cublasLtMatrixLayoutCreate(&value, type, static_cast<std::uint64_t>(rows),
                                              static_cast<std::uint64_t>(columns), rows),
        "describing a matrix");
}

LtMatmul::Preference::Preference() {
  check(cublaslt().cublasLtMatmulPreferenceCreate(&value), "describing a search for algorithms");
}

void LtMatmul::find(const LtProduct& p, std::size_t workspace) {
  Preference preference;
  preference.set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{workspace});
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, p.right_alignment);
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, p.left_alignment);
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, p.out_alignment);
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, p.out_alignment);
  if (p.deterministic)  // no in-place reduction, whose order of additions varies
    preference.set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                   std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE |
                                 CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE});
  int count = 0;
  const cublasStatus_t status = cublaslt().cublasLtMatmulAlgoGetHeuristic(
      handle_, matmul_.value, right_.value, left_.value, out_.value, out_.value, preference.value,
      max_algorithms, algorithms_.data(), &count);
  // An unsupported product is not an error: no algorithm is offered.
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return;
  check(status, "asking cuBLASLt for algorithms");
  for (int i = 0; i < count; ++i) {
    const auto& algorithm = algorithms_[static_cast<std::size_t>(i)];
    if (algorithm.state == CUBLAS_STATUS_SUCCESS) algorithms_[count_++] = algorithm;
  }
}

void LtMatmul::read(std::string_view name, std::size_t workspace) {
  cublasLtMatmulAlgo_t algo{};
  if (name.size() != 16 * std::size(algo.data)) return;
  for (std::uint64_t& word : algo.data) {
    const auto r = std::from_chars(name.data(), name.data() + 16, word, 16);
    if (r.ec != std::errc{} || r.ptr != name.data() + 16) return;
    name.remove_prefix(16);
  }
  // cuBLASLt validates the algorithm against the product and reports its workspace.
  cublasLtMatmulHeuristicResult_t checked{};
  if (cublaslt().cublasLtMatmulAlgoCheck(handle_, matmul_.value, right_.value, left_.value,
                                         out_.value, out_.value, &algo,
                                         &checked) != CUBLAS_STATUS_SUCCESS ||
      checked.workspaceSize > workspace)
    return;
  algorithms_[0] = checked;
  algorithms_[0].algo = algo;
  count_ = 1;
}

}  // namespace lockstep::detail::cuda
