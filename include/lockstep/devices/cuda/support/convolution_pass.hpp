/// \file
/// A pass of a convolution at one batch size: cuDNN's fastest engine, or lockstep's own product if
/// the pass is small and the product is faster, or if cuDNN is missing or has no engine.
/// Invariants: the choice is made when the pass is prepared, and cached for later processes; in
/// mixed precision cuDNN's kernel gradient is rounded to bfloat16, ours is not.
///
///     cached choice? --yes--> restore it
///          | no, or cuDNN no longer accepts it
///          v
///     plans with fused epilogue, else without --none--> own product
///          |
///          v
///     autotune the plans, and the own product if small --> cache the fastest
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

#include "lockstep/core/format_text.hpp"
#include "lockstep/devices/cuda/libraries/access.hpp"
#include "lockstep/devices/cuda/support/convolution_call.hpp"
#include "lockstep/devices/cuda/support/convolution_text.hpp"
#include "lockstep/devices/cuda/support/matrix_product.hpp"
#include "lockstep/devices/cuda/support/weight_order.hpp"
#include "lockstep/devices/cuda/tuning.hpp"
#include "lockstep/devices/precision_policy.hpp"

namespace lockstep::detail::cuda {

/// The cuDNN rules of a precision.
template <class Precision>
inline constexpr CudnnRules cudnn_rules{
    std::array<cudnnDataType_t, 3>{CUDNN_DATA_FLOAT, CUDNN_DATA_BFLOAT16,
                                   CUDNN_DATA_HALF}[activation_code<Precision>],
    std::is_same_v<Precision, Tf32>, false};

/// The pass as matrix products, one for each group: rows, columns, depth.
[[gnu::cold]] inline ProductSizes product_sizes(const AnyConvolution& op, std::size_t count,
                                                ConvolutionPass pass) {
  const Shape out = op.out();
  const auto n = static_cast<std::int64_t>(count);
  const std::int64_t pixels = n * out[0] * out[1] * out[2],
                     in_pixels = n * op.in[0] * op.in[1] * op.in[2],
                     taps = std::int64_t{op.kernel.depth} * op.kernel.height * op.kernel.width,
                     depth = taps * op.group_channels();
  switch (pass) {
    case ConvolutionPass::forward:
      // y = x at the taps * kernel
      return {pixels, op.group_filters(), depth, op.filters};
    case ConvolutionPass::backward_data:
      // dx = dy at the taps * kernel, transposed
      return {in_pixels, op.group_channels(), taps * op.group_filters(), op.channels()};
    default:
      // dw = x at the taps, transposed * dy
      return {depth, op.group_filters(), pixels, op.filters};
  }
}

/// Whether our product may beat cuDNN's engines, which waste most of a tile when channels are few.
template <class Precision>
bool product_may_win(const AnyConvolution& op, std::size_t count, ConvolutionPass pass) {
  constexpr int few = 128;
  return op.groups == 1 && std::max(op.channels(), op.filters) <= few &&
         MatrixProduct<Precision>::may_win(product_sizes(op, count, pass));
}

/// The pass as a matrix product whose operands are read through index functions (implicit GEMM).
template <class Precision>
MatrixProduct<Precision> convolution_product(const AnyConvolution& op, CudaContext& context,
                                             std::size_t count, ConvolutionPass pass,
                                             bool relu = false) {
  const bool weights = pass == ConvolutionPass::backward_weights,
             data = pass == ConvolutionPass::backward_data;
  std::vector<Define> defines = convolution_defines(op);
  defines.emplace_back("LEFT_ALONG", data || (!weights && op.group_channels() >= 8));
  defines.emplace_back("RIGHT_ALONG", data);
  const char* const functions = weights ? convolution_dw_text
                                : data  ? convolution_dx_text
                                        : convolution_forward_text;
  return {context,
          Source{"convolution", matrix_product_text, functions},
          std::move(defines),
          product_sizes(op, count, pass),
          weights,
          relu};
}

/// Bytes for packed weights and bias, of a convolution or a transposed one.
template <class Precision>
constexpr std::size_t packed_bytes(const auto& op) {
  const auto channels = static_cast<std::size_t>(std::max(op.in.channels(), op.out().channels()));
  return WeightOrder<Precision>::bytes(op.kernel_size(), channels);
}
/// One pass of a convolution, prepared.
template <class Precision>
class ConvolutionStep {
 public:
  using A = typename Precision::activation;

