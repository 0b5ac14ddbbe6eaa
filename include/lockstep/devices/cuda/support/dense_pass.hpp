/// \file
/// A pass of a dense layer at one batch size: cuBLASLt's fastest algorithm, or lockstep's own
/// product if the pass is small and the product is faster, or if cuBLASLt is missing or refuses.
/// Invariant: the choice is made when the pass is prepared, and cached for later processes.
///
///     scratch:  [ kernel or dw | bias or db | cuBLASLt's workspace ]
///                 copies, where the flat buffers' addresses are not 16-byte aligned
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

#include "lockstep/core/format_text.hpp"
#include "lockstep/devices/cuda/cublaslt/matmul.hpp"
#include "lockstep/devices/cuda/libraries/access.hpp"
#include "lockstep/devices/cuda/support/column_sums.hpp"
#include "lockstep/devices/cuda/support/elements.hpp"
#include "lockstep/devices/cuda/support/matrix_product.hpp"
#include "lockstep/devices/cuda/support/weight_order.hpp"
#include "lockstep/devices/cuda/tuning.hpp"
#include "lockstep/devices/precision_policy.hpp"
#include "lockstep/layers/dense.hpp"

namespace lockstep::detail::cuda {

/// The three passes: y, dx, dw.
enum class DensePass { forward, backward_data, backward_weights };

/// One pass of a dense layer, prepared.
template <class Precision>
class DenseStep {
 public:
  using A = typename Precision::activation;

  DenseStep() = default;
  /// `relu`: forward ends with a ReLU. `packed`: another pass has packed the weights before this
  /// one runs, and the measurement assumes so.
  DenseStep(const DenseOp& op, CudaContext& context, std::size_t count, DensePass pass,
            bool relu = false, bool packed = false)
      : op_(op),
        count_(static_cast<std::int64_t>(count)),
        pass_(pass),
        relu_(relu && pass == DensePass::forward) {
    if (count == 0) return;
    auto& library = context.handle<CublasLtAccess>();
    if (library.handle() != nullptr)
      choose(context, library.handle(), library.version(), half && packed);
    if (!by_library_) matmul_ = nullptr;
    prepare_own(context);
  }

  /// Bytes of scratch that a pass needs.
  std::size_t scratch_bytes() const {
    const std::size_t sums = sums_.scratch_bytes();
    if (!by_library_) return std::max(own_.scratch_bytes(), sums);
    return std::max(staged() + matmul_->workspace(algorithm_), sums);
  }
  /// Whether cuBLASLt runs the pass, and whether it also handles the bias.
  bool by_cublaslt() const { return by_library_; }
  bool fuses_bias() const { return fused_; }

  /// y = x * w + bias, then ReLU if requested. `packed` has packed_bytes(op) bytes.
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
  /// dw = x^T * dy, followed by db, the column sums of dy, if the layer has a bias.
  void backward_weights(CudaContext& context, const A* x, const A* dy, float* dw,
                        std::byte* scratch) const {
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
    if (op_.bias && !(by_library_ && fused_)) sums_(context, dy, db, scratch);
  }

  /// Bytes for weights converted to a 16-bit activation type; 0 for float.
  static constexpr std::size_t packed_bytes(const DenseOp& op) {
    return half ? bias_at(op) + rounded(static_cast<std::size_t>(op.units) * sizeof(A)) : 0;
  }

  /// Largest workspace of a cuBLASLt algorithm, in bytes.
  static constexpr std::size_t max_workspace = std::size_t{32} << 20;

 private:
  static constexpr bool half = sizeof(A) == 2;

  std::size_t units() const { return static_cast<std::size_t>(op_.units); }
  static constexpr std::size_t rounded(std::size_t bytes) { return (bytes + 255) / 256 * 256; }
  std::size_t kernel_room() const { return rounded(op_.kernel_size() * sizeof(float)); }
  /// Scratch in front of cuBLASLt's workspace.
  std::size_t staged() const { return kernel_room() + rounded(units() * sizeof(float)); }
  /// Whether cuBLASLt accepts the address as an operand.
  static bool is_aligned(const void* p) {
    return reinterpret_cast<std::uintptr_t>(p) % LtMatmul::alignment == 0;
  }

