/// \file
/// A pass of a dense layer at one batch size: by cuBLASLt's fastest way or by a product of our own,
/// whichever is faster; by our own where cuBLASLt is missing or refuses. Invariant: which it is is
/// decided when the pass is prepared.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <type_traits>

#include "lockstep/devices/cuda/cublaslt/matmul.hpp"
#include "lockstep/devices/cuda/kernels/column_sums.hpp"
#include "lockstep/devices/cuda/kernels/elements.hpp"
#include "lockstep/devices/cuda/kernels/matrix_product.hpp"
#include "lockstep/devices/cuda/kernels/weight_order.hpp"
#include "lockstep/devices/cuda/libraries/access.hpp"
#include "lockstep/devices/cuda/tuning.hpp"
#include "lockstep/devices/precision.hpp"
#include "lockstep/layers/dense.hpp"

namespace lockstep::detail::cuda {

enum class DensePass { forward, backward_data, backward_weights };

/// One pass.
template <class Precision>
class DenseStep {
 public:
  using A = typename Precision::activation;

  DenseStep() = default;
  /// `relu`: forward ends with one. `packed`: when it runs, another pass has packed the weights; so
  /// it is measured.
  [[gnu::cold]] DenseStep(const DenseOp& op, CudaContext& context, std::size_t count,
                          DensePass pass, bool relu = false, bool packed = false)
      : op_(op),
        count_(static_cast<std::int64_t>(count)),
        pass_(pass),
        relu_(relu && pass == DensePass::forward) {
    if (count == 0) return;
    auto& library = context.handle<CublasLtAccess>();
    if (library.handle() != nullptr) find_ways(library.handle(), context.options().deterministic);
    use(context, matmul_ == nullptr ? 0 : fastest(context, library.version(), half && packed));
    if (!by_library_) matmul_ = nullptr;
  }

  std::size_t scratch_bytes() const {
    const std::size_t sums = sums_.scratch_bytes();
    if (!by_library_) return std::max(own_.scratch_bytes(), sums);
    return std::max(staged() + matmul_->workspace(way_), sums);
  }
  /// Whether cuBLASLt runs it, and what else it then does.
  bool by_cublaslt() const { return by_library_; }
  bool fuses_bias() const { return fused_; }

  /// y = x * w + bias, or its positive part. `packed`: packed_bytes(op) of them.
  void forward(CudaContext& context, const A* x, const float* w, A* y, std::byte* scratch,
               PackedWeights packed) const {
    if (!by_library_)
      return own_(context, x, w, op_.bias ? w + op_.kernel_size() : nullptr, y, scratch);
    const Staged s = stage(context, w, op_.bias, scratch, packed);
    multiply(context, x, s.kernel, s.bias, y, scratch);
  }
  /// dx = dy * w^T.
  void backward_data(CudaContext& context, const A* dy, const float* w, A* dx, std::byte* scratch,
                     PackedWeights packed) const {
    if (!by_library_) return own_(context, dy, w, nullptr, dx, scratch);
    multiply(context, dy, stage(context, w, false, scratch, packed).kernel, nullptr, dx, scratch);
  }
  /// dw = x^T * dy, and the sums of dy behind it, if the layer has a bias; they may be left out if
  /// they are `centered`.
  void backward_weights(CudaContext& context, const A* x, const A* dy, float* dw,
                        std::byte* scratch, bool centered = false) const {
    float* const db = dw + op_.kernel_size();
    if (by_library_) {
      const auto at = [&](float* p, std::byte* place) {
        return is_aligned(p) ? p : reinterpret_cast<float*>(place);
      };
      float* const out = at(dw, scratch);
      float* const sums = fused_ ? at(db, scratch + kernel_room()) : nullptr;
      multiply(context, x, dy, sums, out, scratch);
      if (out != dw) copy(context, dw, out, op_.kernel_size());
      if (fused_ && sums != db) copy(context, db, sums, units());
    } else {
      own_(context, x, dy, nullptr, dw, scratch);
    }
    if (op_.bias && !centered && !(by_library_ && fused_)) sums_(context, dy, db, scratch);
  }

  /// Bytes for the weights in the type of activations, if that is not float.
  static constexpr std::size_t packed_bytes(const DenseOp& op) {
    return half ? bias_at(op) + rounded(static_cast<std::size_t>(op.units) * sizeof(A)) : 0;
  }

  /// What cuBLASLt's ways may ask for.
  static constexpr std::size_t most_workspace = std::size_t{32} << 20;

 private:
  static constexpr bool half = sizeof(A) == 2;

