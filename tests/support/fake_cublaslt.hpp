/// \file
/// A fake cuBLASLt that records its calls and computes nothing; not for tests of values.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <vector>

#include "lockstep/devices/cuda/libraries/cublaslt.hpp"
#include "support/recorder.hpp"

namespace testing {

/// Replaces cuBLASLt for its lifetime. Construct it after HostGpu, and destroy its users first.
class FakeCublasLt : public Recorder {
 public:
  FakeCublasLt() : table_(recorded()), instead_(table_) { fake = this; }
  ~FakeCublasLt() { fake = nullptr; }

  int ways = 3;                          ///< number of algorithms that the heuristics return
  std::size_t workspace = 1000;          ///< algorithm i needs (i + 1) times as many bytes
  std::set<cublasLtEpilogue_t> refused;  ///< no algorithm supports these
  /// Descriptors created and not destroyed yet.
  int alive = 0;

  /// A column-major matrix, as read by the last product.
  struct Matrix {
    cudaDataType_t type = CUDA_R_32F;
    std::uint64_t rows = 0, columns = 0;
    std::int64_t step = 0;
    bool transposed = false;
    const void* place = nullptr;

    /// Offset of element (i, k) of the matrix, after transposition.
    std::int64_t at(std::int64_t i, std::int64_t k) const {
      return transposed ? k + i * step : i + k * step;
    }
    std::uint64_t used_rows() const { return transposed ? columns : rows; }
    std::uint64_t used_columns() const { return transposed ? rows : columns; }
  };
  /// The last product, d = a * b.
  struct Product {
    Matrix a, b, d;
    cublasComputeType_t compute{};
    cublasLtEpilogue_t epilogue{};
    cudaDataType_t bias_type{};
    const void* bias = nullptr;
    const void* workspace = nullptr;
    std::size_t workspace_bytes = 0;
    cudaStream_t stream = nullptr;
    float alpha = 0, beta = 1;
    int way = -1;
  } product;
  std::function<void()> at_matmul{};  ///< called in each product, after `product` is set
  /// Attributes of the preference in the last heuristics query.
  std::map<int, std::uint64_t> preferences;

 private:
  struct Desc {
    cublasComputeType_t compute;
    std::map<int, std::uint64_t> attributes;
    template <class T>
    T get(cublasLtMatmulDescAttributes_t name) const {
      T value{};
      const auto i = attributes.find(name);
      if (i != attributes.end()) std::memcpy(&value, &i->second, sizeof value);
      return value;
    }
  };
  static inline FakeCublasLt* fake = nullptr;
  static constexpr std::uint64_t algo_mark = 0xfedcba9876543210;  // at the end of each algorithm

  template <class To, class From>
  static To& as(From* p) {
    return *reinterpret_cast<To*>(const_cast<std::remove_const_t<From>*>(p));
  }
  static std::uint64_t number(const void* from, std::size_t size) {
    std::uint64_t value = 0;
    std::memcpy(&value, from, std::min(size, sizeof value));
    return value;
  }

