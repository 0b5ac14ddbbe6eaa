/// \file
/// Layers without matrix products in bfloat16: checks on generated shapes, for each device.
/// `Tested` comes from the device's compare.hpp.
#pragma once

#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "lockstep/layers/layers.hpp"
#include "lockstep/reference.hpp"
#include "support/kernel_numbers.hpp"
#include "support/pooling.hpp"
#include "support/rearrangements.hpp"

namespace testing {

/// Tolerance for one rounding of each value stored in bfloat16; see compare.hpp.
template <class Tested, class O>
void check_parameterless(const O& op, lockstep::Shape in, std::size_t count, double spread = 1) {
  INFO(to_string(in) << ", spread " << spread);
  const Numbers n = numbers(op, in.size(), 0, count, spread);
  Tested::check_half(op, count, n, 0, norm(n.dy));
}

template <class Tested, class Layer>
void activates_in_bfloat16() {
  Tested::need_half();
  lockstep::Philox g(6);
  for (int i = 0; i < Tested::half_shapes; ++i) {
    const auto op =
        Layer::op(lockstep::shape(between(g, 1, 9), between(g, 1, 9), between(g, 1, 20)));
    const auto count = static_cast<std::size_t>(between(g, Tested::least_count, 5));
    check_parameterless<Tested>(op, op.in, count, one_of(g, 1, 10, 100) * 0.1);
  }
}

template <class Tested, class Layer>
void takes_gradients_from_stored_results() {
  Tested::need_half();
  [[maybe_unused]] typename Tested::Machine machine;
  lockstep::Philox g(8);
  for (int i = 0; i < Tested::half_shapes; ++i) {
    const auto op =
        Layer::op(lockstep::shape(between(g, 1, 9), between(g, 1, 9), between(g, 1, 20)));
    INFO(to_string(op.in));
    Numbers n = numbers(op, op.in.size(), 0, 3);
    n.x = rounded(n.x);
    n.dy = rounded(n.dy);
    const auto expected = run<lockstep::Reference<double>>(op, 3, n);
    const auto result = run(op, 3, n, Tested::half());
    CHECK(relative_error(result.y, expected.y) < half_tolerance);
    std::vector<double> dx(n.dy.size());
    for (std::size_t k = 0; k < dx.size(); ++k)
      dx[k] = static_cast<double>(n.dy[k]) * op.derivative(static_cast<double>(result.y[k]));
    CHECK(relative_error(result.dx, dx) < half_tolerance);
  }
}

template <class Tested, class Layer>
void takes_softmax_in_bfloat16() {
  Tested::need_half();
  [[maybe_unused]] typename Tested::Machine machine;
  lockstep::Philox g(7);
  for (int i = 0; i < Tested::half_shapes; ++i) {
    const auto op = Layer::op(
        i == 0   ? lockstep::shape(3, 1100)
        : i == 1 ? lockstep::shape(between(g, 2, 40))
                 : lockstep::shape(between(g, 1, 5), between(g, 1, 5), between(g, 2, 40)));
    const auto count = static_cast<std::size_t>(between(g, 1, 9));
    INFO(to_string(op.in));
    Numbers n = numbers(op, op.in.size(), 0, count, 2);
    n.x = rounded(n.x);
    n.dy = rounded(n.dy);
    const auto expected = run<lockstep::Reference<double>>(op, count, n);
    const auto result = run(op, count, n, Tested::half());
    CHECK(relative_error(result.y, expected.y) < half_tolerance);
    // Backward reads the stored y, whose rounding error is as large as the tolerance.
    CHECK(relative_error(result.dx, expected.dx) < 4 * half_tolerance);
  }
}

template <class Tested>
void pools_in_bfloat16() {
  Tested::need_half();
  lockstep::Philox g(4);
  for (int i = 0; i < Tested::half_shapes; ++i) {
    const auto window = generated_window(g);
    const auto count = static_cast<std::size_t>(between(g, Tested::least_count, 5));
    INFO(describe(window));
    check_parameterless<Tested>(lockstep::MaxPooling2DOp{window}, window.in, count);
    check_parameterless<Tested>(lockstep::AveragePooling2DOp{window}, window.in, count);
    check_parameterless<Tested>(lockstep::GlobalAveragePooling2DOp{window.in}, window.in, count);
    check_parameterless<Tested>(lockstep::GlobalMaxPooling2DOp{window.in}, window.in, count);
  }
  const auto large =
      lockstep::AveragePooling2D<3, lockstep::strides(1)>::op(lockstep::shape(26, 26, 35));
  check_parameterless<Tested>(large, large.window.in, 7);
  const auto many = lockstep::MaxPooling2D<17>::op(lockstep::shape(17, 34, 5));
  check_parameterless<Tested>(many, many.window.in, 2);
}

template <class Tested>
void normalizes_in_bfloat16() {
  Tested::need_half();
  [[maybe_unused]] typename Tested::Machine machine;
  lockstep::Philox g(11);
  for (int i = 0; i < Tested::half_shapes; ++i) {
    const int channels = one_of(g, 2, 3, 7, 8, 16, 24, 64, 67);
    const lockstep::BatchNormalizationOp op{
        .in = lockstep::shape(between(g, 1, 20), between(g, 1, 20), channels)};
    const auto count = static_cast<std::size_t>(between(g, 8, 40));
    INFO(to_string(op.in) << ", examples " << count);
    Numbers n = numbers(op, op.in.size(), 2 * op.channels(), count, 2);
    for (std::size_t k = 0; k < n.x.size(); ++k) n.x[k] += static_cast<float>(k % op.channels());
    n.x = rounded(n.x);
    n.dy = rounded(n.dy);
    const std::vector<float> state(2 * op.channels(), 0.5f);
    for (const bool training : {true, false}) {
      const auto expected = run_layer<lockstep::Reference<double>>(
          op, count, as<double>(n.x), as<double>(n.w), as<double>(n.dy),
          {.training = training, .state = as<double>(state)});
      const auto result = run_layer<typename Tested::Half>(
          op, count, n.x, n.w, n.dy, {.training = training, .state = state}, Tested::half());
      CHECK(relative_error(result.y, expected.y) < half_tolerance);
      CHECK(relative_error(result.dx, expected.dx) < half_tolerance);
      CHECK(relative_error(result.dw, expected.dw) < half_dw_tolerance);
      CHECK(relative_error(result.state, expected.state) < 1e-6);
    }
  }
}

template <class Tested>
void normalizes_layers_in_bfloat16() {
  Tested::need_half();
  lockstep::Philox g(13);
  for (int i = 0; i < Tested::half_shapes; ++i) {
    const lockstep::LayerNormalizationOp op{
        .in = lockstep::shape(between(g, 1, 20), between(g, 2, 70))};
    Tested::check_half(op, 9, numbers(op, op.in.size(), 2 * op.channels(), 9));
  }
}

template <class Tested>
void moves_elements_in_bfloat16() {
  Tested::need_half();
  lockstep::Philox g(36);
  for (int i = 0; i < Tested::half_shapes; ++i) {
    const lockstep::Shape in =
        lockstep::shape(between(g, 1, 9), between(g, 1, 9), one_of(g, 1, 5, 64, 70));
    const lockstep::UpSampling2DOp op{in,
                                      {between(g, 1, 4), between(g, 1, 4)},
                                      i % 2 == 0 ? lockstep::nearest : lockstep::bilinear};
    check_parameterless<Tested>(op, in, 3);
    const auto check = [&](const auto& moved) {
      if constexpr (requires { moved.in; }) check_parameterless<Tested>(moved, moved.in, 3);
    };
    if (i > 1) continue;
    rearranged_images(g, in, check);
    other_rearrangements(g, between(g, 1, 9), in[2], check);
  }
}

template <class Tested>
void embeds_unrounded_numbers() {
  Tested::need_half();
  [[maybe_unused]] typename Tested::Machine machine;
  using Half = typename Tested::Half;
  constexpr lockstep::EmbeddingOp op{lockstep::shape(2), 5000, 3};
  Numbers n = numbers(op, 2, op.table_size(), 2);
  n.x = {4999, 257, 1, 4097};
  const RunOptions<float> batch{.is_batch = true};
  const auto result = run_layer<Half>(op, 2, n.x, n.w, n.dy, batch);
  for (std::size_t i = 0; i < 4; ++i)
    for (std::size_t u = 0; u < 3; ++u) {
      const std::size_t at = static_cast<std::size_t>(n.x[i]) * 3 + u;
      CHECK(result.y[3 * i + u] == float(lockstep::bfloat16(n.w[at])));
      CHECK(result.dw[at] == float(lockstep::bfloat16(n.dy[3 * i + u])));
    }
  std::string message;
  try {
    run_layer<Half>(op, 2, n.x, n.w, n.dy);
  } catch (const lockstep::UsageError& error) {
    message = error.what();
  }
  CHECK(message ==
        "embedding: the vocabulary is 5000, but bfloat16 represents whole numbers exactly only up "
        "to 256; use a smaller vocabulary, or make the embedding the first layer");
}

}  // namespace testing