  ConvolutionStep() = default;
  /// `with_bias`, `relu`: epilogue of forward; backward_data may add a bias too. `packed`: another
  /// pass has packed the weights before this one runs, and the measurement assumes so.
  ConvolutionStep(const AnyConvolution& op, CudaContext& context, std::size_t count,
                  ConvolutionPass pass, bool with_bias, bool relu = false, bool packed = false)
      : op_(op),
        count_(count),
        pass_(pass),
        has_bias_(with_bias && pass == ConvolutionPass::forward),
        relu_(relu && pass == ConvolutionPass::forward) {
    if (count == 0) return;
    auto& library = context.handle<CudnnAccess>();
    handle_ = library.handle();
    if (handle_ != nullptr) choose(context, library.version(), packed);
    if (plan_ == nullptr) own_ = convolution_product<Precision>(op, context, count, pass, relu_);
  }

  std::size_t scratch_bytes() const {
    if (plan_ == nullptr) return own_.scratch_bytes();
    return packed_gradient_bytes() + static_cast<std::size_t>(plan_->workspace);
  }
  /// Whether cuDNN runs the pass.
  bool by_cudnn() const { return plan_ != nullptr; }

  /// y = x * w + bias, then ReLU if requested. `bias` is null without one.
  void forward(CudaContext& context, const A* x, const float* w, const float* bias, A* y,
               std::byte* scratch, PackedWeights packed) const {
    if (plan_ == nullptr)
      return own(context, x, channels(), w, filters(), bias, y, filters(), scratch);
    if (!packed.ready) order_.pack(context, w, bias, packed.place, fuses());
    execute(context, x, packed.place, y, scratch);
    if (!fuses() && (has_bias_ || relu_)) finish(context, y, bias, op_.out());
  }
  /// dx = dy * w^T + bias; the bias is for Conv2DTranspose, else null.
  void backward_data(CudaContext& context, const A* dy, const float* w, const float* bias, A* dx,
                     std::byte* scratch, PackedWeights packed) const {
    if (plan_ == nullptr)
      return own(context, dy, filters(), w, filters(), bias, dx, channels(), scratch);
    if (!packed.ready) order_.pack(context, w, nullptr, packed.place, false);
    execute(context, dx, packed.place, dy, scratch);
    if (bias != nullptr) finish(context, dx, bias, op_.in);
  }
  /// dw = x^T * dy.
  void backward_weights(CudaContext& context, const A* x, const A* dy, float* dw,
                        std::byte* scratch) const {
    if (plan_ == nullptr)
      return own(context, x, channels(), dy, filters(), nullptr, dw, filters(), scratch);
    execute(context, x, scratch, dy, scratch + packed_gradient_bytes());
    order_.unpack(context, scratch, dw);
  }

 private:
  using Plans = std::vector<std::shared_ptr<CudnnPlan>>;

  std::size_t channels() const { return static_cast<std::size_t>(op_.group_channels()); }
  std::size_t filters() const { return static_cast<std::size_t>(op_.group_filters()); }
  /// Our own product of each group. The distances are those between the groups' first elements;
  /// the bias is that of the result.
  template <class Right, class Out>
  void own(CudaContext& context, const A* left, std::size_t left_step, const Right* right,
           std::size_t right_step, const float* bias, Out* out, std::size_t out_step,
           std::byte* scratch) const {
    for (int g = 0; g < op_.groups; ++g) {
      own_(context, left, right, bias, out, scratch);
      left += left_step;
      right += right_step;
      out += out_step;
      if (bias != nullptr) bias += out_step;
    }
  }

