/// \file
/// Dense on the Cpu: the choice between its three implementations, and each of them.
#include "lockstep/devices/cpu/dense.hpp"

#include <cmath>

#include "compare.hpp"
#include "lockstep/devices/cpu/dense_by_inputs.hpp"
#include "lockstep/devices/cpu/fused/dense_tiles.hpp"
#include "unit/devices/dense.hpp"

using namespace lockstep;
using namespace testing;

TEST_CASE("dense layers with inputs split over threads agree with the reference") {
  Philox g(3);
  for (int i = 0; i < generated_shapes; ++i) {
    const DenseOp op{between(g, 250, 700), between(g, 1, 70), one_of(g, 0, 1) == 0,
                     leading_axes(g)};
    const auto count = static_cast<std::size_t>(between(g, 1, 90));
    INFO(op.inputs << " -> " << op.units << (op.bias ? ", bias, " : ", ") << op.rows() << " rows");
    const auto n = numbers(op, op.in().size(), op.weights(), count);
    for (const bool want_dx : {true, false}) check_against_reference(op, count, n, want_dx);
  }
}

TEST_CASE("a dense layer splits its inputs over threads for small batches only") {
  constexpr DenseOp op{512, 64, true};
  CHECK(lockstep::detail::DenseByInputs::fits(op, 64, 2));
  CHECK_FALSE(lockstep::detail::DenseByInputs::fits(op, 65, 2));
  CHECK_FALSE(lockstep::detail::DenseByInputs::fits(op, 1, 1));
  CHECK_FALSE(lockstep::detail::DenseByInputs::fits({255, 64, true}, 1, 2));
  CHECK_FALSE(lockstep::detail::DenseByInputs::fits(op, 64, 4));
  // Equal bits in a second run, even with more threads than ranges of inputs.
  const auto n = numbers(op, 512, op.kernel_size() + 64, 1);
  const auto expected = run<Reference<double>>(op, 1, n);
  for (const int threads : {2, 40, 128}) {
    REQUIRE(lockstep::detail::DenseByInputs::fits(op, 1, threads));
    const Cpu device{.threads = threads};
    const auto a = run(op, 1, n, device), b = run(op, 1, n, device);
    check_close(a, expected);
    CHECK(a.y == b.y);
    CHECK(a.dx == b.dx);
    CHECK(a.dw == b.dw);
  }
}

TEST_CASE("a dense layer of 64 units on one thread uses tiles if the processor has AVX-512") {
  using lockstep::detail::DenseTiles;
  constexpr DenseOp op{5408, 64, true};
  CHECK(DenseTiles::fits(op, 64, 1) == lockstep::detail::has_wide_vectors());
  CHECK_FALSE(DenseTiles::fits(op, 64, 2));
  CHECK_FALSE(DenseTiles::fits(op, 8, 1));
  CHECK_FALSE(DenseTiles::fits({5408, 65, true}, 64, 1));
  CHECK_FALSE(DenseTiles::fits({5400, 64, true}, 64, 1));
  CHECK_FALSE(DenseTiles::fits({3120, 64, true}, 64, 1));
}

TEST_CASE("tiled dense layers agree with the reference, with and without ReLU and dx") {
  Philox g(4);
  for (int i = 0; i < generated_shapes; ++i) {
    const DenseOp op{16 * between(g, 196, 205), 64, one_of(g, 0, 1) == 0};
    const auto count =
        static_cast<std::size_t>(i % 10 == 0 ? between(g, 200, 256) : between(g, 16, 60));
    INFO(count << " of " << op.inputs << " -> " << op.units << (op.bias ? ", bias" : ""));
    const Numbers n = numbers(op, op.in().size(), op.weights(), count);
    const Cpu one{.threads = 1};
    const bool want_dx = one_of(g, 0, 1, 1) == 1;
    const auto plain = run<Reference<double>>(op, count, n, {}, want_dx);
    check_close(run(op, count, n, one, want_dx), plain);
    const DenseReLUOp fused{op, {op.out()}};
    const auto& y = plain.y;
    Numbers masked = n;  // dy after the ReLU's mask
    for (std::size_t k = 0; k < y.size(); ++k)
      if (y[k] <= 0) masked.dy[k] = 0;
    auto expected = run<Reference<double>>(op, count, masked, {}, want_dx);
    for (double& v : expected.y) v = v > 0 ? v : 0;
    const auto result = run(fused, count, n, one, want_dx);
    // Precondition: no output so close to zero that float and double differ in its sign.
    check_close(result, expected);
    CHECK(run(fused, count, n, one, want_dx).dw == result.dw);
  }
}
