/// \file
/// A pass of a convolution at one batch size: by cuDNN's fastest engine or by a product of our own,
/// whichever is faster; by our own where cuDNN is missing or has no engine. Invariants: which it is
/// is decided when the pass is prepared; in mixed precision cuDNN's gradient of a kernel is rounded
/// to bfloat16, our own is not.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/devices/cuda/kernels/convolution_call.hpp"
#include "lockstep/devices/cuda/kernels/convolution_text.hpp"
#include "lockstep/devices/cuda/kernels/matrix_product.hpp"
#include "lockstep/devices/cuda/kernels/weight_order.hpp"
#include "lockstep/devices/cuda/libraries/access.hpp"
#include "lockstep/devices/cuda/tuning.hpp"
#include "lockstep/devices/precision.hpp"

namespace lockstep::detail::cuda {

/// What cuDNN may do for a precision.
template <class Precision>
inline constexpr CudnnRules cudnn_rules{
    std::array<cudnnDataType_t, 3>{CUDNN_DATA_FLOAT, CUDNN_DATA_BFLOAT16,
                                   CUDNN_DATA_HALF}[activation_code<Precision>],
    std::is_same_v<Precision, Tf32>, false};

/// A pass as a product of matrices.
template <class Precision>
[[gnu::cold]] MatrixProduct<Precision> convolution_product(const Conv2DOp& op, CudaContext& context,
                                                           std::size_t count, ConvolutionPass pass,
                                                           bool relu = false) {
  const Shape out = op.out();
  const auto n = static_cast<std::int64_t>(count);
  const std::int64_t pixels = n * out[0] * out[1], in_pixels = n * op.in[0] * op.in[1],
                     taps = std::int64_t{op.kernel.height} * op.kernel.width,
                     depth = taps * op.channels();
  const bool weights = pass == ConvolutionPass::backward_weights,
             data = pass == ConvolutionPass::backward_data;
  std::vector<Define> defines = convolution_defines(op);
  defines.emplace_back("LEFT_ALONG", data || (!weights && op.channels() >= 8));
  defines.emplace_back("RIGHT_ALONG", data);
  const char* const functions = weights ? convolution_dw_text
                                : data  ? convolution_dx_text
                                        : convolution_forward_text;
  const ProductSizes sizes = weights ? ProductSizes{depth, op.filters, pixels}
                             : data  ? ProductSizes{in_pixels, op.channels(), taps * op.filters}
                                     : ProductSizes{pixels, op.filters, depth};
  return {context,
          Source{"convolution", matrix_product_text, functions},
          std::move(defines),
          sizes,
          weights,
          relu};
}

/// Bytes for the weights and the bias of a convolution, or of one that leads back.
template <class Precision>
constexpr std::size_t packed_bytes(const auto& op) {
  const auto channels = static_cast<std::size_t>(std::max(op.in.channels(), op.out().channels()));
  return WeightOrder<Precision>::bytes(op.kernel_size(), channels);
}
/// One pass.
template <class Precision>
class ConvolutionStep {
 public:
  using A = typename Precision::activation;

  ConvolutionStep() = default;
  /// `with_bias`, `relu`: forward adds a bias and ends with a ReLU; backward_data may add a bias,
  /// too. `packed`: when it runs, another pass has packed the weights; so it is measured.
  [[gnu::cold]] ConvolutionStep(const Conv2DOp& op, CudaContext& context, std::size_t count,
                                ConvolutionPass pass, bool with_bias, bool relu = false,
                                bool packed = false)
      : op_(op),
        count_(count),
        pass_(pass),
        has_bias_(with_bias && pass == ConvolutionPass::forward),
        relu_(relu && pass == ConvolutionPass::forward) {
    if (count == 0) return;
    auto& library = context.handle<CudnnAccess>();
    handle_ = library.handle();
    if (handle_ != nullptr) find_plans(context.options().deterministic);
    if (plans_.empty()) {
      use(context, 0);
      return;
    }
    order_ = {context, static_cast<std::int64_t>(op.kernel_size()) / op.filters, op.filters};
    use(context, fastest(context, library.version(), packed));
    plans_.clear();
  }