  /// Offset of the bias in packed weights: adjacent, so that one launch converts both, unless
  /// cuBLASLt's alignment forbids it.
  static constexpr std::size_t bias_at(const DenseOp& op) {
    const std::size_t end = op.kernel_size() * sizeof(A);
    return end % LtMatmul::alignment == 0 ? end : rounded(end);
  }

  /// Weights where cuBLASLt can read them.
  struct Staged {
    const A* kernel = nullptr;
    const A* bias = nullptr;
  };
  /// Weights in the activation type, at addresses that cuBLASLt can read.
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

  /// The pass as cuBLASLt sees it: shapes, types, transposes, alignments.
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
    // The alignment of any example if the first is aligned: a slice of a batch can begin anywhere.
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
  /// (rows, columns, depth): y (n, units, inputs), dx (n, inputs, units), dw (inputs, units, n).
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
  /// The pass by lockstep's own kernel: strides of the operands instead of transposes.
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

  /// The name of our product in the TuningCache. A cuBLASLt algorithm's name is "fused" or "plain"
  /// and its description.
  static constexpr const char *own_name = "our own product", *fused_name = "fused ",
                              *plain_name = "plain ";

  /// Sets matmul_, algorithm_, by_library_ and fused_.
  void choose(CudaContext& context, cublasLtHandle_t handle, std::size_t version, bool ready) {
    auto& tuning = context.handle<TuningCache>();
    const std::string work =
        format_text("{}{}, cuBLASLt {}", describe(), ready ? ", packed weights" : "", version);
    if (const auto known = tuning.find(context, work); known && use(handle, *known)) return;
    const bool deterministic = context.options().deterministic;
    find_algorithms(handle, deterministic);
    if (matmul_ == nullptr) return;
    const bool with_own = !deterministic && MatrixProduct<Precision>::may_win(sizes());
    const std::size_t algorithms = matmul_->algorithms();
    std::optional<TuningBuffers<A>> buffers;
    const auto run = [&](std::size_t i) {
      if (!buffers) {
        by_library_ = !with_own;
        prepare_own(context);
        buffers.emplace(context, tuning_sizes());
      }
      use(i);
      run_in(context, *buffers, ready);
    };
    const auto name = [&](std::size_t i) {
      return i == algorithms ? own_name : (fused_ ? fused_name : plain_name) + matmul_->name(i);
    };
    try {
      use(tuning.measure(context, work, algorithms + (with_own ? 1 : 0), run, name));
    } catch (const DeviceError& error) {
      if (with_own) throw;
      use(algorithms);
      warn(error.what());
    }
  }
  /// Selects cuBLASLt's algorithm i, or our product for i = algorithms().
  void use(std::size_t i) {
    by_library_ = i < matmul_->algorithms();
    algorithm_ = i;
  }
  /// Switches to the candidate of that name; false if it can no longer be made.
  bool use(cublasLtHandle_t handle, std::string_view name) {
    if (name == own_name) return true;
    const bool fused = name.starts_with(fused_name);
    if (!fused && !name.starts_with(plain_name)) return false;
    std::string why;
    name.remove_prefix(name.find(' ') + 1);
    const cublasLtEpilogue_t epilogue = fused ? wanted_epilogue() : CUBLASLT_EPILOGUE_DEFAULT;
    if (name.empty() || !find(handle, epilogue, false, why, name)) return false;
    use(0);
    return true;
  }
  /// Prepares our share of the pass: all of it, or the bias sums that cuBLASLt does not fuse.
  void prepare_own(CudaContext& context) {
    own_ = by_library_ ? MatrixProduct<Precision>() : own_product(context);
    sums_ = {};
    if (op_.bias && pass_ == DensePass::backward_weights && !(by_library_ && fused_))
      sums_ = {context, count_, op_.units};
  }

