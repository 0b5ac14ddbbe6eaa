#include "lockstep/tensorboard/png.hpp"

#include <zlib.h>

#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/core/error.hpp"

namespace ls = lockstep;

namespace {

/// A PNG file without filters.
struct Png {
  std::string types, header, pixels;

  explicit Png(std::string file) {
    REQUIRE(file.substr(0, 8) == "\x89PNG\r\n\x1a\n");
    file.erase(0, 8);
    std::string packed;
    while (!file.empty()) {
      const std::uint32_t size = number(file, 0);
      const std::string type = file.substr(4, 4), data = file.substr(8, size);
      const std::string checked = file.substr(4, 4 + size);
      REQUIRE(number(file, 8 + size) == ::crc32(0, reinterpret_cast<const Bytef*>(checked.data()),
                                                static_cast<uInt>(checked.size())));
      types += type;
      if (type == "IHDR") header = data;
      if (type == "IDAT") packed += data;
      file.erase(0, 12 + size);
    }
    const std::size_t row = number(header, 0) * channels(), rows = number(header, 4);
    std::string lines(rows * (row + 1), '?');
    uLongf length = lines.size();
    REQUIRE(::uncompress(reinterpret_cast<Bytef*>(lines.data()), &length,
                         reinterpret_cast<const Bytef*>(packed.data()), packed.size()) == Z_OK);
    REQUIRE(length == lines.size());
    for (std::size_t y = 0; y < rows; ++y) {
      REQUIRE(lines[y * (row + 1)] == 0);
      pixels += lines.substr(y * (row + 1) + 1, row);
    }
  }
  static std::uint32_t number(const std::string& bytes, std::size_t at) {
    std::uint32_t n = 0;
    for (std::size_t i = at; i < at + 4; ++i) n = n << 8 | static_cast<unsigned char>(bytes.at(i));
    return n;
  }
  std::size_t channels() const {
    switch (header.at(9)) {
      case 0:
        return 1;
      case 4:
        return 2;
      case 2:
        return 3;
      default:
        return 4;
    }
  }
};

}  // namespace

TEST_CASE("a PNG file gives every pixel back") {
  for (const int channels : {1, 2, 3, 4}) {
    CAPTURE(channels);
    const ls::Shape image = ls::shape(5, 7, channels);
    std::vector<std::uint8_t> pixels(image.size());
    for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::uint8_t>(37 * i);
    const Png png(ls::detail::encode_png(image, pixels));
    CHECK(png.types == "IHDRIDATIEND");
    CHECK(Png::number(png.header, 0) == 7);
    CHECK(Png::number(png.header, 4) == 5);
    CHECK(png.header.substr(8, 1) == "\x08");
    CHECK(png.header.substr(10) == std::string(3, '\0'));
    CHECK(png.channels() == static_cast<std::size_t>(channels));
    CHECK(png.pixels == std::string(pixels.begin(), pixels.end()));
  }
}

TEST_CASE("shapes that are not those of images are rejected") {
  const std::vector<std::uint8_t> pixels(20);
  for (const ls::Shape& wrong : {ls::shape(20), ls::shape(4, 5), ls::shape(2, 2, 5),
                                 ls::shape(0, 5, 1), ls::shape(4, 4, 1), ls::shape(1, 2, 5, 2)})
    CHECK_THROWS_AS(ls::detail::encode_png(wrong, pixels), ls::UsageError);
}
