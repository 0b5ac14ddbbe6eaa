#include "lockstep/data/sources/idx.hpp"

#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <functional>

#include "lockstep/core/error.hpp"
#include "unit/data/support.hpp"

namespace ls = lockstep;
using support::gzip;
using support::idx;

namespace {
const std::string good = idx({2, 3}, "abcdef");

std::vector<std::uint8_t> bytes_of(std::string_view text) { return {text.begin(), text.end()}; }
}  // namespace

TEST_CASE("an IDX file reads the same plain and gzipped, and the plain one wins") {
  const support::Folder folder;
  folder.write("file.gz", gzip(good));
  CHECK(ls::read_idx(folder / "file", 2).bytes == bytes_of("abcdef"));
  CHECK(ls::read_idx(folder / "file", 2).extents == std::vector<std::size_t>{2, 3});
  folder.write("file", idx({2, 3}, "ABCDEF"));
  CHECK(ls::read_idx(folder / "file", 2).bytes == bytes_of("ABCDEF"));
}

TEST_CASE("gzip is recognized by content, not by name") {
  const support::Folder folder;
  folder.write("a", gzip(good));
  folder.write("b.gz", good);
  CHECK(ls::read_idx(folder / "a", 2).bytes == bytes_of("abcdef"));
  CHECK(ls::read_idx(folder / "b", 2).bytes == bytes_of("abcdef"));
}

