// The valid archives were written by Python's zipfile, called as in numpy.savez (with force_zip64),
// and are independent of the reader; damaged archives are built here byte by byte.
#include "lockstep/data/sources/npz.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "lockstep/data/sources/read_fields.hpp"
#include "unit/data/support.hpp"

namespace ls = lockstep;

namespace {

/// zipfile.open(name, "w", force_zip64=True): 'x.npy', '|u1', (3, 2), deflated; 'y.npy', '<i8',
/// (3,), stored.
const std::string of_python = [] {
  constexpr std::string_view hex =
      "504b03042d000000080000002100cd080114ffffffffffffffff05001400782e6e7079010010008600000000"
      "0000004c000000000000009bec17ea1b10c9c850c650ad9e925a9c5ca46ea5a05e536aa8aea3a09e965f5452"
      "9498179f5f94920a12774bcc294e058a17672416a402f91ac63a0a469a3a0ab50a64032e46266616d6ff0050"
      "4b03042d000000000000002100088f9f42ffffffffffffffff05001400792e6e707901001000980000000000"
      "00009800000000000000934e554d5059010076007b276465736372273a20273c6938272c2027666f72747261"
      "6e5f6f72646572273a2046616c73652c20277368617065273a2028332c292c207d2020202020202020202020"
      "2020202020202020202020202020202020202020202020202020202020202020202020202020202020202020"
      "20202020200a0700000000000000f8ffffffffffffff0900000000000000504b01022d032d00000008000000"
      "2100cd0801144c00000086000000050000000000000000000000800100000000782e6e7079504b01022d032d"
      "000000000000002100088f9f429800000098000000050000000000000000000000800183000000792e6e7079"
      "504b0506000000000200020066000000520100000000";
  std::string bytes;
  const auto digit = [](char c) { return c < 'a' ? c - '0' : c - 'a' + 10; };
  for (std::size_t i = 0; i < hex.size(); i += 2)
    bytes += static_cast<char>(digit(hex[i]) * 16 + digit(hex[i + 1]));
  return bytes;
}();

std::string npy(const std::string& bytes, const std::string& shape) {
  std::string header = "{'descr': '|u1', 'fortran_order': False, 'shape': " + shape + ", }\n";
  return std::string("\x93NUMPY\1\0", 8) + static_cast<char>(header.size()) + '\0' + header + bytes;
}

std::string little(std::uint64_t number, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(number >> 8 * i & 0xff);
  return out;
}

std::string deflated(const std::string& bytes) {  // a gzip member without header and trailer
  const std::string packed = support::gzip(bytes);
  return packed.substr(10, packed.size() - 18);
}

/// A zip archive. Each field of an entry can be set to an invalid value.
struct Entry {
  std::string name{"x.npy"}, content{npy("abcdef", "(2, 3)")};
  bool deflate = true;
  std::optional<std::uint64_t> packed{}, size{}, checksum{}, method{}, offset{}, local_method{};
  std::uint64_t flags = 0;
  std::optional<std::string> local_name{}, data{};
};
struct Archive {
  std::vector<Entry> entries{Entry{}};
  std::optional<std::uint64_t> count{}, directory{}, directory_size{}, disk{};
  std::string comment{}, before_end{};
  std::string bytes() const {
    std::string file, list;
    for (const Entry& e : entries) {
      const std::string data = e.data.value_or(e.deflate ? deflated(e.content) : e.content);
      const auto sum = e.checksum.value_or(
          crc32(0, reinterpret_cast<const Bytef*>(e.content.data()), uInt(e.content.size())));
      const std::uint64_t method = e.method.value_or(e.deflate ? 8 : 0);
      const std::string sizes = little(sum, 4) + little(e.packed.value_or(data.size()), 4) +
                                little(e.size.value_or(e.content.size()), 4);
      const std::string local = e.local_name.value_or(e.name);
      list += little(0x02014b50, 4) + little(20, 2) + little(20, 2) + little(e.flags, 2) +
              little(method, 2) + little(0, 4) + sizes + little(e.name.size(), 2) + little(0, 12) +
              little(e.offset.value_or(file.size()), 4) + e.name;
      file += little(0x04034b50, 4) + little(20, 2) + little(e.flags, 2) +
              little(e.local_method.value_or(method), 2) + little(0, 4) + sizes +
              little(local.size(), 2) + little(0, 2) + local + data;
    }
    const std::size_t at = file.size();
    return file + list + before_end + little(0x06054b50, 4) + little(disk.value_or(0), 2) +
           little(0, 2) + little(count.value_or(entries.size()), 2) +
           little(count.value_or(entries.size()), 2) +
           little(directory_size.value_or(list.size()), 4) + little(directory.value_or(at), 4) +
           little(comment.size(), 2) + comment;
  }
};
Archive with(Entry entry) { return {.entries = {std::move(entry)}}; }

ls::NpzFile opened(const std::string& bytes) {
  return {"hostile.npz", std::vector<std::uint8_t>(bytes.begin(), bytes.end())};
}

}  // namespace

