#include "lockstep/data/sources/cifar10.hpp"

#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "lockstep/core/log.hpp"
#include "lockstep/data/sources/drawn_shapes.hpp"
#include "unit/data/support.hpp"

namespace {

namespace ls = lockstep;
using Catch::Matchers::ContainsSubstring;

constexpr std::size_t plane = 1024, record = 3073, whole = 10'000;

/// Contents of the synthetic files: image i, channel c, pixel p.
std::uint8_t value(std::size_t i, std::size_t c, std::size_t p) {
  return static_cast<std::uint8_t>(7 * i + 50 * c + 3 * p + p / 32);
}
std::string records(std::size_t count) {
  std::string bytes;
  bytes.reserve(count * record);
  for (std::size_t i = 0; i < count; ++i) {
    bytes += static_cast<char>((i + i / 10) % 10);
    for (std::size_t c = 0; c < 3; ++c)
      for (std::size_t p = 0; p < plane; ++p) bytes += static_cast<char>(value(i, c, p));
  }
  return bytes;
}

constexpr std::array names{"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                           "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"};

/// Writes one complete file; the others are links to it.
void write_whole(const support::Folder& folder) {
  folder.write(names[0], records(whole));
  for (std::size_t i = 1; i < names.size(); ++i)
    std::filesystem::create_symlink(names[0], folder / names[i]);
}

}  // namespace

TEST_CASE("CIFAR-10 is read file by file, with the channels of a pixel adjacent") {
  const support::Folder folder;
  write_whole(folder);
  const auto splits = ls::datasets::cifar10(folder.path());
  const auto test = splits.test(), train = splits.train();
  CHECK(train.shape() == ls::shape(32, 32, 3));
  CHECK(train.shape(1) == ls::Shape{});
  REQUIRE(train.size() == 5 * whole);
  REQUIRE(test.size() == whole);
  for (const auto* part : {&train, &test})
    for (std::size_t i = 0; i < *part->size(); i += 997) {
      CAPTURE(i);
      const std::size_t of_file = i % whole;
      const auto image = part->features().subspan(i * 3 * plane, 3 * plane);
      CHECK(part->targets()[i] == static_cast<std::int32_t>((of_file + of_file / 10) % 10));
      std::size_t wrong = 0;
      for (std::size_t p = 0; p < plane; ++p)
        for (std::size_t c = 0; c < 3; ++c) wrong += image[3 * p + c] != value(of_file, c, p);
      CHECK(wrong == 0);
    }
}

TEST_CASE("the five files of CIFAR-10 are concatenated, each to its last byte") {
  const support::Folder folder;
  for (int file = 1; file <= 5; ++file) {  // a sparse file of zeros, followed by a last image
    const std::string name = "data_batch_" + std::to_string(file) + ".bin";
    std::string last(record, static_cast<char>(200 + file));
    last[0] = static_cast<char>(file);
    std::ofstream(folder / name, std::ios::binary)
            .seekp(static_cast<std::streamoff>((whole - 1) * record))
        << last;
  }
  const auto train = ls::datasets::cifar10(folder.path()).train();
  REQUIRE(train.size() == 5 * whole);
  for (std::size_t file = 1; file <= 5; ++file) {
    CAPTURE(file);
    CHECK(train.targets()[file * whole - 1] == static_cast<std::int32_t>(file));
    CHECK(train.targets()[file * whole - 2] == 0);
    CHECK(train.features()[file * whole * 3 * plane - 1] == 200 + file);
    CHECK(train.features()[(file * whole - 1) * 3 * plane - 1] == 0);
  }
}

TEST_CASE("files that are not CIFAR-10 are refused by name") {
  const std::string good = records(3);
  struct Row {
    const char* what;
    std::string bytes, fact;
  };
  const auto with_label = [&](std::size_t i, int label) {
    std::string bytes = good;
    bytes[i * record] = static_cast<char>(label);
    return bytes;
  };
  const std::vector<Row> rows{
      {"empty", "", "is empty"},
      {"a byte", "\x01", "truncated: 1 of 9219 bytes"},
      {"a label only", good.substr(0, record + 1), "truncated: 3074 of 9219 bytes"},
      {"a byte short", good.substr(0, good.size() - 1), "truncated: 9218 of 9219 bytes"},
      {"a record short", good.substr(0, 2 * record), "truncated: 6146 of 9219 bytes"},
      {"a byte long", good + "x", "longer than the 9219 bytes of 3 images"},
      {"a record long", records(4), "longer than the 9219 bytes of 3 images"},
      {"label 10 first", with_label(0, 10), "label 0 is 10"},
      {"label 10 last", with_label(2, 10), "label 2 is 10"},
      {"label 255", with_label(1, 255), "label 1 is 255"},
      {"a label in front of each coarse one, as CIFAR-100", "\x13" + good, "label 0 is 19"},
      {"a text", std::string(9219, 'a'), "label 0 is 97"},
      {"gzip that is none", "\x1f\x8b" + good, "damaged"},
      {"gzip cut off", support::gzip(good).substr(0, 60), "gzip data are truncated"},
      {"gzip of too little", support::gzip(good.substr(0, 9218)), "truncated: 9218 of 9219 bytes"},
      {"gzip of too much", support::gzip(good + "x"), "longer than the 9219 bytes of 3 images"},
      {"bytes after gzip", support::gzip(good) + "x", "after the end of the gzip data"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.what);
    const support::Folder folder;
    folder.write("test_batch.bin", row.bytes);
    std::vector<std::uint8_t> images;
    std::vector<std::int32_t> labels;
    const auto path = folder / "test_batch.bin";
    CHECK_THROWS_WITH(ls::datasets::detail::read_cifar10_file(path, 3, images, labels),
                      ContainsSubstring(path.string()) && ContainsSubstring(row.fact));
  }
}

TEST_CASE("the error for a missing CIFAR-10 file suggests where it may be") {
  const auto fails = [](const support::Folder& folder, const std::string& fact) {
    const auto splits = ls::datasets::cifar10(folder.path());
    CHECK_THROWS_WITH(splits.test(),
                      ContainsSubstring("test_batch.bin") && ContainsSubstring(fact));
    CHECK_THROWS_AS(splits.test(), ls::FileError);
  };
  {
    const support::Folder empty;
    fails(empty, "binary version of CIFAR-10");
  }
  {
    const support::Folder python;
    python.write("test_batch", "pickled");
    fails(python, "Python version");
  }
  {
    const support::Folder packed;
    std::filesystem::create_directory(packed / "cifar-10-batches-bin");
    packed.write("cifar-10-batches-bin/test_batch.bin", "x");
    fails(packed, "cifar-10-batches-bin");
  }
  {
    const support::Folder some;  // nothing is read if a file is missing
    some.write("data_batch_1.bin", "x");
    CHECK_THROWS_WITH(ls::datasets::cifar10(some.path()).train(),
                      ContainsSubstring("data_batch_2.bin"));
  }
  {
    const support::Folder folder;
    std::filesystem::create_directory(folder / "test_batch.bin");
    fails(folder, "folder");
  }
}

TEST_CASE("a missing CIFAR-10 folder is an error, or a warning if the caller gives a substitute") {
  const support::Folder folder;
  std::vector<std::string> lines;
  const auto before =
      ls::set_log([&](ls::LogLevel, std::string_view text) { lines.emplace_back(text); });
  const auto data = ls::datasets::cifar10(folder / "nothing", ls::datasets::shapes()).test();
  ls::set_log(before);
  CHECK(data.shape() == ls::shape(32, 32, 3));
  REQUIRE(lines.size() == 1);
  CHECK_THAT(lines[0], ContainsSubstring("nothing") && ContainsSubstring("drawn shapes") &&
                           ContainsSubstring("CIFAR-10"));
  CHECK_THROWS_WITH(ls::datasets::cifar10(folder / "nothing"),
                    ContainsSubstring("folder not found") && ContainsSubstring("shapes()"));
  CHECK(lines.size() == 1);
  folder.write("file", "x");
  CHECK_THROWS_WITH(ls::datasets::cifar10(folder / "file"), ContainsSubstring("is not a folder"));
}

TEST_CASE("real CIFAR-10 is read byte for byte, with 5,000 images of each class") {
  const char* const folder = std::getenv("LOCKSTEP_CIFAR10");
  if (folder == nullptr) SKIP("set LOCKSTEP_CIFAR10 to the folder of CIFAR-10's binary version");
  const auto splits = ls::datasets::cifar10(folder);
  std::array<std::size_t, 10> classes{};
  const auto train = splits.train(), test = splits.test();
  for (const std::int32_t label : train.targets()) ++classes[static_cast<std::size_t>(label)];
  for (const std::size_t count : classes) CHECK(count == 5000);
  // Computed by numpy from the records r of the files (np.fromfile(name, "u1").reshape(-1, 3073)):
  // (r[:, 1:].reshape(-1, 3, 32, 32) / 255).mean((0, 2, 3)) is 0.4914, 0.4822, 0.4465 over the
  // original training files, and within 0.0002 of it over a JPEG-compressed copy.
  // Plain pointers and numbers, since the tests are not optimized, and there are 184 million values.
  std::uint64_t red = 0, green = 0, blue = 0;
  const auto* x = train.features().data();
  for (const auto* const end = x + whole * 5 * plane * 3; x != end; x += 3)
    red += x[0], green += x[1], blue += x[2];
  const std::array<std::uint64_t, 3> sum{red, green, blue};
  const std::array<double, 3> mean{0.4914, 0.4822, 0.4465};
  for (std::size_t c = 0; c < 3; ++c)
    CHECK(std::abs(static_cast<double>(sum[c]) / (255.0 * 50'000 * plane) - mean[c]) < 5e-4);
  // Each file on disk.
  const auto check = [&](const ls::datasets::Images& part, std::size_t first, const char* name) {
    CAPTURE(name);
    std::ifstream file(std::filesystem::path(folder) / name, std::ios::binary);
    std::string bytes(whole * record + 1, '\0');
    file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    REQUIRE(static_cast<std::size_t>(file.gcount()) == whole * record);
    std::size_t wrong = 0;
    const char* from = bytes.data();
    for (std::size_t i = 0; i < whole; ++i) {
      wrong += part.targets()[first + i] != *from++;
      const auto* const image = part.features().data() + (first + i) * 3 * plane;
      for (std::size_t c = 0; c < 3; ++c)
        for (std::size_t p = 0; p < plane; ++p)
          wrong += image[3 * p + c] != static_cast<std::uint8_t>(*from++);
    }
    CHECK(wrong == 0);
  };
  check(train, 0 * whole, "data_batch_1.bin");
  check(train, 1 * whole, "data_batch_2.bin");
  check(train, 2 * whole, "data_batch_3.bin");
  check(train, 3 * whole, "data_batch_4.bin");
  check(train, 4 * whole, "data_batch_5.bin");
  check(test, 0, "test_batch.bin");
}
