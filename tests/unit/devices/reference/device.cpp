#include "lockstep/devices/reference/device.hpp"

#include <array>
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace ls = lockstep;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LOCKSTEP_TEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define LOCKSTEP_TEST_SANITIZED 1
#endif
#endif

#ifndef LOCKSTEP_TEST_SANITIZED  // a sanitizer aborts where the system's allocator returns null

TEST_CASE("The reference device reports how much memory it could not allocate") {
  auto context = ls::Reference<double>{}.open(1, 0);
  const std::size_t bytes = std::size_t{1} << 60;
  CHECK_THROWS_MATCHES(
      context.allocate(bytes), ls::DeviceError,
      Catch::Matchers::MessageMatches(Catch::Matchers::ContainsSubstring(std::to_string(bytes))));
}
#endif

TEST_CASE("The reference device allocates memory aligned to 64 bytes") {
  auto context = ls::Reference<double>{}.open(1, 0);
  for (const std::size_t bytes : {0u, 1u, 8u, 100u, 4097u}) {
    std::byte* const p = context.allocate(bytes);
    CHECK(reinterpret_cast<std::uintptr_t>(p) % 64 == 0);
    context.release(p, bytes);
  }
}

TEST_CASE("The reference device uploads, clears and downloads") {
  auto context = ls::Reference<float>{}.open(1, 0);
  std::byte* const memory = context.allocate(4);
  const std::array<std::byte, 4> in{std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}};
  std::array<std::byte, 4> out{};
  context.upload(memory, in.data(), 4);
  context.clear(memory, 2);
  context.download(out.data(), memory, 4);
  context.release(memory, 4);
  CHECK(out == std::array<std::byte, 4>{std::byte{0}, std::byte{0}, std::byte{3}, std::byte{4}});
}

TEST_CASE("The reference device reads a batch in place") {
  auto context = ls::Reference<double>{}.open(1, 0);
  const std::vector<double> x{1, 2};
  const std::vector<std::int32_t> labels{3};
  CHECK(context.feed(0, x.data(), x.size()) == x.data());
  CHECK(context.feed(1, labels.data(), labels.size()) == labels.data());
}

TEMPLATE_TEST_CASE("The reference device adds one gradient to another", "", float, double) {
  auto context = ls::Reference<TestType>{}.open(1, 0);
  std::vector<TestType> y{1, 2, 3};
  const std::vector<TestType> x{10, 20, 30};
  context.add(y.data(), x.data(), 2);
  CHECK(y == std::vector<TestType>{11, 22, 3});
}

TEST_CASE("The reference device reports its precision and computes on one thread") {
  STATIC_CHECK(ls::Reference<double>::precision == "float64");
  STATIC_CHECK(ls::Reference<float>::precision == "float32");
  CHECK(ls::Reference<float>{}.open(2, 1).threads() == 1);
}