  static lockstep::detail::cuda::CublasLt table() {
    lockstep::detail::cuda::CublasLt t;
    t.cublasLtGetVersion = [] { return std::size_t{99999}; };
    t.cublasLtGetStatusString = [](cublasStatus_t) { return "CUBLAS_STATUS_FAKE"; };
    t.cublasLtCreate = [](cublasLtHandle_t* h) {
      return *h = reinterpret_cast<cublasLtHandle_t>(40), CUBLAS_STATUS_SUCCESS;
    };
    t.cublasLtDestroy = [](cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; };
    t.cublasLtMatmulDescCreate = [](cublasLtMatmulDesc_t* d, cublasComputeType_t compute,
                                    cudaDataType_t) {
      ++fake->alive;
      *d = reinterpret_cast<cublasLtMatmulDesc_t>(new Desc{compute, {}});
      return CUBLAS_STATUS_SUCCESS;
    };
    t.cublasLtMatmulDescDestroy = [](cublasLtMatmulDesc_t d) {
      --fake->alive;
      delete &as<Desc>(d);
      return CUBLAS_STATUS_SUCCESS;
    };
    t.cublasLtMatmulDescSetAttribute = [](cublasLtMatmulDesc_t d,
                                          cublasLtMatmulDescAttributes_t name, const void* value,
                                          std::size_t size) {
      as<Desc>(d).attributes[name] = number(value, size);
      return CUBLAS_STATUS_SUCCESS;
    };
    t.cublasLtMatrixLayoutCreate = [](cublasLtMatrixLayout_t* m, cudaDataType_t type,
                                      std::uint64_t rows, std::uint64_t columns,
                                      std::int64_t step) {
      ++fake->alive;
      *m = reinterpret_cast<cublasLtMatrixLayout_t>(
          new Matrix{type, rows, columns, step, false, nullptr});
      return CUBLAS_STATUS_SUCCESS;
    };
    t.cublasLtMatrixLayoutDestroy = [](cublasLtMatrixLayout_t m) {
      --fake->alive;
      delete &as<Matrix>(m);
      return CUBLAS_STATUS_SUCCESS;
    };
    t.cublasLtMatmulPreferenceCreate = [](cublasLtMatmulPreference_t* p) {
      ++fake->alive;
      fake->preferences.clear();
      return *p = reinterpret_cast<cublasLtMatmulPreference_t>(48), CUBLAS_STATUS_SUCCESS;
    };
    t.cublasLtMatmulPreferenceDestroy = [](cublasLtMatmulPreference_t) {
      return --fake->alive, CUBLAS_STATUS_SUCCESS;
    };
    t.cublasLtMatmulPreferenceSetAttribute = [](cublasLtMatmulPreference_t,
                                                cublasLtMatmulPreferenceAttributes_t name,
                                                const void* value, std::size_t size) {
      return fake->preferences[name] = number(value, size), CUBLAS_STATUS_SUCCESS;
    };
    t.cublasLtMatmulAlgoGetHeuristic =
        [](cublasLtHandle_t, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
           cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, int most,
           cublasLtMatmulHeuristicResult_t* results, int* count) {
          const auto epilogue = as<Desc>(d).get<cublasLtEpilogue_t>(CUBLASLT_MATMUL_DESC_EPILOGUE);
          *count = 0;
          if (fake->refused.count(epilogue) > 0) return CUBLAS_STATUS_NOT_SUPPORTED;
          for (; *count < std::min(most, fake->ways); ++*count) {
            cublasLtMatmulHeuristicResult_t& r = results[*count];
            r = {};
            r.algo.data[0] = static_cast<std::uint64_t>(*count);
            r.algo.data[7] = algo_mark;
            r.workspaceSize = fake->workspace * static_cast<std::size_t>(*count + 1);
            r.state = CUBLAS_STATUS_SUCCESS;
          }
          return CUBLAS_STATUS_SUCCESS;
        };
    t.cublasLtMatmulAlgoCheck = [](cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                   cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                   cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t* algo,
                                   cublasLtMatmulHeuristicResult_t* result) {
      if (algo->data[7] != algo_mark || algo->data[0] >= static_cast<std::uint64_t>(fake->ways))
        return CUBLAS_STATUS_NOT_SUPPORTED;
      result->workspaceSize = fake->workspace * (algo->data[0] + 1);
      return CUBLAS_STATUS_SUCCESS;
    };
    t.cublasLtMatmul = [](cublasLtHandle_t, cublasLtMatmulDesc_t d, const void* alpha,
                          const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                          cublasLtMatrixLayout_t b_layout, const void* beta, const void*,
                          cublasLtMatrixLayout_t, void* out, cublasLtMatrixLayout_t out_layout,
                          const cublasLtMatmulAlgo_t* algo, void* room, std::size_t bytes,
                          cudaStream_t stream) {
      const Desc& desc = as<Desc>(d);
      Product& p = fake->product;
      p.a = as<Matrix>(a_layout);
      p.b = as<Matrix>(b_layout);
      p.d = as<Matrix>(out_layout);
      p.a.place = a;
      p.b.place = b;
      p.d.place = out;
      const auto turned = [&](cublasLtMatmulDescAttributes_t name) {
        return desc.get<std::int32_t>(name) == CUBLAS_OP_T;
      };
      p.a.transposed = turned(CUBLASLT_MATMUL_DESC_TRANSA);
      p.b.transposed = turned(CUBLASLT_MATMUL_DESC_TRANSB);
      p.compute = desc.compute;
      p.epilogue = desc.get<cublasLtEpilogue_t>(CUBLASLT_MATMUL_DESC_EPILOGUE);
      p.bias_type = desc.get<cudaDataType_t>(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE);
      p.bias = desc.get<const void*>(CUBLASLT_MATMUL_DESC_BIAS_POINTER);
      p.workspace = room;
      p.workspace_bytes = bytes;
      p.stream = stream;
      p.alpha = *static_cast<const float*>(alpha);
      p.beta = *static_cast<const float*>(beta);
      p.way = static_cast<int>(algo->data[0]);
      if (fake->at_matmul) fake->at_matmul();
      return CUBLAS_STATUS_SUCCESS;
    };
    return t;
  }
  static lockstep::detail::cuda::CublasLt recorded() {
    lockstep::detail::cuda::CublasLt table = FakeCublasLt::table();
    LOCKSTEP_CUDA_CUBLASLT(LOCKSTEP_RECORD)
    return table;
  }

  lockstep::detail::cuda::CublasLt table_;
  lockstep::detail::cuda::EntryPoints<lockstep::detail::cuda::CublasLt>::Override instead_;
};

}  // namespace testing