  std::size_t units() const { return static_cast<std::size_t>(op_.units); }
  static constexpr std::size_t rounded(std::size_t bytes) { return (bytes + 255) / 256 * 256; }
  std::size_t kernel_room() const { return rounded(op_.kernel_size() * sizeof(float)); }
  /// Scratch before cuBLASLt's own.
  std::size_t staged() const { return kernel_room() + rounded(units() * sizeof(float)); }
  static bool is_aligned(const void* p) {
    return reinterpret_cast<std::uintptr_t>(p) % LtMatmul::alignment == 0;
  }

  /// Where the bias lies behind packed weights: next to them, so that one launch brings both there,
  /// or where cuBLASLt can read it.
  static constexpr std::size_t bias_at(const DenseOp& op) {
    const std::size_t end = op.kernel_size() * sizeof(A);
    return end % LtMatmul::alignment == 0 ? end : rounded(end);
  }

  struct Staged {
    const A* kernel = nullptr;
    const A* bias = nullptr;
  };
  /// Weights in the type of activations, and where cuBLASLt can read them.
  Staged stage(CudaContext& context, const float* w, bool with_bias, std::byte* scratch,
               PackedWeights packed) const {
    const std::size_t n = op_.kernel_size();
    if constexpr (!half) {
      const auto at = [&](const float* p, std::size_t size, std::byte* place) {
        if (is_aligned(p)) return p;
        copy(context, reinterpret_cast<float*>(place), p, size);
        return static_cast<const float*>(reinterpret_cast<float*>(place));
      };
      return {at(w, n, scratch), with_bias ? at(w + n, units(), scratch + kernel_room()) : nullptr};
    } else {
      A* const kernel = reinterpret_cast<A*>(packed.place);
      A* const bias = reinterpret_cast<A*>(packed.place + bias_at(op_));
      const bool adjoin = bias == kernel + n;
      if (!packed.ready)
        convert_elements(context, kernel, w, n + (with_bias && adjoin ? units() : 0));
      if (!packed.ready && with_bias && !adjoin) convert_elements(context, bias, w + n, units());
      return {kernel, with_bias ? bias : nullptr};
    }
  }
  static void copy(CudaContext& context, float* to, const float* from, std::size_t n) {
    context.copy(reinterpret_cast<std::byte*>(to), reinterpret_cast<const std::byte*>(from),
                 n * sizeof(float));
  }

  LtProduct product() const {
    LtProduct p;
    p.factors = std::array<cudaDataType_t, 3>{CUDA_R_32F, CUDA_R_16BF,
                                              CUDA_R_16F}[activation_code<Precision>];
    p.result = pass_ == DensePass::backward_weights ? CUDA_R_32F : p.factors;
    p.bias = p.result;
    p.compute = std::is_same_v<Precision, Tf32> ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    const ProductSizes s = sizes();
    p.rows = s.rows;
    p.columns = s.columns;
    p.depth = s.depth;
    p.left_transposed = pass_ == DensePass::backward_weights;
    p.right_transposed = pass_ == DensePass::backward_data;
    // Each example's place, if the first one's is aligned: a part of a batch begins anywhere.
    const auto row = [](int n) {
      return std::gcd(std::uint32_t{LtMatmul::alignment},
                      static_cast<std::uint32_t>(n) * std::uint32_t{sizeof(A)});
    };
    const std::uint32_t x = row(op_.inputs), y = row(op_.units);
    if (pass_ == DensePass::forward) {
      p.left_alignment = x;
      p.out_alignment = y;
    } else if (pass_ == DensePass::backward_data) {
      p.left_alignment = y;
      p.out_alignment = x;
    } else {
      p.left_alignment = x;
      p.right_alignment = y;
    }
    return p;
  }
  ProductSizes sizes() const {
    switch (pass_) {
      case DensePass::forward:
        return {count_, op_.units, op_.inputs};
      case DensePass::backward_data:
        return {count_, op_.inputs, op_.units};
      default:
        return {op_.inputs, op_.units, count_};
    }
  }
  MatrixProduct<Precision> own_product(CudaContext& context) const {
    static constexpr Source source{"dense", matrix_product_text, plain_matrices_text};
    const bool data = pass_ == DensePass::backward_data,
               weights = pass_ == DensePass::backward_weights;
    return {context,
            source,
            {{"LEFT_M", weights ? 1
                        : data  ? op_.units
                                : op_.inputs},
             {"LEFT_K", weights ? op_.inputs : 1},
             {"RIGHT_K", data ? 1 : op_.units},
             {"RIGHT_N", data ? op_.units : 1},
             {"LEFT_ALONG", !weights},
             {"RIGHT_ALONG", data}},
            sizes(),
            weights,
            relu_};
  }

