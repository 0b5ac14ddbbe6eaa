/// \file
#include "lockstep/devices/cuda/kernels/elements.hpp"

#include <catch2/catch_template_test_macros.hpp>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <vector>

#include "compare.hpp"

using namespace lockstep;
using namespace testing;

namespace {

/// Floats that bfloat16 has, of all sizes, and floats around and between them; what float16 has,
/// and its neighbours.
std::vector<float> floats_of_all_kinds() {
  std::vector<float> all;
  for (std::uint32_t high = 0; high < 0x10000; high += 7)
    for (const std::uint32_t low : {0u, 1u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu}) {
      const std::uint32_t bits = high << 16 | low;
      float value = 0;
      std::memcpy(&value, &bits, sizeof value);
      all.push_back(value);
    }
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = float16::of_bits(static_cast<std::uint16_t>(bits));
    if (std::isnan(value)) continue;
    for (const float near : {-1e30f, 1e30f}) all.push_back(std::nextafter(value, near));
    all.push_back(value);
    all.push_back(value * (1 + 0x1p-11f));  // a tie, where its fraction is 0
  }
  return all;
}

}  // namespace

TEMPLATE_TEST_CASE("rounding to two bytes and back gives the bits of core", "", CudaBFloat16,
                   CudaFloat16) {
  using A = ActivationOf<TestType>;
  TestGpu gpu;
  auto context = TestType{}.open(1, 0);
  const auto scope = context.scope();
  const std::vector<float> x = floats_of_all_kinds();
  DeviceArray<TestType, float> from(context, x), back(context, x.size());
  DeviceArray<TestType, A> to(context, x.size());
  context.convert(to.data(), from.data(), x.size());
  context.convert(back.data(), to.data(), x.size());
  const auto halves = to.download();
  const auto floats = back.download();
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const A expected(x[i]);
    const float as_float = expected;
    wrong +=
        halves[i].bits != expected.bits || std::memcmp(&floats[i], &as_float, sizeof as_float) != 0;
  }
  CHECK(wrong == 0);
}

TEST_CASE("sums of buffers, of any size and in all types") {
  TestGpu gpu;
  auto context = Cuda{}.open(1, 0);
  const auto scope = context.scope();
  for (const std::size_t n : std::initializer_list<std::size_t>{0, 1, 255, 257, 3000}) {
    const std::vector<float> x = rounded(as<float>(normal_values(n, 1)));
    const std::vector<float> y = rounded(as<float>(normal_values(n, 2)));
    DeviceArray<Cuda, float> to(context, y), from(context, x);
    DeviceArray<Cuda, bfloat16> half_to(context, as<bfloat16>(y)),
        half_from(context, as<bfloat16>(x));
    context.add(to.data(), from.data(), n);
    DeviceArray<Cuda, float16> other_to(context, as<float16>(y)),
        other_from(context, as<float16>(x));
    context.add(half_to.data(), half_from.data(), n);
    context.add(other_to.data(), other_from.data(), n);
    const auto sums = to.download();
    const auto half_sums = half_to.download();
    const auto other_sums = other_to.download();
    for (std::size_t i = 0; i < n; ++i) {
      CHECK(sums[i] == x[i] + y[i]);
      CHECK(half_sums[i].bits == bfloat16(x[i] + y[i]).bits);
      CHECK(other_sums[i].bits == float16(float(float16(x[i])) + float(float16(y[i]))).bits);
    }
  }
}

TEST_CASE("what is handed over to the host is zero on the GPU afterwards") {
  TestGpu gpu;
  auto context = Cuda{}.open(1, 0);
  const auto scope = context.scope();
  std::vector<double> sums(700);
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = 0.5 + static_cast<double>(i);
  DeviceArray<Cuda, double> memory(context, sums);
  std::vector<double> first(700), second(700, 1.0);
  const auto hand_over = [&](std::vector<double>& to) {
    context.hand_over(reinterpret_cast<std::byte*>(to.data()),
                      reinterpret_cast<std::byte*>(memory.data()), 700 * sizeof(double));
  };
  // Twice before the host waits.
  hand_over(first);
  hand_over(second);
  context.synchronize();
  CHECK(first == sums);
  CHECK(second == std::vector<double>(700));
}