TEST_CASE("files longer than the reader's buffer are read completely") {
  std::mt19937 draw(1);
  // Incompressible, so the gzip file is longer than a buffer, too.
  std::string noise(300'000, '\0');
  for (char& c : noise) c = static_cast<char>(draw());
  const support::Folder folder;
  folder.write("plain", idx({300'000}, noise));
  folder.write("packed.gz", gzip(idx({300'000}, noise)));
  CHECK(ls::read_idx(folder / "plain", 1).bytes == bytes_of(noise));
  CHECK(ls::read_idx(folder / "packed", 1).bytes == bytes_of(noise));
}

TEST_CASE("consecutive gzip members are one stream, and zeros after them are padding") {
  const support::Folder folder;
  std::mt19937 draw(2);
  std::string noise(100'000, '\0');
  for (char& c : noise) c = static_cast<char>(draw());
  const std::string whole = idx({100'000}, noise);
  const auto check = [&](const std::string& file) {
    folder.write("file", file);
    CHECK(ls::read_idx(folder / "file", 1).bytes == bytes_of(noise));
  };
  for (const std::size_t cut :
       {std::size_t{0}, std::size_t{3}, std::size_t{50'000}, whole.size()}) {
    const std::string first = gzip(whole.substr(0, cut)), second = gzip(whole.substr(cut));
    check(first + second);
    check(first + second + gzip("") + std::string(70'000, '\0'));
    // The second member begins near the end of the reader's buffer.
    for (const std::size_t begin : {65'535u, 65'536u, 65'537u})
      if (first.size() < begin) check(first + std::string(begin - first.size(), '\0') + second);
  }
}

TEST_CASE("a file of zero examples is valid") {
  const support::Folder folder;
  folder.write("none", idx({0, 28}, ""));
  CHECK(ls::read_idx(folder / "none", 2).bytes.empty());
  folder.write("empty", idx({1025, 0, 0xffffffffu}, ""));
  CHECK(ls::read_idx(folder / "empty", 3).extents == std::vector<std::size_t>{1025, 0, 0xffffffff});
}

TEST_CASE("bad IDX files are refused with file, fact and remedy") {
  struct Case {
    std::string what, content, fact;
  };
  const std::string packed = gzip(good);
  std::string checksum = packed;
  checksum[packed.size() - 5] ^= 1;
  std::string damaged = packed;
  damaged[10] = static_cast<char>(damaged[10] | 6);  // a block type that deflate does not define
  const std::vector<Case> cases{
      {"empty", "", "is empty"},
      {"one byte", "\x1f", "truncated in its IDX header"},
      {"half a header", good.substr(0, 9), "truncated in its IDX header"},
      {"half the data", good.substr(0, good.size() - 1), "is truncated"},
      {"trailing byte", good + "x", "bytes after the data"},
      {"empty content in gzip", gzip(""), "truncated in its IDX header"},
      {"short content in gzip", gzip(good.substr(0, good.size() - 2)), "is truncated: 4 of 6"},
      {"long content in gzip", gzip(good + "x"), "bytes after the data"},
      {"truncated gzip header", packed.substr(0, 5), "gzip data are truncated"},
      {"truncated gzip data", packed.substr(0, packed.size() - 12), "gzip data are truncated"},
      {"truncated gzip trailer", packed.substr(0, packed.size() - 1), "gzip data are truncated"},
      {"trailing byte after gzip", packed + "x", "after the end of the gzip data"},
      {"second gzip member", packed + packed, "bytes after the data"},
      {"padding, then more", packed + std::string(9, '\0') + "x", "after the end of the gzip data"},
      {"half a second member", packed + "\x1f", "gzip data are truncated"},
      {"wrong checksum", checksum, "gzip data are damaged"},
      {"damaged data", damaged, "gzip data are damaged"},
      {"wrong rank", idx({6}, "abcdef"), "begins with the bytes 0 0 8 1"},
      {"wrong type", std::string("\0\0\x0d\x02", 4) + good.substr(4),
       "begins with the bytes 0 0 13 2"},
      {"a text", "<html><body>not found</body></html>", "begins with the bytes 60 104 116 109"},
      {"extents beyond 64 bits", idx({0xffffffffu, 0xffffffffu}, "abc"), "more elements than"},
      {"terabytes announced", idx({0xffffffffu, 256}, "abc"), "more elements than"},
      {"terabytes announced in gzip", gzip(idx({0xffffffffu, 256}, "abc")), "more elements than"},
      {"gzip bomb", gzip(idx({2, 3}, std::string(30'000'000, '\0'))), "bytes after the data"},
  };
  for (const Case& c : cases) {
    INFO(c.what);
    const support::Folder folder;
    folder.write("file.gz", c.content);
    try {
      ls::read_idx(folder / "file", 2);
      FAIL("it was read");
    } catch (const ls::DataError& error) {
      const std::string text = error.what();
      INFO(text);
      CHECK(text.find((folder / "file.gz").string() + ": ") == 0);
      CHECK(text.find(c.fact) != std::string::npos);
      CHECK(text.find("; ") != std::string::npos);
      CHECK(error.path() == (folder / "file.gz").string());
    }
  }
}

TEST_CASE("paths that are not readable files are refused") {
  const support::Folder folder;
  folder.write("file", good);
  std::filesystem::create_directory(folder / "sub");
  std::filesystem::create_directory(folder / "packed.gz");
  std::filesystem::create_symlink(folder / "nowhere", folder / "dangling");
  for (const std::string name :
       {"missing", "missing/deeper", "file/deeper", "sub", "packed", "dangling"}) {
    INFO(name);
    try {
      ls::read_idx(folder / name, 2);
      FAIL("it was read");
    } catch (const ls::FileError& error) {
      const std::string text = error.what();
      INFO(text);
      CHECK(text.find((folder / name).string()) == 0);
      CHECK(text.find("; ") != std::string::npos);
    }
  }
  CHECK_THROWS_AS(ls::read_idx("/dev/null", 2), ls::FileError);
}

TEST_CASE("a file without read permission is refused") {
  if (geteuid() == 0) SKIP("the superuser may read every file");
  const support::Folder folder;
  folder.write("file", good);
  std::filesystem::permissions(folder / "file", std::filesystem::perms::none);
  CHECK_THROWS_AS(ls::read_idx(folder / "file", 2), ls::FileError);
}