  /// The name of our product in the TuningCache. A cuDNN plan's name is a digit for the epilogue
  /// and the plan's JSON.
  static constexpr const char* own_name = "our own product";

  /// Sets plan_ and fused_. Without a plan our own product runs.
  void choose(CudaContext& context, std::size_t version, bool ready) {
    auto& tuning = context.handle<TuningCache>();
    const std::string work =
        format_text("{}{}, cuDNN {}", describe(), ready ? ", packed weights" : "", version);
    if (const auto known = tuning.find(context, work); known && use(context, *known)) return;
    const Plans plans = find_plans(context.options().deterministic);
    if (plans.empty()) return;
    set_order(context);
    const bool with_own =
        !context.options().deterministic && product_may_win<Precision>(op_, count_, pass_);
    if (with_own) own_ = convolution_product<Precision>(op_, context, count_, pass_, relu_);
    const auto name = [&](std::size_t i) -> std::string {
      if (i == plans.size()) return own_name;
      const std::string json = context.handle<SharedPlans>().add(plans[i]);
      return json.empty() ? json : std::to_string(static_cast<int>(fused_)) + json;
    };
    std::optional<TuningBuffers<A>> buffers;
    const auto run = [&](std::size_t i) {
      if (!buffers) buffers.emplace(context, sizes(plans));
      plan_ = i < plans.size() ? plans[i] : nullptr;
      run_in(context, *buffers, ready);
    };
    try {
      const std::size_t i =
          tuning.measure(context, work, plans.size() + (with_own ? 1 : 0), run, name);
      plan_ = i < plans.size() ? plans[i] : nullptr;
    } catch (const DeviceError& error) {
      if (with_own) throw;
      plan_ = nullptr;
      warn(error.what());
    }
  }
  /// Switches to the candidate of that name; false if it can no longer be made.
  bool use(CudaContext& context, const std::string& name) {
    if (name == own_name) return true;
    if (name.empty()) return false;
    const auto tail = static_cast<ConvolutionTail>(name.front() - '0');
    if (tail != ConvolutionTail::none && tail != wanted_tail()) return false;
    plan_ = context.handle<SharedPlans>().find(handle_, name.substr(1));
    if (plan_ == nullptr) return false;
    fused_ = tail;
    set_order(context);
    return true;
  }

  /// The epilogue that fuses everything that forward does after the convolution.
  ConvolutionTail wanted_tail() const {
    return relu_       ? ConvolutionTail::bias_and_relu
           : has_bias_ ? ConvolutionTail::bias
                       : ConvolutionTail::none;
  }
  /// Plans with the fused epilogue, else plans without; warns if there are none.
  Plans find_plans(bool deterministic) {
    CudnnRules rules = cudnn_rules<Precision>;
    rules.deterministic = deterministic;
    std::string why = "no engine supports it";
    for (const ConvolutionTail tail : {wanted_tail(), ConvolutionTail::none}) {
      fused_ = tail;
      Plans plans = offered_plans(handle_, op_, count_, pass_, rules, tail, why);
      if (!plans.empty()) return plans;
      if (tail == ConvolutionTail::none) break;
    }
    warn(why);
    return {};
  }
  /// Warns that lockstep's own kernel replaces cuDNN.
  void warn(std::string_view why) const {
    log(LogLevel::warning,
        format_text("cuda: cuDNN refuses {}: {}; lockstep's own kernel runs it and may be slower",
                    describe(), why));
  }
  /// Prepares the packing of weights, which only cuDNN needs.
  void set_order(CudaContext& context) {
    order_ = {context, static_cast<std::int64_t>(op_.kernel_size()) / op_.filters, op_.filters};
  }

