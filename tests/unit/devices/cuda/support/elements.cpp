/// \file
#include "lockstep/devices/cuda/support/elements.hpp"

#include <catch2/catch_template_test_macros.hpp>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <type_traits>
#include <utility>
#include <vector>

#include "unit/devices/cuda/compare.hpp"

using namespace lockstep;
using namespace testing;

namespace {

template <class To, class From>
To bits_as(From bits) {
  static_assert(sizeof(To) == sizeof(From));
  To value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
std::uint32_t bits_of(float x) { return bits_as<std::uint32_t>(x); }

/// All 65536 16-bit patterns.
template <class A>
std::vector<A> all_halves() {
  std::vector<A> all(0x10000);
  for (std::uint32_t bits = 0; bits < all.size(); ++bits)
    all[bits] = A::of_bits(static_cast<std::uint16_t>(bits));
  return all;
}

/// Rounded on the device.
template <class D>
std::vector<ActivationOf<D>> put(const std::vector<float>& x) {
  auto context = D{}.open(1, 0);
  const auto scope = context.scope();
  DeviceArray<D, float> from(context, x);
  DeviceArray<D, ActivationOf<D>> to(context, x.size());
  context.convert(to.data(), from.data(), x.size());
  return to.download();
}
template <class D>
std::vector<float> get(const std::vector<ActivationOf<D>>& x) {
  auto context = D{}.open(1, 0);
  const auto scope = context.scope();
  DeviceArray<D, ActivationOf<D>> from(context, x);
  DeviceArray<D, float> to(context, x.size());
  context.convert(to.data(), from.data(), x.size());
  return to.download();
}

}  // namespace

// On a GPU these are its cvt instructions, on the host the prelude's integer code.
TEMPLATE_TEST_CASE("each 16-bit number converts to the same float as in core, and rounds to itself",
                   "", CudaBFloat16, CudaFloat16) {
  using A = ActivationOf<TestType>;
  TestGpu gpu;
  const std::vector<A> halves = all_halves<A>();
  const std::vector<float> floats = get<TestType>(halves);
  const std::vector<A> back = put<TestType>(floats);
  std::size_t wrong = 0, nans = 0;
  for (std::size_t i = 0; i < halves.size(); ++i) {
    const float expected = halves[i];
    if (std::isnan(expected)) {
      ++nans;
      wrong += !std::isnan(floats[i]) || !std::isnan(float(back[i]));
    } else {
      wrong += bits_of(floats[i]) != bits_of(expected) || back[i].bits != halves[i].bits;
    }
  }
  CHECK(wrong == 0);
  CHECK(nans == (std::is_same_v<A, bfloat16> ? 2 * 0x7F : 2 * 0x3FF));
}

TEMPLATE_TEST_CASE("a tie rounds to even, and its neighbours to nearest", "", CudaBFloat16,
                   CudaFloat16) {
  using A = ActivationOf<TestType>;
  TestGpu gpu;
  constexpr int infinity = std::is_same_v<A, bfloat16> ? 0x7F80 : 0x7C00;
  std::vector<float> x;
  std::vector<std::uint16_t> expected;
  std::size_t inexact = 0;
  const auto value = [](int bits) {
    return double(float(A::of_bits(static_cast<std::uint16_t>(bits))));
  };
  for (int low = 0; low < infinity; ++low) {
    // Above the largest number, as if there were a next one.
    const double step =
        low + 1 < infinity ? value(low + 1) - value(low) : value(low) - value(low - 1);
    const double middle = value(low) + step / 2;
    const auto tie = static_cast<float>(middle);
    inexact += double(tie) != middle;
    for (const auto& [size, rounded] :
         {std::pair{std::nextafter(tie, 0.0f), low}, std::pair{tie, low + low % 2},
          std::pair{std::nextafter(tie, INFINITY), low + 1}})
      for (const bool negative : {false, true}) {
        x.push_back(negative ? -size : size);
        expected.push_back(static_cast<std::uint16_t>(negative ? 0x8000 | rounded : rounded));
      }
  }
  REQUIRE(inexact == 0);
  const std::vector<A> rounded = put<TestType>(x);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    wrong += rounded[i].bits != expected[i] || A(x[i]).bits != expected[i];
  CHECK(wrong == 0);
}

TEMPLATE_TEST_CASE("floats of all magnitudes round as in core, and a NaN stays a NaN", "",
                   CudaBFloat16, CudaFloat16) {
  using A = ActivationOf<TestType>;
  TestGpu gpu;
  std::vector<float> x;
  for (std::uint32_t high = 0; high < 0x10000; high += 7)
    for (const std::uint32_t low : {0u, 1u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu})
      x.push_back(bits_as<float>(high << 16 | low));
  for (const std::uint32_t nan : {0x7F800001u, 0xFF800001u, 0x7FFFFFFFu, 0xFFC00000u})
    x.push_back(bits_as<float>(nan));
  const std::vector<A> rounded = put<TestType>(x);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    wrong += std::isnan(x[i]) ? !std::isnan(float(rounded[i])) : rounded[i].bits != A(x[i]).bits;
  CHECK(wrong == 0);
}

TEST_CASE("sums of buffers of any size and type") {
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

TEST_CASE("download_and_clear copies to the host and zeroes the GPU's memory") {
  TestGpu gpu;
  auto context = Cuda{}.open(1, 0);
  const auto scope = context.scope();
  std::vector<double> sums(700);
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = 0.5 + static_cast<double>(i);
  DeviceArray<Cuda, double> memory(context, sums);
  std::vector<double> first(700), second(700, 1.0);
  const auto download_and_clear = [&](std::vector<double>& to) {
    context.download_and_clear(reinterpret_cast<std::byte*>(to.data()),
                               reinterpret_cast<std::byte*>(memory.data()), 700 * sizeof(double));
  };
  // Twice before the host waits.
  download_and_clear(first);
  download_and_clear(second);
  context.synchronize();
  CHECK(first == sums);
  CHECK(second == std::vector<double>(700));
}
