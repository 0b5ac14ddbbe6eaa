/// \file
/// Matrix products by cuBLASLt. Invariant: lockstep's matrices are row-major and cuBLASLt's
/// column-major, so the same bytes are the transpose; cuBLASLt computes right^T * left^T, and its A
/// is our right matrix.
///
///     ours:      out (rows x columns)   = left (rows x depth) * right (depth x columns)
///     cuBLASLt:  out^T (columns x rows) = A = right^T         * B = left^T
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/core/config.hpp"
#include "lockstep/devices/cuda/libraries/cublaslt.hpp"

namespace lockstep::detail::cuda {

/// The product (rows x columns) = left (rows x depth) * right (depth x columns).
struct LtProduct {
  std::int64_t rows = 0, columns = 0, depth = 0;
  bool left_transposed = false, right_transposed = false;  ///< stored transposed
  cudaDataType_t factors = CUDA_R_32F, result = CUDA_R_32F;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  /// BIAS adds a number per column. RELU then clamps negative results to 0. BGRADA writes, per
  /// column, the sum of the right matrix over the depth.
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  cudaDataType_t bias = CUDA_R_32F;
  bool deterministic = false;  ///< two runs must give the same bits
  /// Alignment of the operands' addresses, in bytes.
  std::uint32_t left_alignment = 16, right_alignment = 16, out_alignment = 16;
};

/// A product described to cuBLASLt, and the algorithms that its heuristics offer.
class LtMatmul {
 public:
  /// Finds up to `max_algorithms` algorithms that need at most `workspace` bytes. With a `name`,
  /// only that algorithm, or none if cuBLASLt does not know it. \throws DeviceError if cuBLASLt
  /// fails.
  LOCKSTEP_COLD_DECL LtMatmul(cublasLtHandle_t handle, const LtProduct& p, std::size_t workspace,
                              std::string_view name = {});

  /// 0 if cuBLASLt does not support the product.
  std::size_t algorithms() const { return count_; }
  /// Bytes of workspace that an algorithm needs.
  std::size_t workspace(std::size_t algorithm) const {
    return algorithms_[algorithm].workspaceSize;
  }
  /// The algorithm's opaque description in hexadecimal; valid for one version of cuBLASLt.
  LOCKSTEP_COLD_DECL std::string name(std::size_t algorithm) const;

  /// Enqueues the product on the stream. \throws DeviceError.
  LOCKSTEP_DECL void run(std::size_t algorithm, const void* left, const void* right, void* bias,
                         void* out, void* workspace, cudaStream_t stream);

  /// Algorithms requested from the heuristics.
  static constexpr int max_algorithms = 8;
  /// Alignment of the bias, in bytes.
  static constexpr std::uintptr_t alignment = 16;

 private:
  /// Owners of cuBLASLt's descriptors.
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
  /// Asks the heuristics for algorithms.
  LOCKSTEP_COLD_DECL void find(const LtProduct& p, std::size_t workspace);

  /// Restores the algorithm of a name, if cuBLASLt still accepts it.
  LOCKSTEP_COLD_DECL void read(std::string_view name, std::size_t workspace);

  cublasLtHandle_t handle_;
  bool has_bias_ = false;
  Description matmul_;
  Layout right_, left_, out_;
  // An array, because nvcc 13 crashes on a vector of an unnamed type with a typedef.
  std::array<cublasLtMatmulHeuristicResult_t, max_algorithms> algorithms_{};
  std::size_t count_ = 0;
};

}  // namespace lockstep::detail::cuda

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/devices/cuda/cublaslt/matmul.ipp"
#endif