  /// One run on random operands, for the autotuner.
  void run_in(CudaContext& context, const TuningBuffers<A>& buffers, bool ready) const {
    A *const x = buffers.x.template as<A>(), *const y = buffers.y.template as<A>();
    float* const w = buffers.w.template as<float>();
    std::byte* const scratch = buffers.scratch.template as<std::byte>();
    const PackedWeights packed{buffers.packed.template as<std::byte>(), ready};
    if (pass_ == ConvolutionPass::forward)
      forward(context, x, w, has_bias_ ? w + op_.kernel_size() : nullptr, y, scratch, packed);
    else if (pass_ == ConvolutionPass::backward_data)
      backward_data(context, y, w, nullptr, x, scratch, packed);
    else
      backward_weights(context, x, y, w, scratch);
  }
  /// Sizes of the operands for a measurement.
  TuningSizes sizes(const Plans& plans) const {
    std::size_t scratch = own_.scratch_bytes();
    for (const auto& p : plans)
      scratch = std::max(scratch, packed_gradient_bytes() + static_cast<std::size_t>(p->workspace));
    const auto bytes = [&](Shape s) { return count_ * s.size() * sizeof(A); };
    const std::size_t weights = op_.kernel_size() + static_cast<std::size_t>(op_.filters);
    return {bytes(op_.in), weights * sizeof(float), bytes(op_.out()), scratch, order_.bytes()};
  }

  /// Executes the plan with weights in cuDNN's order, or writes their gradient in that order.
  void execute(CudaContext& context, const A* x, std::byte* packed, const A* y,
               std::byte* workspace) const {
    static constexpr std::array<const char*, 3> names{
        "cuDNN convolution", "cuDNN gradient of the input", "cuDNN gradient of the kernel"};
    const A* const bias = fuses() ? order_.bias(packed) : nullptr;
    ConvolutionCall{handle_, plan_, names[static_cast<std::size_t>(pass_)]}(
        context,
        {.x = x, .w = order_.weights(packed), .y = y, .bias = bias, .workspace = workspace});
  }
  /// Scratch for the packed gradient, in front of cuDNN's workspace.
  std::size_t packed_gradient_bytes() const {
    return pass_ == ConvolutionPass::backward_weights ? order_.bytes() : 0;
  }
  /// Whether cuDNN also runs the epilogue.
  bool fuses() const { return fused_ != ConvolutionTail::none; }
  /// The part of the epilogue that cuDNN does not fuse.
  void finish(CudaContext& context, A* to, const float* bias, Shape shape) const {
    order_.add_bias(context, to, bias, static_cast<std::int64_t>(count_ * shape.size()),
                    shape.channels(), relu_);
  }

  /// The key of the autotuning result, and the pass' name in messages.
  std::string describe() const {
    static constexpr std::array<const char*, 3> tails{", ", ", bias, ", ", bias, ReLU, "};
    return describe_convolution(op_, count_, pass_, tails[static_cast<std::size_t>(wanted_tail())],
                                Precision::name);
  }

  AnyConvolution op_;
  std::size_t count_ = 0;
  ConvolutionPass pass_ = ConvolutionPass::forward;
  cudnnHandle_t handle_ = nullptr;
  bool has_bias_ = false, relu_ = false;
  ConvolutionTail fused_ = ConvolutionTail::none;  // all of the epilogue, or none
  std::shared_ptr<CudnnPlan> plan_;
  WeightOrder<Precision> order_;
  MatrixProduct<Precision> own_;
};

/// The three passes at one batch size. y and dx share packed weights: the first of the two that
/// runs on cuDNN packs them.
template <class Precision>
struct ConvolutionSteps {
  ConvolutionStep<Precision> y, dx, dw;

  ConvolutionSteps() = default;
  /// `dx_first`: dx runs before y.
  ConvolutionSteps(const AnyConvolution& op, CudaContext& context, std::size_t count, bool bias,
                   bool relu = false, bool dx_first = false) {
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