  [[gnu::cold]] void find_ways(cublasLtHandle_t handle, bool deterministic) {
    std::string why = "it has no way to do it";
    const auto find = [&](cublasLtEpilogue_t epilogue) {
      try {
        LtProduct p = product();
        p.epilogue = epilogue;
        p.deterministic = deterministic;
        fused_ = epilogue != CUBLASLT_EPILOGUE_DEFAULT;
        matmul_ = std::make_shared<LtMatmul>(handle, p, most_workspace);
        if (matmul_->ways() > 0) return true;
      } catch (const DeviceError& error) {
        why = error.what();
      }
      matmul_ = nullptr;
      return fused_ = false;
    };
    const bool weights = pass_ == DensePass::backward_weights;
    const bool bias = op_.bias && pass_ != DensePass::backward_data;
    const cublasLtEpilogue_t wanted = bias && weights ? CUBLASLT_EPILOGUE_BGRADA
                                      : bias && relu_ ? CUBLASLT_EPILOGUE_RELU_BIAS
                                      : bias          ? CUBLASLT_EPILOGUE_BIAS
                                      : relu_         ? CUBLASLT_EPILOGUE_RELU
                                                      : CUBLASLT_EPILOGUE_DEFAULT;
    if (find(wanted) || (bias && weights && find(CUBLASLT_EPILOGUE_DEFAULT))) return;
    log(LogLevel::warning, text({"cuda: cuBLASLt refuses ", describe(), ": ", why,
                                 "; a kernel of lockstep's own does it, maybe slower"}));
  }

  /// Way i is cuBLASLt's way i, or our product.
  [[gnu::cold]] void use(CudaContext& context, std::size_t i) {
    by_library_ = matmul_ != nullptr && i < matmul_->ways();
    way_ = i;
    if (!by_library_) own_ = own_product(context);
    if (op_.bias && pass_ == DensePass::backward_weights && !(by_library_ && fused_))
      sums_ = {context, count_, op_.units};
  }

  [[gnu::cold]] std::size_t fastest(CudaContext& context, std::size_t version, bool ready) {
    std::optional<TuningRoom> room;
    const auto run = [&](std::size_t i) {
      if (!room) {
        const std::size_t n = static_cast<std::size_t>(count_);
        const ColumnSums<Precision> sums(context, count_, op_.units);
        const std::size_t scratch =
            std::max({staged() + most_workspace, own_product(context).scratch_bytes(),
                      sums.scratch_bytes()});
        room.emplace(context, n * static_cast<std::size_t>(op_.inputs) * sizeof(A),
                     (op_.kernel_size() + units()) * sizeof(float), n * units() * sizeof(A),
                     scratch, packed_bytes(op_));
      }
      use(context, i);
      A *const x = room->x.as<A>(), *const y = room->y.as<A>();
      float* const w = room->w.as<float>();
      std::byte* const scratch = room->scratch.as<std::byte>();
      const PackedWeights packed{room->packed.as<std::byte>(), ready};  // zeros, as the weights are
      if (pass_ == DensePass::forward)
        forward(context, x, w, y, scratch, packed);
      else if (pass_ == DensePass::backward_data)
        backward_data(context, y, w, x, scratch, packed);
      else
        backward_weights(context, x, y, w, scratch);
    };
    return context.handle<Winners>().choose(
        context, text({describe(), ready ? ", packed weights" : "", ", cuBLASLt ", version}),
        matmul_->ways() + 1, run);
  }

  void multiply(CudaContext& context, const void* left, const void* right, const void* bias,
                void* out, std::byte* scratch) const {
    std::byte* const workspace = scratch + staged();
    const auto word = [](const void* p) { return reinterpret_cast<std::uint64_t>(p); };
    context.commands().call(
        {word(matmul_.get()), way_, word(left), word(right), word(bias), word(out),
         word(workspace)},
        [matmul = matmul_, way = way_, left, right, bias, out, workspace](CUstream stream) {
          matmul->run(way, left, right, const_cast<void*>(bias), out, workspace, stream);
        });
  }

  /// All that tells one product from another.
  [[gnu::cold]] std::string describe() const {
    static constexpr std::array<const char*, 3> names{"a dense layer", "the gradient of its input",
                                                      "the gradient of its kernel"};
    const char* const what = names[static_cast<std::size_t>(pass_)];
    return text({what, " (", count_, " x ", op_.inputs, " -> ", op_.units,
                 op_.bias ? ", bias, " : ", ", relu_ ? "ReLU, " : "", fused_ ? "fused, " : "",
                 Precision::name, ")"});
  }

  DenseOp op_;
  std::int64_t count_ = 0;
  DensePass pass_ = DensePass::forward;
  bool relu_ = false, by_library_ = false, fused_ = false;
  std::size_t way_ = 0;
  std::shared_ptr<LtMatmul> matmul_;
  MatrixProduct<Precision> own_;
  ColumnSums<Precision> sums_;
};

}  // namespace lockstep::detail::cuda
