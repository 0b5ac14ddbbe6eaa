/// \file
/// Products of matrices by cuBLASLt. Invariant: our matrices lie row by row, cuBLASLt's column by
/// column, which is the transposed one of the same bytes; so it is asked for right^T * left^T, and
/// its A is our right matrix.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/core/config.hpp"
#include "lockstep/devices/cuda/libraries/cublaslt.hpp"

namespace lockstep::detail::cuda {

/// rows x columns numbers out of left (rows x depth) and right (depth x columns).
struct LtProduct {
  std::int64_t rows = 0, columns = 0, depth = 0;
  bool left_transposed = false, right_transposed = false;  ///< they lie in memory so
  cudaDataType_t factors = CUDA_R_32F, result = CUDA_R_32F;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  /// BIAS: a number for each column is added. RELU: what is negative then becomes 0. BGRADA: the
  /// sums over the depth of the right matrix are written, a number for each column.
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  cudaDataType_t bias = CUDA_R_32F;
  bool deterministic = false;  ///< two runs must give the same bits
  /// In bytes, of the places.
  std::uint32_t left_alignment = 16, right_alignment = 16, out_alignment = 16;
};

/// A product described to cuBLASLt, and the algorithms that it offers.
class LtMatmul {
 public:
  /// Up to `max_algorithms` algorithms that need no more than `workspace` bytes. With a `name`, the algorithm of
  /// that name only, or none if cuBLASLt does not know it. \throws DeviceError if cuBLASLt refuses.
  LOCKSTEP_COLD_DECL LtMatmul(cublasLtHandle_t handle, const LtProduct& p, std::size_t workspace,
                              std::string_view name = {});

  /// None: cuBLASLt cannot do it.
  std::size_t algorithms() const { return count_; }
  std::size_t workspace(std::size_t algorithm) const {
    return algorithms_[algorithm].workspaceSize;
  }
  /// All that cuBLASLt knows a algorithm by, in hexadecimal: it holds for one version of cuBLASLt.
  LOCKSTEP_COLD_DECL std::string name(std::size_t algorithm) const;

  LOCKSTEP_DECL void run(std::size_t algorithm, const void* left, const void* right, void* bias,
                         void* out, void* workspace, cudaStream_t stream);

  static constexpr int max_algorithms = 8;
  /// Of the bias.
  static constexpr std::uintptr_t alignment = 16;

 private:
  struct Description {
    cublasLtMatmulDesc_t value = nullptr;
    Description() = default;
    Description(const Description&) = delete;
    Description& operator=(const Description&) = delete;
    LOCKSTEP_DECL ~Description();
  };
  struct Layout {
    cublasLtMatrixLayout_t value = nullptr;
    Layout() = default;
    Layout(const Layout&) = delete;
    Layout& operator=(const Layout&) = delete;
    LOCKSTEP_DECL ~Layout();
    LOCKSTEP_DECL void make(cudaDataType_t type, std::int64_t rows, std::int64_t columns);
  };
  struct Preference {
    cublasLtMatmulPreference_t value = nullptr;
    LOCKSTEP_DECL Preference();
    Preference(const Preference&) = delete;
    Preference& operator=(const Preference&) = delete;
    ~Preference() { cublaslt().cublasLtMatmulPreferenceDestroy(value); }
    template <class T>
    void set(cublasLtMatmulPreferenceAttributes_t name, T number) {
      check(cublaslt().cublasLtMatmulPreferenceSetAttribute(value, name, &number, sizeof number),
            "describing a search for algorithms");
    }
  };

  template <class T>
  void set(cublasLtMatmulDescAttributes_t name, T number) {
    check(cublaslt().cublasLtMatmulDescSetAttribute(matmul_.value, name, &number, sizeof number),
          "describing a matrix product");
  }
  LOCKSTEP_COLD_DECL void find(const LtProduct& p, std::size_t workspace);

  LOCKSTEP_COLD_DECL void read(std::string_view name, std::size_t workspace);

  cublasLtHandle_t handle_;
  bool has_bias_ = false;
  Description matmul_;
  Layout right_, left_, out_;
  // No vector: nvcc 13 breaks on one of a type that has its name from a typedef only.
  std::array<cublasLtMatmulHeuristicResult_t, max_algorithms> algorithms_{};
  std::size_t count_ = 0;
};

}  // namespace lockstep::detail::cuda

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/devices/cuda/cublaslt/matmul.ipp"
#endif
