/// \file
/// Functions as text for the GPU's kernels of pointwise activations and losses. Invariants: the
/// text is written at compile time, one line per operation; the header needs nothing of NVIDIA's,
/// so that a unit for another device can include it.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lockstep/functions/code.hpp"
#include "lockstep/layers/function.hpp"
#include "lockstep/losses/elementwise_loss.hpp"
#include "lockstep/losses/function.hpp"

namespace lockstep {

template <class Op>
struct CudaText;

namespace detail::cuda {

class Define;

/// Functions that the lines call.
inline constexpr std::string_view function_helpers = R"cuda(
__device__ inline float f_sigmoid(float x) {
  const float e = expf(x > 0 ? -x : x);
  return (x > 0 ? 1.0f : e) / (1 + e);
}
__device__ inline float f_softplus(float x) {
  return (x > 0 ? x : 0.0f) + log1pf(expf(x > 0 ? -x : x));
}
__device__ inline float f_bell(float x) { return expf(-x * x); }
__device__ inline float f_sign(float x) { return x > 0 ? 1.0f : x < 0 ? -1.0f : x; }
)cuda";

/// A text of at most N - 1 characters under construction.
template <std::size_t N>
class FunctionText {
 public:
  constexpr FunctionText& operator<<(std::string_view s) {
    for (const char c : s) all[size_++] = c;
    return *this;
  }
  constexpr FunctionText& operator<<(std::size_t n) {
    if (n > 9) *this << n / 10;
    all[size_++] = static_cast<char>('0' + n % 10);
    return *this;
  }
  /// A constant, of which no bit is lost.
  constexpr FunctionText& constant(double value) {
    const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
    *this << "as_float(0x";
    for (int shift = 28; shift >= 0; shift -= 4)
      all[size_++] = "0123456789ABCDEF"[bits >> shift & 15];
    return *this << "u)";
  }
  char all[N]{};

 private:
  std::size_t size_ = 0;
};

/// Writes the nodes of a tape.
template <std::size_t N>
class FunctionLines {
 public:
  constexpr explicit FunctionLines(const functions::Tape& tape) : tape_(tape) {
    text << function_helpers;
  }

  /// "v7", the argument of the function, or a constant.
  constexpr void value(std::size_t i) {
    const functions::Node& n = tape_.node[i];
    using enum functions::Operation;
    if (n.op == constant)
      text.constant(n.value);
    else if (n.op == input || n.op == output)
      text << "x";
    else if (n.op == target)
      text << "t";
    else if (n.op == slope)
      text << (n.is_row ? "get(of_y[0])" : "d");
    else
      text << "v" << i;
  }
  /// "const float v7 = v5 + v6;"
  constexpr void line(std::size_t i) {
    const functions::Node& n = tape_.node[i];
    using enum functions::Operation;
    if (is_leaf(n.op)) return;
    text << "  const float v" << i << " = ";
    if (is_choice(n.op)) {
      value(n.from[0]);
      text << (n.op == if_less         ? " < "
               : n.op == if_less_equal ? " <= "
               : n.op == if_equal      ? " == "
               : n.op == if_maximum    ? " >= "
                                       : " <= ");
      value(n.from[1]);
      if (n.op == if_maximum || n.op == if_minimum) {
        text << " || ";
        value(n.from[0]);
        text << " != ";
        value(n.from[0]);
      }
      text << " ? ";
      value(n.from[2]);
      text << " : ";
      value(n.from[3]);
    } else if (is_binary(n.op)) {
      value(n.from[0]);
      text << (n.op == add ? " + " : n.op == subtract ? " - " : n.op == multiply ? " * " : " / ");
      value(n.from[1]);
    } else if (has_factor(n.op)) {
      text << (n.op == erf ? "erff(" : n.op == erfc ? "erfcf(" : "f_bell(");
      text.constant(n.value);
      text << " * ";
      value(n.from[0]);
      text << ")";
    } else {
      text << function_of(n.op);
      value(n.from[0]);
      if (n.op == power) {
        text << ", ";
        text.constant(n.value);
      }
      text << ")";
    }
    text << ";\n";
  }
  constexpr void all_lines() {
    for (std::size_t i = 0; i < tape_.size; ++i) line(i);
  }