  std::size_t scratch_bytes() const {
    if (plan_ == nullptr) return own_.scratch_bytes();
    return gradient_room() + static_cast<std::size_t>(plan_->workspace);
  }
  /// Whether cuDNN runs it.
  bool by_cudnn() const { return plan_ != nullptr; }

  /// y = x * w + bias, or its positive part. The bias is null where there is none.
  void forward(CudaContext& context, const A* x, const float* w, const float* bias, A* y,
               std::byte* scratch, PackedWeights packed) const {
    if (plan_ == nullptr) return own_(context, x, w, bias, y, scratch);
    if (!packed.ready) order_.pack(context, w, bias, packed.place, fuses());
    execute(context, x, packed.place, y, scratch);
    if (!fuses() && (has_bias_ || relu_)) finish(context, y, bias, op_.out());
  }
  void backward_data(CudaContext& context, const A* dy, const float* w, const float* bias, A* dx,
                     std::byte* scratch, PackedWeights packed) const {
    if (plan_ == nullptr) return own_(context, dy, w, bias, dx, scratch);
    if (!packed.ready) order_.pack(context, w, nullptr, packed.place, false);
    execute(context, dx, packed.place, dy, scratch);
    if (bias != nullptr) finish(context, dx, bias, op_.in);
  }
  void backward_weights(CudaContext& context, const A* x, const A* dy, float* dw,
                        std::byte* scratch) const {
    if (plan_ == nullptr) return own_(context, x, dy, nullptr, dw, scratch);
    execute(context, x, scratch, dy, scratch + gradient_room());
    order_.unpack(context, scratch, dw);
  }

 private:
  [[gnu::cold]] void find_plans(bool deterministic) {
    CudnnRules rules = cudnn_rules<Precision>;
    rules.deterministic = deterministic;
    std::string why = "it has no engine for it";
    const auto find = [&](ConvolutionTail fused) {
      fused_ = fused;
      plans_ = offered_plans(handle_, op_, count_, pass_, rules, fused, why);
    };
    if (relu_)
      find(ConvolutionTail::bias_and_relu);
    else if (has_bias_)
      find(ConvolutionTail::bias);
    if (plans_.empty()) find(ConvolutionTail::none);
    if (plans_.empty())
      log(LogLevel::warning, text({"cuda: cuDNN refuses ", describe(), ": ", why,
                                   "; a kernel of lockstep's own does it, maybe slower"}));
  }

  /// Way i is cuDNN's plan i, or the product.
  [[gnu::cold]] void use(CudaContext& context, std::size_t i) {
    plan_ = i < plans_.size() ? plans_[i] : nullptr;
    if (plan_ == nullptr) own_ = convolution_product<Precision>(op_, context, count_, pass_, relu_);
  }

