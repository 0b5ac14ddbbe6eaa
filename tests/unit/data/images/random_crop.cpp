#include "lockstep/data/images/random_crop.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>

#include "lockstep/data/operations/repeat.hpp"
#include "lockstep/data/operations/rescale.hpp"
#include "unit/data/image_support.hpp"

namespace ls = lockstep;
using support::gather_all;
using support::images;
using support::pixel;

namespace {

/// Whether image n of `x` is the window at (row, column) of the image in `from`.
template <class T>
bool is_window(const std::vector<T>& x, ls::Shape to, std::size_t n, const std::vector<T>& from,
               ls::Shape in, int row, int column, T fill) {
  for (int r = 0; r < to[0]; ++r)
    for (int c = 0; c < to[1]; ++c)
      for (int k = 0; k < to[2]; ++k) {
        const int y = row + r, z = column + c;
        const bool inside = y >= 0 && y < in[0] && z >= 0 && z < in[1];
        if (pixel(x, to, n, r, c, k) != (inside ? pixel(from, in, 0, y, z, k) : fill)) return false;
      }
  return true;
}

/// How often each window of the single image was cropped, in row-major order of corners.
template <class T>
std::vector<int> windows_cut(ls::Shape in, ls::Shape to, int padding, T fill, std::uint64_t count,
                             ls::Pass pass) {
  const auto one = images(1, in);
  const auto data =
      one | ls::repeat(count) | ls::random_crop(to[0], to[1], {.padding = padding, .fill = fill});
  REQUIRE(data.shape() == to);
  const std::vector<T> from = gather_all<T>(one).x, x = gather_all<T>(data, pass).x;
  const int rows = in[0] + 2 * padding - to[0] + 1, columns = in[1] + 2 * padding - to[1] + 1;
  std::vector<int> seen(static_cast<std::size_t>(rows * columns));
  for (std::size_t n = 0; n < count; ++n) {
    int found = 0;
    for (int place = 0; place < rows * columns; ++place)
      if (is_window<T>(x, to, n, from, in, place / columns - padding, place % columns - padding,
                       fill)) {
        ++seen[static_cast<std::size_t>(place)];
        ++found;
      }
    REQUIRE(found == 1);
  }
  return seen;
}

}  // namespace

TEST_CASE("random_crop cuts each window of the padded image equally often") {
  const auto seen = windows_cut<float>(ls::shape(5, 6, 3), ls::shape(5, 6, 3), 2, 0, 2500, {1, 0});
  REQUIRE(seen.size() == 25);
  CHECK(support::chi_squared(seen) < 50);
}

TEST_CASE("random_crop without padding stays inside the image, and may crop a single axis") {
  const auto seen = windows_cut<double>(ls::shape(7, 4, 1), ls::shape(3, 4, 1), 0, 9, 500, {3, 2});
  REQUIRE(seen.size() == 5);
  CHECK(support::chi_squared(seen) < 18);
}

TEST_CASE("random_crop fills pixels outside the image, even if no image pixel is left") {
  // Windows of 2 rows at -2 to 1 of a one-row image: its pixel is above, below or outside.
  const auto one = ls::tensors(std::vector{7.f}, ls::shape(1, 1, 1), std::vector{0});
  const auto data = one | ls::repeat(400) | ls::random_crop(2, 1, {.padding = 2, .fill = -0.5});
  const std::vector<double> x = gather_all<double>(data).x;
  std::vector<int> seen(3);
  for (std::size_t n = 0; n < 800; n += 2)
    ++seen[x[n] == 7 && x[n + 1] == -0.5 ? 0 : x[n] == -0.5 && x[n + 1] == 7 ? 1 : 2];
  // 4 x 5 corners; one of the five columns contains the pixel.
  CHECK(std::abs(seen[0] - 20) < 18);
  CHECK(std::abs(seen[1] - 20) < 18);
  for (std::size_t n = 0; n < 800; ++n) REQUIRE((x[n] == 7 || x[n] == -0.5));
}

TEST_CASE("random_crop's draws depend only on seed, pass, position in the pipeline and ordinal") {
  const auto data = images(1, ls::shape(9, 9, 1)) | ls::repeat(64) | ls::random_crop(2, 2);
  const auto drawn = gather_all<float>(data, {1, 0}).x;
  CHECK(drawn == gather_all<float>(data, {1, 0}).x);
  CHECK(drawn != gather_all<float>(data, {1, 1}).x);
  CHECK(drawn != gather_all<float>(data, {2, 0}).x);
  const auto wide = gather_all<double>(data, {1, 0}).x;
  CHECK(std::vector<double>(drawn.begin(), drawn.end()) == wide);

  const std::vector<ls::Item> tail{{0, 61}, {0, 62}, {0, 63}};
  std::vector<float> x(12);
  std::vector<std::int32_t> y(3);
  support::gather(data, {1, 0}, tail, x, y);
  CHECK(x == std::vector<float>(drawn.end() - 12, drawn.end()));
}

TEST_CASE("a rescale below random_crop scales the image, one above it the padding too") {
  const auto one = images(1, ls::shape(1, 1, 1));
  const auto under = one | ls::rescale(0, 3) | ls::random_crop(3, 3, {.padding = 1, .fill = 5});
  CHECK(gather_all<double>(under).x == std::vector<double>{5, 5, 5, 5, 3, 5, 5, 5, 5});
  const auto above = one | ls::random_crop(3, 3, {.padding = 1, .fill = 5}) | ls::rescale(0, 3);
  CHECK(gather_all<double>(above).x == std::vector<double>(9, 3.0));
}

TEST_CASE("random_crop refuses windows that do not fit, and names the cause") {
  const auto data = images(2, ls::shape(4, 6, 3));
  const auto refuses = [](const auto& source, int height, int width, int padding,
                          const std::string& text) {
    CHECK_THROWS_MATCHES(source | ls::random_crop(height, width, {.padding = padding}),
                         ls::UsageError,
                         Catch::Matchers::MessageMatches(Catch::Matchers::ContainsSubstring(text)));
  };
  refuses(data, 5, 6, 0, "random_crop(5, 6) of images (4, 6, 3) with padding 0");
  refuses(data, 4, 9, 1, "the window is larger than the padded image; pad more or crop less");
  refuses(data, 0, 6, 0, "height and width must be at least 1");
  refuses(data, 4, -1, 0, "random_crop(4, -1)");
  refuses(data, 4, 6, -1, "padding is -1 pixels; it must be at least 0");
  refuses(data, 1, 6, 2'147'483'647, "pad less");
  refuses(support::range(3), 1, 1, 0,
          "random_crop: examples have shape (1), not (height, width, channels)");
}