TEST_CASE(
    "an archive of Python's zipfile, stored and deflated, with zip64 local headers, is read") {
  const support::Folder folder;
  folder.write("data.npz", of_python);
  const std::string path = folder / "data.npz";
  // --8<-- [start:npz]
  const ls::NpzFile file = ls::NpzFile::read(path);  // numpy.savez(path, x=images, y=labels)
  CHECK(file.names() == std::vector<std::string>{"x", "y"});
  const auto data = ls::tensors<std::uint8_t, std::int32_t>(file.array("x"), file.array("y"));
  // --8<-- [end:npz]
  CHECK(data.shape() == ls::shape(2));
  CHECK(data.shape(1) == ls::Shape{});
  CHECK(support::gather_all<float>(data).x == std::vector{1.f, 2.f, 3.f, 4.f, 5.f, 255.f});
  CHECK(support::gather_all<float>(data).y == std::vector<std::int32_t>{7, -8, 9});
}

TEST_CASE("a comment, other files and an empty archive are accepted") {
  CHECK(opened(Archive{.comment = "written by hand"}.bytes()).array("x").size() == 6);
  const Archive mixed{
      .entries = {{.name = "read.me", .content = "text", .deflate = false}, Entry{}}};
  CHECK(opened(mixed.bytes()).names() == std::vector<std::string>{"x"});
  CHECK(opened(Archive{.entries = {}}.bytes()).names().empty());
}

TEST_CASE("hostile archives are refused with file, fact and remedy") {
  struct Case {
    std::string what, bytes, fact;
  };
  const std::string good = Archive{}.bytes(), content = Entry{}.content;
  const std::vector<Case> cases{
      {"a text", "no zip at all", "is not a zip archive"},
      {"cut in the end record", good.substr(0, good.size() - 1), "is not a zip archive"},
      {"cut at its beginning", good.substr(1), "its directory"},
      {"bytes after the end", good + "x", "is not a zip archive"},
      {"multi-disk archive", Archive{.disk = 1}.bytes(), "multi-disk archive"},
      {"zip64 count", Archive{.count = 0xffff}.bytes(), "zip64"},
      {"zip64 directory", Archive{.directory = 0xffffffff}.bytes(), "zip64"},
      {"zip64 locator", Archive{.before_end = little(0x07064b50, 4) + little(0, 16)}.bytes(),
       "zip64"},
      {"zip64 entry", with({.size = 0xffffffff}).bytes(), "uses zip64"},
      {"more entries declared", Archive{.count = 2}.bytes(), "directory is damaged"},
      {"fewer entries declared", Archive{.count = 0}.bytes(), "bytes after its 0 entries"},
      {"directory beyond the end", Archive{.directory = 0xfffffff0}.bytes(), "does not end"},
      {"directory too long", Archive{.directory_size = 1000}.bytes(), "does not end"},
      {"bytes after the directory", Archive{.before_end = "x"}.bytes(), "does not end"},
      {"encrypted", with({.flags = 1}).bytes(), "is encrypted"},
      {"other method", with({.method = 12}).bytes(), "uses compression method 12"},
      {"local header elsewhere", with({.offset = 1}).bytes(),
       "not at the offset that the directory gives"},
      {"local header beyond", with({.offset = 0xfffffff0}).bytes(),
       "not at the offset that the directory gives"},
      {"other local name", with({.local_name = "y.npy"}).bytes(),
       "differs from the directory in name or method"},
      {"other length of name", with({.local_name = "xx.npy"}).bytes(),
       "differs from the directory in name or method"},
      {"other local method", with({.local_method = 0}).bytes(),
       "differs from the directory in name or method"},
      {"packed beyond the directory", with({.packed = 5000}).bytes(), "runs into the directory"},
      {"stored of two sizes", with({.deflate = false, .size = 5}).bytes(), "cannot hold"},
      {"bomb declared", with({.size = 0xfffffffe}).bytes(), "cannot hold"},
      {"overlap", Archive{.entries = {Entry{}, {.offset = 0}}}.bytes(), "overlap"},
      {"name twice", Archive{.entries = {Entry{}, Entry{}}}.bytes(), "has two arrays named 'x'"},
  };
  for (const Case& c : cases) {
    INFO(c.what);
    try {
      opened(c.bytes);
      FAIL("it was read");
    } catch (const ls::DataError& error) {
      const std::string text = error.what();
      INFO(text);
      CHECK(text.find("hostile.npz: ") == 0);
      CHECK(text.find(c.fact) != std::string::npos);
      CHECK(text.find("; ") != std::string::npos);
    }
  }
}