  /// The epilogue that fuses everything that the pass does after the product.
  cublasLtEpilogue_t wanted_epilogue() const {
    const bool bias = op_.bias && pass_ != DensePass::backward_data;
    return bias && pass_ == DensePass::backward_weights ? CUBLASLT_EPILOGUE_BGRADA
           : bias && relu_                              ? CUBLASLT_EPILOGUE_RELU_BIAS
           : bias                                       ? CUBLASLT_EPILOGUE_BIAS
           : relu_                                      ? CUBLASLT_EPILOGUE_RELU
                                                        : CUBLASLT_EPILOGUE_DEFAULT;
  }
  /// Sets matmul_ and fused_; false if there is no algorithm, or none called `name`.
  bool find(cublasLtHandle_t handle, cublasLtEpilogue_t epilogue, bool deterministic,
            std::string& why, std::string_view name = {}) {
    try {
      LtProduct p = product();
      p.epilogue = epilogue;
      p.deterministic = deterministic;
      fused_ = epilogue != CUBLASLT_EPILOGUE_DEFAULT;
      matmul_ = std::make_shared<LtMatmul>(handle, p, max_workspace, name);
      if (matmul_->algorithms() > 0) return true;
    } catch (const DeviceError& error) {
      why = error.what();
    }
    matmul_ = nullptr;
    return fused_ = false;
  }
  /// The fused epilogue first; a bias gradient may also run unfused.
  void find_algorithms(cublasLtHandle_t handle, bool deterministic) {
    std::string why = "no algorithm supports it";
    const cublasLtEpilogue_t wanted = wanted_epilogue();
    if (find(handle, wanted, deterministic, why) ||
        (wanted == CUBLASLT_EPILOGUE_BGRADA &&
         find(handle, CUBLASLT_EPILOGUE_DEFAULT, deterministic, why)))
      return;
    warn(why);
  }
  /// Warns that lockstep's own kernel replaces cuBLASLt.
  void warn(std::string_view why) const {
    log(LogLevel::warning,
        format_text(
            "cuda: cuBLASLt refuses {}: {}; lockstep's own kernel runs it and may be slower",
            describe(), why));
  }

  TuningSizes tuning_sizes() const {
    const std::size_t n = static_cast<std::size_t>(count_);
    return {n * static_cast<std::size_t>(op_.inputs) * sizeof(A),
            (op_.kernel_size() + units()) * sizeof(float), n * units() * sizeof(A),
            std::max({staged() + max_workspace, own_.scratch_bytes(), sums_.scratch_bytes()}),
            packed_bytes(op_)};
  }
  /// One run on random operands, for the autotuner.
  void run_in(CudaContext& context, const TuningBuffers<A>& buffers, bool ready) const {
    A *const x = buffers.x.template as<A>(), *const y = buffers.y.template as<A>();
    float* const w = buffers.w.template as<float>();
    std::byte* const scratch = buffers.scratch.template as<std::byte>();
    const PackedWeights packed{buffers.packed.template as<std::byte>(), ready};
    if (pass_ == DensePass::forward)
      forward(context, x, w, y, scratch, packed);
    else if (pass_ == DensePass::backward_data)
      backward_data(context, y, w, x, scratch, packed);
    else
      backward_weights(context, x, y, w, scratch);
  }

  /// Enqueues the product. The words are everything that the call depends on, so a graph can replay
  /// it.
  void multiply(CudaContext& context, const void* left, const void* right, const void* bias,
                void* out, std::byte* scratch) const {
    std::byte* const workspace = scratch + staged();
    static constexpr std::array<const char*, 3> names{
        "cuBLASLt product", "cuBLASLt gradient of the input", "cuBLASLt gradient of the kernel"};
    const auto word = [](const void* p) { return reinterpret_cast<std::uint64_t>(p); };
    context.commands().call(
        {word(matmul_.get()), algorithm_, word(left), word(right), word(bias), word(out),
         word(workspace)},
        [matmul = matmul_, algorithm = algorithm_, left, right, bias, out,
         workspace](CUstream stream) {
          matmul->run(algorithm, left, right, const_cast<void*>(bias), out, workspace, stream);
        },
        names[static_cast<std::size_t>(pass_)]);
  }

  /// A unique description of the pass, the key of its autotuning result.
  std::string describe() const {
    static constexpr std::array<const char*, 3> names{"a dense layer", "the gradient of its input",
                                                      "the gradient of its kernel"};
    const char* const what = names[static_cast<std::size_t>(pass_)];
    return format_text("{} ({} x {} -> {}{}{}{})", what, count_, op_.inputs, op_.units,
                       op_.bias ? ", bias, " : ", ", relu_ ? "ReLU, " : "", Precision::name);
  }

  DenseOp op_;
  std::int64_t count_ = 0;
  DensePass pass_ = DensePass::forward;
  bool relu_ = false, by_library_ = false, fused_ = false;
  std::size_t algorithm_ = 0;
  std::shared_ptr<LtMatmul> matmul_;
  MatrixProduct<Precision> own_;
  ColumnSums<Precision> sums_;
};

}  // namespace lockstep::detail::cuda
