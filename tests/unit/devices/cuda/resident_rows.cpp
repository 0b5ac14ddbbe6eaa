/// \file
/// Batches gathered on a GPU from resident rows, compared with those of Loader.
#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "lockstep/cuda.hpp"
#include "lockstep/lockstep.hpp"
#include "support/test_gpu.hpp"

using namespace lockstep;

namespace {

template <class T>
std::vector<T> from_gpu(CudaContext& context, const T* p, std::size_t n) {
  std::vector<T> host(n);
  context.download(reinterpret_cast<std::byte*>(host.data()), reinterpret_cast<const std::byte*>(p),
                   n * sizeof(T));
  context.synchronize();
  return host;
}

/// All batches of two passes, the second pass starting at its fourth example. `exact`: bit by bit.
template <class Data>
void check(const Data& data, bool exact = true, const ClassWeights& classes = {},
           Shape weighed = {}) {
  static_assert(detail::can_reside<Cuda, Data>);
  const testing::TestGpu gpu;
  CudaContext context = Cuda{}.open(1, 0);
  const auto scope = context.scope();
  // The second half of each batch, as for the second of two processes.
  const auto part = [](std::size_t n) { return Slice{n / 2, n - n / 2}; };
  detail::ResidentRows<Cuda, Data> rows(data, 1, part(data.batch_size()).count, part, classes,
                                        weighed);
  REQUIRE(rows.fits());
  rows.upload_rows(0, context);
  using Target = target_of<Data>;
  Loader<float> loader(data, part, classes, FieldRole::weight, weighed);
  LoadedBatch expected, share;
  for (std::uint64_t pass = 0; pass < 2; ++pass) {
    loader.begin({7, pass}, 3 * pass);
    rows.begin({7, pass}, 3 * pass);
    std::size_t batches = 0;
    for (; loader.next(expected); ++batches) {
      INFO("pass " << pass << ", batch " << batches);
      REQUIRE(rows.next(share));
      CHECK(share.slice == expected.slice);
      CHECK(share.slice.pass == pass);
      const LoadedBatch fetched = rows.fetch(0, share.slice);
      const auto x =
          from_gpu(context, fetched.rows<float>(0), share.slice.count * data.shape().size());
      const auto* const expected_x = expected.rows<float>(0);
      for (std::size_t i = 0; i < x.size(); ++i) {
        INFO("number " << i);
        if (exact)
          REQUIRE(x[i] == expected_x[i]);
        else
          REQUIRE(std::abs(x[i] - expected_x[i]) < 1e-6F * (1 + std::abs(expected_x[i])));
      }
      const std::size_t targets = share.slice.count * data.shape(1).size();
      const auto y = from_gpu(context, fetched.rows<Target>(1), targets);
      for (std::size_t i = 0; i < targets; ++i) REQUIRE(y[i] == expected.rows<Target>(1)[i]);
      const auto* const expected_w = expected.rows<float>(2);
      REQUIRE((fetched.field[2] == nullptr) == (expected_w == nullptr));
      if (expected_w != nullptr) {
        const std::size_t weights = share.slice.count * weighed.size();
        const auto w = from_gpu(context, fetched.rows<float>(2), weights);
        for (std::size_t i = 0; i < weights; ++i) REQUIRE(w[i] == expected_w[i]);
      }
    }
    CHECK(!rows.next(share));
    CHECK(batches > 1);
  }
}

constexpr std::size_t images = 23;

/// Bytes; all pixels differ.
auto bytes(Shape shape) {
  std::vector<std::uint8_t> x(images * shape.size());
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<std::uint8_t>(i * 37 + i / 251);
  std::vector<std::int32_t> y(images);
  for (std::size_t i = 0; i < images; ++i) y[i] = static_cast<std::int32_t>(i % 5);
  return tensors(std::move(x), shape, std::move(y));
}
auto colored() { return bytes(shape(6, 5, 3)); }

}  // namespace

TEST_CASE("rows of bytes become batches on a GPU") {
  check(colored() | batch(4));                                   // rows of 90 bytes
  check(bytes(shape(4, 4, 1)) | rescale(1 / 255.0) | batch(5));  // rows of 16 bytes, four at once
  check(bytes(shape(4, 4, 1)) | rescale(0.5, -1) | rescale(2) | batch(5), false);
  check(colored() | skip(3) | take(17) | cache | shuffle(8) | repeat(2) | batch(6, drop_remainder) |
        prefetch(2));
  check(colored() | shard(2, 1) | shuffle(30) | batch(2));
  check(colored() | filter([](const auto& e) { return e.y[0] != 2; }) | batch(4));
}