  [[gnu::cold]] std::size_t fastest(CudaContext& context, std::size_t version, bool ready) {
    std::optional<TuningRoom> room;
    const auto run = [&](std::size_t i) {
      if (!room) take(context, room);
      use(context, i);
      A *const x = room->x.as<A>(), *const y = room->y.as<A>();
      float* const w = room->w.as<float>();
      std::byte* const scratch = room->scratch.as<std::byte>();
      const PackedWeights packed{room->packed.as<std::byte>(), ready};  // zeros, as the weights are
      if (pass_ == ConvolutionPass::forward)
        forward(context, x, w, has_bias_ ? w + op_.kernel_size() : nullptr, y, scratch, packed);
      else if (pass_ == ConvolutionPass::backward_data)
        backward_data(context, y, w, nullptr, x, scratch, packed);
      else
        backward_weights(context, x, y, w, scratch);
    };
    return context.handle<Winners>().choose(
        context, text({describe(), ready ? ", packed weights" : "", ", cuDNN ", version}),
        plans_.size() + 1, run);
  }
  /// Memory for a measurement.
  [[gnu::cold]] void take(CudaContext& context, std::optional<TuningRoom>& room) {
    std::size_t scratch =
        convolution_product<Precision>(op_, context, count_, pass_).scratch_bytes();
    for (const auto& p : plans_)
      scratch = std::max(scratch, gradient_room() + static_cast<std::size_t>(p->workspace));
    const auto bytes = [&](Shape s) { return count_ * s.size() * sizeof(A); };
    const std::size_t weights = op_.kernel_size() + static_cast<std::size_t>(op_.filters);
    room.emplace(context, bytes(op_.in), weights * sizeof(float), bytes(op_.out()), scratch,
                 order_.bytes());
  }

  /// Runs the plan, on weights in cuDNN's order or into their gradient.
  void execute(CudaContext& context, const A* x, std::byte* packed, const A* y,
               std::byte* workspace) const {
    const A* const bias = fuses() ? order_.bias(packed) : nullptr;
    ConvolutionCall{handle_, plan_}(
        context,
        {.x = x, .w = order_.weights(packed), .y = y, .bias = bias, .workspace = workspace});
  }
  /// Scratch before cuDNN's own.
  std::size_t gradient_room() const {
    return pass_ == ConvolutionPass::backward_weights ? order_.bytes() : 0;
  }
  bool fuses() const { return fused_ != ConvolutionTail::none; }
  /// The tail that cuDNN does not do.
  void finish(CudaContext& context, A* to, const float* bias, Shape shape) const {
    order_.add_bias(context, to, bias, static_cast<std::int64_t>(count_ * shape.size()), shape[2],
                    relu_);
  }

  const char* tail_name() const {
    return relu_ ? (fuses() ? ", bias, ReLU, " : ", then ReLU, ") : fuses() ? ", bias, " : ", ";
  }
  [[gnu::cold]] std::string describe() const {
    return describe_convolution(op_, count_, pass_, tail_name(), Precision::name);
  }

  Conv2DOp op_;
  std::size_t count_ = 0;
  ConvolutionPass pass_ = ConvolutionPass::forward;
  cudnnHandle_t handle_ = nullptr;
  bool has_bias_ = false, relu_ = false;
  ConvolutionTail fused_ = ConvolutionTail::none;  // by cuDNN: all or nothing
  std::vector<std::shared_ptr<CudnnPlan>> plans_;
  std::shared_ptr<CudnnPlan> plan_;
  WeightOrder<Precision> order_;
  MatrixProduct<Precision> own_;
};

/// The three passes at one batch size. Of y and dx the first to run that is cuDNN's packs the
/// weights for both.
template <class Precision>
struct ConvolutionSteps {
  ConvolutionStep<Precision> y, dx, dw;

  ConvolutionSteps() = default;
  /// `dx_first`: dx runs before y.
  [[gnu::cold]] ConvolutionSteps(const Conv2DOp& op, CudaContext& context, std::size_t count,
                                 bool bias, bool relu = false, bool dx_first = false) {
    const auto step = [&](ConvolutionPass pass, bool packed) {
      return ConvolutionStep<Precision>(op, context, count, pass, bias, relu, packed);
    };
    if (dx_first) dx = step(ConvolutionPass::backward_data, false);
    y = step(ConvolutionPass::forward, dx_first && dx.by_cudnn());
    if (!dx_first) dx = step(ConvolutionPass::backward_data, y.by_cudnn());
    dw = step(ConvolutionPass::backward_weights, false);
  }

  std::size_t scratch_bytes() const {
    return std::max({y.scratch_bytes(), dx.scratch_bytes(), dw.scratch_bytes()});
  }
};

}  // namespace lockstep::detail::cuda