  /// How a team of threads computes a row.
  struct Team {
    std::string_view loop;  ///< over the elements of a thread: "for (...) {\n const float x = ..."
    std::string_view part;  ///< type of a thread's sum
    std::string_view sum, max;  ///< of the team
    std::string_view store;     ///< before the value that the last pass stores; empty: nothing
    std::string_view stored;    ///< after it
    std::string_view guard;     ///< before the loop of the last pass
  };
  /// The passes over a row. `root`: what the last one stores.
  constexpr void passes(const functions::Schedule& schedule, int root, const Team& team) {
    using enum functions::Operation;
    for (std::size_t i = 0; i < tape_.size; ++i)
      if (tape_.node[i].op == length) text << "  const float v" << i << " = WIDTH;\n";
    for (std::size_t pass = 0; pass < schedule.passes; ++pass) {
      const bool is_last = pass + 1 == schedule.passes;
      bool has_sums = false;
      for (std::size_t i = 0; i < tape_.size; ++i) {
        const functions::Node& n = tape_.node[i];
        if (n.is_row && !is_reduction(n.op) && schedule.stage[i] == pass) line(i);
        has_sums |= is_reduction(n.op) && schedule.stage[n.from[0]] == pass;
      }
      const auto reduces = [&](std::size_t i) {
        return is_reduction(tape_.node[i].op) && schedule.stage[tape_.node[i].from[0]] == pass;
      };
      if (!has_sums && team.store.empty()) continue;
      for (std::size_t i = 0; i < tape_.size; ++i)
        if (reduces(i) && tape_.node[i].op == sum)
          text << "  " << team.part << " s" << i << " = 0;\n";
        else if (reduces(i))
          text << "  float s" << i << " = as_float(0xFF800000u);\n";
      if (is_last) text << team.guard;
      text << team.loop;
      for (std::size_t i = 0; i < tape_.size; ++i)
        if (schedule.needed[pass][i]) line(i);
      for (std::size_t i = 0; i < tape_.size; ++i) {
        if (!reduces(i)) continue;
        const bool is_sum = tape_.node[i].op == sum;
        text << "  s" << i;
        if (is_sum)
          text << " += ";
        else
          text << " = fmaxf(s" << i << ", ";
        value(tape_.node[i].from[0]);
        text << (is_sum ? ";\n" : ");\n");
      }
      if (is_last && !team.store.empty()) {
        text << team.store;
        value(static_cast<std::size_t>(root));
        text << team.stored;
      }
      text << "  }\n";
      for (std::size_t i = 0; i < tape_.size; ++i)
        if (reduces(i))
          text << "  const float v" << i << " = (float)"
               << (tape_.node[i].op == sum ? team.sum : team.max) << "(s" << i << ");\n";
    }
  }

  FunctionText<N> text;

 private:
  static constexpr std::string_view function_of(functions::Operation op) {
    using enum functions::Operation;
    switch (op) {
      case negate:
        return "(-";
      case exp:
        return "expf(";
      case expm1:
        return "expm1f(";
      case log:
        return "logf(";
      case log1p:
        return "log1pf(";
      case tanh:
        return "tanhf(";
      case sigmoid:
        return "f_sigmoid(";
      case softplus:
        return "f_softplus(";
      case sqrt:
        return "sqrtf(";
      case abs:
        return "fabsf(";
      case sign:
        return "f_sign(";
      case power:
        return "powf(";
      default:
        return "(";
    }
  }
  const functions::Tape& tape_;
};

/// Room for the lines of some tapes.
constexpr std::size_t function_room(std::size_t nodes) { return 1024 + 160 * nodes; }

}  // namespace detail::cuda

/// `value` and `derivative`, see devices/cuda/ops/pointwise.hpp.
template <class C>
  requires(!FunctionOp<C>::reduces)
struct CudaText<FunctionOp<C>> {
 private:
  using F = lockstep::functions::Forward<C>;
  using S = lockstep::functions::Slope<C>;
  static constexpr std::size_t room = detail::cuda::function_room(F::tape.size + S::tape.size);
  static constexpr auto both = [] {
    detail::cuda::FunctionLines<room> value(F::tape);
    value.text << "__device__ float value(float x) {\n";
    value.all_lines();
    value.text << "  return ";
    value.value(static_cast<std::size_t>(F::root));
    value.text << ";\n}\n__device__ float derivative(float x) {\n";
    detail::cuda::FunctionLines<room> slope(S::tape);
    slope.text = value.text;
    slope.all_lines();
    slope.text << "  return ";
    slope.value(static_cast<std::size_t>(S::root));
    slope.text << ";\n}\n";
    return slope.text;
  }();

 public:
  static constexpr const char* functions = both.all;
  template <class D = detail::cuda::Define>
  static std::array<D, 0> defines(const FunctionOp<C>&) {
    return {};
  }
};