TEST_CASE("rows of floats and doubles, and targets that are vectors") {
  std::vector<double> x(images * 8), y(images * 3);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<double>(i));
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = std::cos(static_cast<double>(i));
  check(tensors(x, shape(8), y, shape(3)) | shuffle(9) | batch(4));
  check(tensors(std::vector<float>(x.begin(), x.end()), shape(8), y, shape(3)) | batch(4));
}

TEST_CASE("data mapped on the host stay on the GPU if they are cached") {
  const auto negated = colored() | map([](auto& example) {
                         for (float& v : example.x) v = -v;
                       });
  static_assert(!detail::can_reside<Cuda, std::remove_cvref_t<decltype(negated | batch(4))>>);
  check(negated | cache | shuffle(8) | batch(4));
  check(negated | skip(5) | cache | batch(4));  // indices from 5 on
}

TEST_CASE("sample weights and class weights accompany the batches of a GPU") {
  std::vector<double> weights(images);
  for (std::size_t i = 0; i < images; ++i) weights[i] = 0.25 * static_cast<double>(i);
  check(colored() | sample_weights(weights) | shuffle(8) | batch(4));
  check(colored() | shuffle(8) | batch(4), true, {{1, 0.5}, {3, 2}});
  check(colored() | sample_weights(weights) | shuffle(8) | batch(4), true, {{1, 0.5}});
  // Class labels as numbers: one per example, or a row whose largest element is the class.
  std::vector<float> ones(images), rows(images * 3);
  for (std::size_t i = 0; i < images; ++i) {
    ones[i] = static_cast<float>(i % 2);
    rows[i * 3 + i % 3] = 1;
  }
  const std::vector<float> x(images * 4, 0.5F);
  check(tensors(x, shape(4), ones) | shuffle(8) | batch(4), true, {{1, 0.5}});
  check(tensors(x, shape(4), rows, shape(3)) | shuffle(8) | batch(4), true, {{1, 0.5}, {2, 3}});
}

TEST_CASE("positions of an example have weights on a GPU as on the host") {
  std::vector<double> weights(images);
  for (std::size_t i = 0; i < images; ++i) weights[i] = 0.25 * static_cast<double>(i);
  std::vector<std::int32_t> y(images * 6);
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = static_cast<std::int32_t>(i * i % 5);
  const auto pixels = tensors(std::vector<float>(images * 6, 0.5F), shape(2, 3, 1), y, shape(2, 3));
  check(pixels | sample_weights(weights) | shuffle(8) | batch(4), true, {}, shape(2, 3));
  check(pixels | shuffle(8) | batch(4), true, {{1, 0.5}, {3, 2}}, shape(2, 3));
  check(pixels | sample_weights(weights) | batch(4), true, {{1, 0.5}}, shape(2, 3));
  std::vector<double> each(images * 6);
  for (std::size_t i = 0; i < each.size(); ++i) each[i] = 0.25 * static_cast<double>(i);
  const auto masked = pixels | sample_weights(each, shape(2, 3));
  check(masked | shuffle(8) | batch(4), true, {}, shape(2, 3));
  check(masked | batch(4), true, {{1, 0.5}}, shape(2, 3));
}

TEST_CASE("operations on images draw and compute on a GPU as on the host") {
  check(colored() | random_flip_left_right | batch(4));
  check(colored() | random_flip_up_down | rescale(1 / 255.0) | shuffle(9) | batch(4));
  check(colored() | random_crop(5, 4, {.padding = 2, .fill = 7}) | batch(4));
  check(colored() | random_crop(6, 2) | batch(4));  // one place down, four across
  check(colored() | resize_with_crop_or_pad(9, 3) | batch(4));
  check(colored() | resize_with_crop_or_pad(4, 8) | batch(4));
  check(colored() | cutout(3, {.fill = 9}) | batch(4));
  check(colored() | per_image_standardization | batch(4), false);
  check(colored() | random_crop(6, 5, {.padding = 1}) | random_flip_left_right | random_crop(4, 4) |
            random_flip_left_right | per_image_standardization | cutout(2) | shuffle(23) |
            repeat(2) | batch(8),
        false);
}
