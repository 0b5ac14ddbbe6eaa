#include "lockstep/data/images/resize_with_crop_or_pad.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>

#include "unit/data/image_support.hpp"

namespace ls = lockstep;
using support::gather_all;

TEST_CASE("resize_with_crop_or_pad matches TensorFlow 2.21") {
  // tf.image.resize_with_crop_or_pad(tf.reshape(tf.range(1, 13), [3, 4, 1]), height, width)
  const auto one = ls::tensors(std::vector<std::uint8_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12},
                               ls::shape(3, 4, 1), std::vector{0});
  const auto to = [&](int height, int width) {
    const auto data = one | ls::resize_with_crop_or_pad(height, width);
    CHECK(data.shape() == ls::shape(height, width, 1));
    return gather_all<float>(data).x;
  };
  using Numbers = std::vector<float>;
  CHECK(to(5, 7) == Numbers{0, 0, 0, 0, 0, 0,  0,  0,  1, 2, 3, 4, 0, 0, 0, 5, 6, 7,
                            8, 0, 0, 0, 9, 10, 11, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  CHECK(to(2, 3) == Numbers{1, 2, 3, 5, 6, 7});
  CHECK(to(1, 6) == Numbers{0, 5, 6, 7, 8, 0});
  CHECK(to(6, 2) == Numbers{0, 0, 2, 3, 6, 7, 10, 11, 0, 0, 0, 0});
  CHECK(to(3, 4) == gather_all<float>(one).x);
}

TEST_CASE("padding then cropping restores the images, for more images than one block") {
  const auto data = support::images(19, ls::shape(6, 5, 3));
  const auto again = data | ls::resize_with_crop_or_pad(11, 8) | ls::resize_with_crop_or_pad(6, 5);
  CHECK(gather_all<double>(again) == gather_all<double>(data));
}

TEST_CASE("resize_with_crop_or_pad refuses sizes below 1 and examples that are not images") {
  CHECK_THROWS_MATCHES(
      support::images(1, ls::shape(2, 2, 1)) | ls::resize_with_crop_or_pad(0, 3), ls::UsageError,
      Catch::Matchers::Message("resize_with_crop_or_pad(0, 3): the image is empty; height and "
                               "width must be at least 1"));
  CHECK_THROWS_AS(support::images(1, ls::shape(2, 2, 1)) | ls::resize_with_crop_or_pad(2, -3),
                  ls::UsageError);
  CHECK_THROWS_AS(support::range(2) | ls::resize_with_crop_or_pad(2, 2), ls::UsageError);
}
