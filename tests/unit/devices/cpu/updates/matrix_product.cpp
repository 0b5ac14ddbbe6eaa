/// \file
/// Products with the same bits for any number of threads and length of vectors.
#include "lockstep/devices/cpu/updates/matrix_product.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/core/rng.hpp"

namespace matrix_products {

struct Threads {
  int count;
  int threads() const { return count; }
};

/// Numbers between -1 and 1 whose products are rounded.
std::vector<float> values(std::size_t n, std::uint64_t key) {
  std::vector<float> result;
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t bits = lockstep::mix(key, i);
    result.push_back(std::ldexp(static_cast<float>(bits >> 40), -23) - 1);
  }
  return result;
}

/// The definition: a chain of multiply-adds for each element, each rounded once, or twice.
std::vector<float> chains(const std::vector<float>& left, const std::vector<float>& right,
                          std::size_t rows, std::size_t inner, std::size_t columns, bool fuses) {
  std::vector<float> out(rows * columns);
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j)
      for (std::size_t k = 0; k < inner; ++k) {
        const float a = left[i * inner + k], b = right[k * columns + j];
        float& sum = out[i * columns + j];
        volatile float product = a * b;  // not fused
        sum = fuses ? std::fma(a, b, sum) : sum + product;
      }
  return out;
}

std::vector<std::size_t> lengths() {
  namespace detail = lockstep::detail;
  std::vector<std::size_t> all{0};
  if (detail::has_vectors()) all.push_back(detail::vector_bytes);
  if (detail::has_wide_vectors()) all.push_back(detail::wide_vector_bytes);
  return all;
}

}  // namespace matrix_products

TEST_CASE("a product of matrices has the bits of chains of multiply-adds") {
  using namespace matrix_products;
  struct Sizes {
    std::size_t rows, inner, columns;
  };
  for (const auto [rows, inner, columns] :
       {Sizes{1, 1, 1}, Sizes{7, 3, 5}, Sizes{13, 1100, 67}, Sizes{65, 70, 130}}) {
    CAPTURE(rows, inner, columns);
    const auto left = values(rows * inner, 1), right = values(inner * columns, 2);
    std::vector<float> transposed(inner * rows);
    for (std::size_t i = 0; i < rows; ++i)
      for (std::size_t k = 0; k < inner; ++k) transposed[k * rows + i] = left[i * inner + k];
    std::vector<float> of_vectors;
    for (const std::size_t bytes : lengths())
      for (const int threads : {1, 3}) {
        CAPTURE(bytes, threads);
        const Threads context{threads};
        std::vector<float> out(rows * columns, NAN), of_square(rows * rows, NAN);
        using Product = lockstep::detail::MatrixProduct<float>;
        lockstep::detail::ProductsInVectors::multiply(
            context, Product{left.data(), right.data(), out.data(), rows, inner, columns}, bytes);
        lockstep::detail::ProductsInVectors::multiply(
            context,
            Product{left.data(), transposed.data(), of_square.data(), rows, inner, rows, true},
            bytes);
        if (bytes > 0 && of_vectors.empty()) of_vectors = out;
        CHECK((bytes == 0 || out == of_vectors));
        // A compiler that does not optimize rounds twice in vectors.
        const bool once = out == chains(left, right, rows, inner, columns, true);
        CHECK((once || (bytes > 0 && out == chains(left, right, rows, inner, columns, false))));
        CHECK(of_square == chains(left, transposed, rows, inner, rows, once));
      }
  }
}
