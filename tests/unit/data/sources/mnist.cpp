#include "lockstep/data/sources/mnist.hpp"

#include <openssl/evp.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>

#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/data/sources/digits.hpp"
#include "unit/data/support.hpp"

namespace ls = lockstep;
using support::gzip;
using support::idx;

namespace {

/// Two training images of 2 x 3 pixels, and no test files.
void write_tiny(const support::Folder& folder) {
  folder.write("train-images-idx3-ubyte.gz", gzip(idx({2, 2, 3}, "abcdefghijkl")));
  folder.write("train-labels-idx1-ubyte", idx({2}, std::string("\x09\x00", 2)));
}

std::string md5(const std::string& bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, EVP_md5(), nullptr);
  std::string text;
  for (unsigned i = 0; i < size; ++i)
    for (const int shift : {4, 0}) text += "0123456789abcdef"[digest[i] >> shift & 15];
  return text;
}

std::string caught(const std::function<void()>& call) {
  try {
    call();
  } catch (const ls::Error& error) {
    return error.what();
  }
  return "";
}

/// Captures the log lines of the library.
class Listener {
 public:
  Listener()
      : before_(ls::set_log([this](ls::LogLevel level, std::string_view text) {
          if (level == ls::LogLevel::warning) lines.emplace_back(text);
        })) {}
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  ~Listener() { ls::set_log(before_); }
  std::vector<std::string> lines;

 private:
  ls::LogSink before_;
};

}  // namespace

TEST_CASE("MNIST has the shape of its images, and test files are not read before test()") {
  const support::Folder folder;
  write_tiny(folder);
  const auto data = ls::datasets::mnist(folder.path());
  const auto train = data.train();
  CHECK(train.shape() == ls::shape(2, 3, 1));
  CHECK(train.shape(1) == ls::Shape{});
  CHECK(support::gather_all<float>(train).y == std::vector<std::int32_t>{9, 0});
  CHECK(support::gather_all<float>(train).x[7] == static_cast<float>('h'));
  CHECK_THROWS_AS(data.test(), ls::FileError);
  folder.write("t10k-images-idx3-ubyte", idx({1, 2, 3}, "abcdef"));
  folder.write("t10k-labels-idx1-ubyte", idx({1}, "\x04"));
  CHECK(data.test().size() == 1u);
}

TEST_CASE("MNIST images and labels that do not match are refused with both file names") {
  const support::Folder folder;
  write_tiny(folder);
  folder.write("train-labels-idx1-ubyte", idx({3}, std::string("\x09\x00\x01", 3)));
  const std::string text = caught([&] { ls::datasets::mnist(folder.path()).train(); });
  INFO(text);
  CHECK(text.find((folder / "train-labels-idx1-ubyte").string() + ": has 3 labels") == 0);
  CHECK(text.find((folder / "train-images-idx3-ubyte.gz").string() + " has 2 images") !=
        std::string::npos);
}

TEST_CASE("labels out of range, images without pixels and swapped files are refused") {
  const support::Folder folder;
  write_tiny(folder);
  const auto train = [&] { ls::datasets::mnist(folder.path()).train(); };
  folder.write("train-labels-idx1-ubyte", idx({2}, "\x09\x0a"));
  CHECK(caught(train).find("label 1 is 10") != std::string::npos);
  folder.write("train-labels-idx1-ubyte", idx({2, 2, 3}, "abcdefghijkl"));
  CHECK(caught(train).find("begins with the bytes 0 0 8 3") != std::string::npos);
  write_tiny(folder);
  folder.write("train-images-idx3-ubyte", idx({2, 0, 3}, ""));
  CHECK(caught(train).find("an extent of 0") != std::string::npos);
}

TEST_CASE("the error for a missing folder names it and the digits that need no files") {
  const support::Folder folder;
  const Listener listener;
  const std::string text = caught([&] { ls::datasets::mnist(folder / "mnsit"); });
  INFO(text);
  CHECK(text.find((folder / "mnsit").string() + ": folder not found") == 0);
  CHECK(text.find("datasets::digits()") != std::string::npos);
  CHECK(listener.lines.empty());
}

TEST_CASE("with a substitute, a missing folder is a warning that names both") {
  const support::Folder folder;
  const Listener listener;
  const auto data = ls::datasets::mnist(folder / "none", ls::datasets::digits(70, 30));
  REQUIRE(listener.lines.size() == 1);
  CHECK(listener.lines[0].find((folder / "none").string()) == 0);
  CHECK(listener.lines[0].find("using drawn digits instead of MNIST") != std::string::npos);
  CHECK(data.name() == "drawn digits");
  CHECK(data.train().size() == 70u);
  CHECK(data.test().size() == 30u);
  write_tiny(folder);
  const auto files = ls::datasets::mnist(folder.path(), ls::datasets::digits());
  CHECK(files.name() == "MNIST");
  CHECK(files.train().size() == 2u);
  CHECK(listener.lines.size() == 1);
}

TEST_CASE("a folder that exists is never replaced by drawn digits") {
  const support::Folder folder;
  const Listener listener;
  folder.write("file", "x");
  const auto drawn = ls::datasets::digits();
  CHECK_THROWS_AS(ls::datasets::mnist(folder / "file", drawn), ls::FileError);
  CHECK_THROWS_AS(ls::datasets::mnist(folder / "file/deeper"), ls::FileError);
  CHECK_THROWS_AS(ls::datasets::mnist(folder.path(), drawn).train(), ls::FileError);
  CHECK(listener.lines.empty());
}

TEST_CASE("the real MNIST is read byte for byte") {
  const char* folder = std::getenv("LOCKSTEP_MNIST");
  if (!folder) SKIP("set LOCKSTEP_MNIST to a folder with the four MNIST files");
  const auto data = ls::datasets::mnist(folder);
  // MD5 of the uncompressed files of the original distribution.
  const auto check = [](const ls::datasets::Images& part, std::uint32_t count,
                        const std::string& images, const std::string& labels) {
    REQUIRE(part.size() == count);
    REQUIRE(part.shape() == ls::shape(28, 28, 1));
    const auto pixels = part.features();
    CHECK(md5(idx({count, 28, 28}, std::string(pixels.begin(), pixels.end()))) == images);
    const auto targets = part.targets();
    CHECK(md5(idx({count}, std::string(targets.begin(), targets.end()))) == labels);
  };
  check(data.train(), 60'000, "6bbc9ace898e44ae57da46a324031adb",
        "a25bea736e30d166cdddb491f175f624");
  check(data.test(), 10'000, "2646ac647ad5339dbf082846283269ea",
        "27ae3e4e09519cfbb04c329615203637");
}