/// `term`, see devices/cuda/ops/loss.hpp.
template <class C>
struct CudaText<FunctionRule<C>> {
 private:
  using P = lockstep::functions::ValueAndSlope<C>;
  static constexpr auto lines = [] {
    detail::cuda::FunctionLines<detail::cuda::function_room(P::tape.size)> lines(P::tape);
    lines.text << "struct Term { float value, slope; };\n"
                  "__device__ Term term(float x, float t) {\n";
    lines.all_lines();
    lines.text << "  const Term one = {";
    lines.value(static_cast<std::size_t>(P::value));
    lines.text << ", ";
    lines.value(static_cast<std::size_t>(P::root));
    lines.text << "};\n  return one;\n}\n";
    return lines.text;
  }();

 public:
  static constexpr const char* functions = lines.all;
  template <class D = detail::cuda::Define>
  static std::array<D, 0> defines(const FunctionRule<C>&) {
    return {};
  }
};

/// `row`, see devices/cuda/ops/loss.hpp: a warp's passes over a row.
template <class C>
struct CudaText<FunctionLossOp<C>> {
 private:
  using P = lockstep::functions::ValueAndSlope<C>;
  static constexpr std::size_t room =
      detail::cuda::function_room(3 * P::tape.size * P::schedule.passes);
  static constexpr auto lines = [] {
    detail::cuda::FunctionLines<room> lines(P::tape);
    lines.text << "#define WIDTH SIZE\n"
                  "__device__ float row(const float* p, const Target* targets, float* g, "
                  "float scale, int lane) {\n";
    lines.passes(P::schedule, P::root,
                 {.loop = "  for (int k = lane; k < SIZE; k += 32) {\n"
                          "  const float x = p[k], t = targets[k];\n",
                  .part = "double",
                  .sum = "warp_sum",
                  .max = "warp_max",
                  .store = "  g[k] = scale * ",
                  .stored = ";\n",
                  .guard = "  if (g)\n"});
    lines.text << "  return ";
    lines.value(static_cast<std::size_t>(P::value));
    lines.text << ";\n}\n";
    return lines.text;
  }();

 public:
  static constexpr const char* functions = lines.all;
  template <class D = detail::cuda::Define>
  static std::array<D, 0> defines(const FunctionLossOp<C>&) {
    return {};
  }
};

/// The kernels `forward` and `backward`, see devices/cuda/ops/rows.hpp.
template <class C>
  requires FunctionOp<C>::reduces
struct CudaText<FunctionOp<C>> {
 private:
  using F = lockstep::functions::Forward<C>;
  using B = lockstep::functions::Backward<C>;
  static constexpr bool is_row = FunctionOp<C>::is_row;
  static constexpr std::size_t room = detail::cuda::function_room(
      3 * (F::tape.size * F::schedule.passes + B::tape.size * B::schedule.passes));
  static constexpr auto both = [] {
    detail::cuda::FunctionLines<room> forward(F::tape);
    forward.text << "KERNEL(forward)(const A* input, A* output, i64 rows) {\n"
                    "  FOR_EACH_ROW(row) {\n"
                    "  const A* const from = input + row * WIDTH;\n"
                    "  A* const to = output + row * OUT_WIDTH;\n";
    forward.passes(F::schedule, F::root,
                   {.loop = "  FOR_MINE(k) {\n  const float x = get(from[k]);\n",
                    .part = "Part",
                    .sum = "row_sum",
                    .max = "row_max",
                    .store = is_row ? "" : "  to[k] = put<A>(",
                    .stored = ");\n",
                    .guard = ""});
    if (is_row) {
      forward.text << "  if (MEMBER == 0) *to = put<A>(";
      forward.value(static_cast<std::size_t>(F::value));
      forward.text << ");\n";
    }
    forward.text << "  }\n}\n"
                    "KERNEL(backward)(const A* input, const A* slopes, A* output, i64 rows) {\n"
                    "  FOR_EACH_ROW(row) {\n"
                    "  const A* const from = input + row * WIDTH;\n"
                    "  const A* const of_y = slopes + row * OUT_WIDTH;\n"
                    "  A* const to = output + row * WIDTH;\n";
    detail::cuda::FunctionLines<room> backward(B::tape);
    backward.text = forward.text;
    backward.passes(B::schedule, B::root,
                    {.loop = is_row ? "  FOR_MINE(k) {\n"
                                      "  const float x = get(from[k]);\n"
                                    : "  FOR_MINE(k) {\n"
                                      "  const float x = get(from[k]), d = get(of_y[k]);\n",
                     .part = "Part",
                     .sum = "row_sum",
                     .max = "row_max",
                     .store = "  to[k] = put<A>(",
                     .stored = ");\n",
                     .guard = ""});
    backward.text << "  }\n}\n";
    return backward.text;
  }();

 public:
  static constexpr const char* rows = both.all;
};

}  // namespace lockstep