TEST_CASE("damaged and missing arrays are refused when they are read") {
  struct Case {
    std::string what, bytes, fact;
  };
  const std::string content = Entry{}.content, packed = deflated(content);
  const std::vector<Case> cases{
      {"wrong checksum", with({.checksum = 1}).bytes(), "its checksum does not match"},
      {"wrong checksum, stored", with({.deflate = false, .checksum = 1}).bytes(), "its checksum"},
      {"truncated", with({.data = packed.substr(0, packed.size() - 2)}).bytes(), "damaged"},
      {"longer than declared", with({.size = content.size() - 1}).bytes(),
       "differ from the declared length"},
      {"shorter than declared", with({.size = content.size() + 1}).bytes(),
       "differ from the declared length"},
      {"bytes after the stream", with({.data = packed + "x"}).bytes(),
       "differ from the declared length"},
      {"bomb",
       with({.size = content.size(), .data = deflated(std::string(9'000'000, 'a'))}).bytes(),
       "differ from the declared length"},
      {"no deflate", with({.data = "\7\7\7"}).bytes(), "damaged"},
      {"no NPY in it", with({.content = "text"}).bytes(), "does not begin with the NPY magic"},
      {"another name", with({.name = "a\n\xff.npy"}).bytes(),
       "has no array 'x'; it has 'a\\x0a\\xff'"},
      {"no array", Archive{.entries = {}}.bytes(), "it has none"},
  };
  for (const Case& c : cases) {
    INFO(c.what);
    try {
      opened(c.bytes).array("x");
      FAIL("it was read");
    } catch (const ls::DataError& error) {
      const std::string text = error.what();
      INFO(text);
      CHECK(text.find("hostile.npz") == 0);
      CHECK(text.find(c.fact) != std::string::npos);
    }
  }
}

TEST_CASE("arrays become fields with the names of a network, in the smallest type") {
  const support::Folder folder;
  folder.write("a.npz", of_python);
  const auto fields =
      ls::read_npz(folder / "a.npz", ls::features("image=x"), ls::targets("y"), ls::weights("y"));
  CHECK(fields.count() == 3);
  const ls::NamedField& image = *fields.find(ls::FieldRole::feature, "image");
  CHECK(image.shape == ls::shape(2));
  CHECK(std::get<std::vector<std::uint8_t>>(image.values).size() == 6);
  const ls::NamedField& y = *fields.find(ls::FieldRole::target, "y");
  CHECK(y.shape == ls::Shape{});
  CHECK(std::get<std::vector<std::int32_t>>(y.values) == std::vector<std::int32_t>{7, -8, 9});
  CHECK(fields.find(ls::FieldRole::weight, "y") != nullptr);
  using Catch::Matchers::ContainsSubstring;
  CHECK_THROWS_WITH(ls::read_npz(folder / "a.npz", ls::features("z")),
                    ContainsSubstring("has no array 'z'; it has 'x', 'y'"));
  CHECK_THROWS_WITH(ls::read_npz(folder / "a.npz", ls::features("z=x,y")),
                    ContainsSubstring("field 'z' has 2 arrays; name one"));
}
