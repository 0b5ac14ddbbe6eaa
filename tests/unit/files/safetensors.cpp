// The safetensors reader with hostile files; the writer compared with the reference writer.
#include "lockstep/files/safetensors.hpp"
#include "lockstep/files/safetensors_header.hpp"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace ls = lockstep;
namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;
using namespace std::string_literals;

namespace {
struct Folder {
  fs::path path = fs::temp_directory_path() / ("lockstep_weights_" + std::to_string(::getpid()));
  Folder() { fs::create_directories(path); }
  ~Folder() { fs::remove_all(path); }
  std::string operator/(const char* name) const { return (path / name).string(); }
};

std::string put(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
  return path;
}
std::string content(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
std::string number(std::uint64_t n) {
  std::string text(8, '\0');
  std::memcpy(text.data(), &n, 8);
  return text;
}
/// A file with this header and `body` zero bytes.
std::string file(const std::string& header, std::size_t body) {
  return number(header.size()) + header + std::string(body, '\0');
}
/// A file with {"t":{"dtype":...,"shape":...,"data_offsets":...}} and a body.
std::string tensor(const std::string& dtype, const std::string& shape, const std::string& offsets,
                   std::size_t body) {
  return file(
      R"({"t":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}",
      body);
}
std::string message(const std::string& path) {
  try {
    ls::SafetensorsFile::read(path);
  } catch (const ls::WeightsError& error) {
    CHECK(error.path() == path);
    return error.what();
  }
  return "it was accepted";
}
template <class T>
std::span<const std::byte> bytes(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

const std::string f32 = R"("F32")";
const std::string good = R"("dtype":"F32","shape":[1],"data_offsets":[0,4])";
}  // namespace

TEST_CASE("the 84-byte file of the reference's tests is read") {
  const Folder folder;
  const std::string header = R"({"test":{"dtype":"I32","shape":[2,2],"data_offsets":[0,16]}})";
  const std::string whole = file(header, 16);
  REQUIRE(whole.size() == 84);
  REQUIRE(static_cast<unsigned char>(whole[0]) == 0x3c);
  const auto read = ls::SafetensorsFile::read(put(folder / "a", whole));
  REQUIRE(read.tensors().size() == 1);
  CHECK(read.tensors()[0].name == "test");
  CHECK(read.at("test").dtype == ls::DType::int32);
  CHECK(read.at("test").shape == std::vector<std::uint64_t>{2, 2});
  CHECK(read.values<std::int32_t>("test") == std::vector<std::int32_t>(4));
  CHECK(read.metadata().empty());
}

TEST_CASE("a file that is truncated or extended anywhere is rejected") {
  const Folder folder;
  const std::string whole =
      file(R"({"test":{"dtype":"I32","shape":[2,2],"data_offsets":[0,16]}})", 16);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    INFO("first " << size << " of " << whole.size() << " bytes");
    CHECK_THAT(message(put(folder / "a", whole.substr(0, size))),
               ContainsSubstring(size < 8 ? "fewer than the 8 of" : "(it is truncated)"));
  }
  CHECK_THAT(message(put(folder / "a", whole + "x")),
             ContainsSubstring("(bytes follow the last tensor)"));
}

TEST_CASE("hostile headers are rejected with file name and cause") {
  const Folder folder;
  const std::string huge = "18446744073709551615";
  const std::string deep = "[[[[[]]]]]", long_name(4097, 'n');
  struct Case {
    std::string content, cause;
  };
  const std::vector<Case> cases{
      // lengths
      {"", "fewer than the 8 of"},
      {"\x01\x02\x03", "it has 3 bytes"},
      {number(0), "does not begin with '{'"},
      {number(100'000'001) + "{}", "more than the limit of 100000000"},
      {number(~std::uint64_t{0}) + "{}", "18446744073709551615 bytes, more than the limit"},
      {number(3) + "{}", "the file has only 2 more"},
      {number(1) + "{}", "not valid JSON at byte"},
      // text
      {file("{\"\xff\":1}", 0), "not UTF-8"},
      {file("{\"\xc0\xaf\":1}", 0), "not UTF-8"},
      {file("{\"\xed\xa0\x80\":1}", 0), "not UTF-8"},
      {file("{\"\xf4\x90\x80\x80\":1}", 0), "not UTF-8"},
      {file("{\"\xe2\x82", 0), "not UTF-8"},
      {file("\xef\xbb\xbf{}", 0), "does not begin with '{'"},
      {file(" {}", 0), "does not begin with '{'"},
      {file("[]", 0), "does not begin with '{'"},
      {file("null", 0), "does not begin with '{'"},
      {file("{}\0garbage"s, 0), "contains a NUL byte"},
      {file("{}\0"s, 0), "contains a NUL byte"},
      {file("{", 0), "not valid JSON"},
      {file("{}}", 0), "not valid JSON at byte 3"},
      {file("{} {}", 0), "not valid JSON"},
      {file("{'t':1}", 0), "not valid JSON"},
      {file("{\"t\":{" + good + "} /* */}", 4), "not valid JSON"},
      {file("{\"\\ud800\":1}", 0), "not valid JSON"},
      {file("{\"\\udc00\":{" + good + "}}", 4), "an unpaired surrogate"},
      {file("{\"t\":{" + good + ",\"more\":\"\\udc00\"}}", 4), "an unpaired surrogate"},
      {file("{\"t\":{" + good + "},}", 4), "not valid JSON"},
      // structure
      {file("{\"t\":1}", 0), "a number where a tensor description is expected, at key 't'"},
      {file("{\"t\":null}", 0), "null where"},
      {file("{\"t\":[]}", 0), "an array where"},
      {file("{\"t\":\"x\"}", 0), "a string where"},
      {file("{\"t\":{}}", 0), "tensor 't': it has no dtype"},
      {file(R"({"t":{"shape":[1],"data_offsets":[0,4]}})", 4), "it has no dtype"},
      {file(R"({"t":{"dtype":"F32","data_offsets":[0,4]}})", 4), "it has no shape"},
      {file(R"({"t":{"dtype":"F32","shape":[1]}})", 4), "it has no data_offsets"},
      {file("{\"t\":{" + good + "},\"t\":{" + good + "}}", 4), "duplicate key 't'"},
      {file("{\"t\":{" + good + ",\"shape\":[1]}}", 4), "duplicate key 'shape'"},
      {file("{\"t\":{" + good + ",\"more\":{\"x\":1,\"x\":2}}}", 4), "duplicate key 'x'"},
      {file("{\"\\u0074\":{" + good + "},\"t\":{" + good + "}}", 4), "duplicate key 't'"},
      {file("{\"t\":{" + good + ",\"more\":" + deep + "}}", 4), "deeper than 4"},
      {file("{\"t\":{" + good + ",\"more\":" + std::string(100'000, '[') + "}}", 4),
       "deeper than 4"},
      {file("{\"" + long_name + "\":{" + good + "}}", 4), "longer than 4096 bytes"},
      {file("{\"a\\u0000b\":{" + good + "}}", 4), "the name 'a\\x00b' contains a NUL"},
      {file("{\"a\\nb\":{}}", 0), "tensor 'a\\x0ab'"},
      {file("{\"\x7f\xc2\x9b\xc2\xa0\":{}}", 0), "tensor '\\x7f\\xc2\\x9b\xc2\xa0'"},
      // metadata
      {file(R"({"__metadata__":{"a":1}})", 0),
       "in __metadata__: a number where a string is expected, at key 'a'"},
      {file(R"({"__metadata__":{"a":{}}})", 0), "in __metadata__: an object where"},
      {file(R"({"__metadata__":{"a":["x"]}})", 0), "in __metadata__: an array where"},
      {file(R"({"__metadata__":{"a":null}})", 0), "in __metadata__: null where"},
      {file(R"({"__metadata__":[]})", 0), "an array where"},
      {file(R"({"__metadata__":{"a":"x","a":"y"}})", 0), "in __metadata__: duplicate key 'a'"},
      {file(R"({"__metadata__":{},"__metadata__":{}})", 0), "duplicate key '__metadata__'"},
      {file(R"({"__metadata__":{"a":")" + std::string(1 << 20, 'x') + "\"}}", 0),
       "more than 1048576 bytes"},
      // dtypes
      {tensor(R"("F31")", "[1]", "[0,4]", 4), "the dtype 'F31' is unknown"},
      {tensor(R"("f32")", "[1]", "[0,4]", 4), "the dtype 'f32' is unknown"},
      {tensor(R"("")", "[1]", "[0,4]", 4), "the dtype '' is unknown"},
      {tensor("32", "[1]", "[0,4]", 4), "a number where its dtype is expected"},
      {tensor("null", "[1]", "[0,4]", 4), "null where its dtype is expected"},
      {tensor("[\"F32\"]", "[1]", "[0,4]", 4), "an array where its dtype is expected"},
      // numbers
      {tensor(f32, "[-1]", "[0,4]", 4), "a negative number"},
      {tensor(f32, "[-0]", "[0,0]", 0), "a negative number"},
      {tensor(f32, "[1.0]", "[0,4]", 4), "a fraction or an exponent"},
      {tensor(f32, "[1e0]", "[0,4]", 4), "a fraction or an exponent"},
      {tensor(f32, "[18446744073709551616]", "[0,4]", 4), "of 2^64 or more"},
      {tensor(f32, "[01]", "[0,4]", 4), "not valid JSON"},
      {tensor(f32, "[+1]", "[0,4]", 4), "not valid JSON"},
      {tensor(f32, "[NaN]", "[0,4]", 4), "not valid JSON"},
      {tensor(f32, "[true]", "[0,4]", 4), "a boolean where an extent"},
      {tensor(f32, "[\"1\"]", "[0,4]", 4), "a string where an extent"},
      {tensor(f32, "[[1]]", "[0,4]", 4), "an array where an extent"},
      {tensor(f32, "1", "[0,4]", 4), "a number where its shape is expected"},
      {tensor(f32, "{}", "[0,4]", 4), "an object where its shape is expected"},
      {tensor(f32, "[1]", "[0.0,4]", 4), "a fraction or an exponent"},
      {tensor(f32, "[1]", "[0,-4]", 4), "a negative number"},
      {tensor(f32, "[1]", "[0,\"4\"]", 4), "a string where one of its data_offsets"},
      {tensor(f32, "[1]", "[4]", 4), "data_offsets has 1 numbers, not two"},
      {tensor(f32, "[1]", "[0,4,8]", 4), "data_offsets has 3 numbers, not two"},
      {tensor(f32, "[1]", "[]", 4), "data_offsets has 0 numbers"},
      {tensor(f32, "[1]", "{\"0\":0}", 4), "an object where its data_offsets is expected"},
      {tensor(f32 + ",\"more\":-1", "[1]", "[0,4]", 4), "a negative number"},
      // offsets, shapes
      {tensor(f32, "[1]", "[4,8]", 8),
       "[4, 8] leave a gap or overlap: the tensors before it end at 0"},
      {tensor(f32, "[0]", "[4,0]", 4), "[4, 0] leave a gap"},
      {file(
           R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"t":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})",
           6),
       "tensor 't': its data_offsets [2, 6] leave a gap or overlap: the tensors before it end at "
       "4"},
      {file(
           R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"t":{"dtype":"U8","shape":[4],"data_offsets":[5,9]}})",
           9),
       "leave a gap or overlap"},
      {file(
           R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"t":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
           4),
       "leave a gap or overlap"},
      {file(
           R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"t":{"dtype":"U8","shape":[0],"data_offsets":[4,0]}})",
           4),
       "[4, 0] end before they begin"},
      {tensor(f32, "[2]", "[0,4]", 4), "hold 4 bytes, but its shape and dtype need 8"},
      {tensor(f32, "[]", "[0,8]", 8), "hold 8 bytes, but its shape and dtype need 4"},
      {tensor(f32, "[0]", "[0,4]", 4), "hold 4 bytes, but its shape and dtype need 0"},
      {tensor(f32, "[4294967296,4294967296]", "[0,0]", 0), "2^64 bits or more"},
      {tensor(f32, "[4294967296,4294967296,0]", "[0,0]", 0), "2^64 bits or more"},
      {tensor(f32, "[" + huge + "]", "[0,4]", 4), "2^64 bits or more"},
      {tensor(f32, "[576460752303423489]", "[0,4]", 4), "2^64 bits or more"},
      {tensor(R"("F4")", "[3]", "[0,1]", 1), "do not fill whole bytes"},
      {tensor(R"("F6_E2M3")", "[1]", "[0,0]", 0), "do not fill whole bytes"},
      {tensor(f32, "[1]", "[0,4]", 3),
       "cover 4 bytes, but the file has 3 after the header (it is truncated)"},
      {tensor(f32, "[1]", "[0,4]", 5), "(bytes follow the last tensor)"},
      {tensor(R"("U8")", "[" + std::to_string(std::uint64_t{1} << 60) + "]",
              "[0," + std::to_string(std::uint64_t{1} << 60) + "]", 4),
       "(it is truncated)"},
      {file("{}", 1), "(bytes follow the last tensor)"},
  };
  CHECK(cases.size() > 90);
  for (const auto& [bytes, cause] : cases) {
    INFO("header " << bytes.substr(0, 200));
    const std::string path = put(folder / "hostile.safetensors", bytes);
    CHECK_THAT(message(path), ContainsSubstring(path) && ContainsSubstring(cause));
  }
}

TEST_CASE("unusual but valid files are read") {
  const Folder folder;
  const auto accepted = [&](const std::string& bytes) {
    return ls::SafetensorsFile::read(put(folder / "a", bytes)).tensors().size();
  };
  CHECK(accepted(file("{}", 0)) == 0);
  CHECK(accepted(file("{}      ", 0)) == 0);
  CHECK(accepted(tensor(f32, "[]", "[0,4]", 4)) == 1);
  CHECK(accepted(tensor(f32, "[0,5]", "[0,0]", 0)) == 1);
  CHECK(accepted(tensor(R"("F4")", "[4]", "[0,2]", 2)) == 1);
  CHECK(accepted(file("{\"\":{" + good + "}}", 4)) == 1);
  CHECK(accepted(file("{\"größe\":{" + good + "}}", 4)) == 1);
  // Unknown fields are skipped, as in the reference.
  CHECK(accepted(file("{\"t\":{\"more\":{\"dtype\":\"I8\",\"shape\":[7]}," + good +
                          ",\"last\":[{},null,\"x\",2]}}",
                      4)) == 1);
}

TEST_CASE("a header length that begins as another format's magic number is read") {
  const Folder folder;
  for (const std::size_t length : {0x0280u, 0x0480u, 0x4B50u, 0x4889u}) {  // pickle, zip, HDF5
    std::string header = R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
    header.resize(length, ' ');
    CHECK(ls::SafetensorsFile::read(put(folder / "w", file(header, 4))).contains("t"));
  }
}

TEST_CASE("the number of tensors has a limit") {
  CHECK(ls::detail::SafetensorsLimits{}.tensors == 1'048'576);
  std::string header = R"({"__metadata__":{})";
  for (int i = 0; i < 4; ++i)
    header += ",\"" + std::to_string(i) + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  ls::detail::SafetensorsLimits limits;
  limits.tensors = 4;
  CHECK(ls::detail::parse_safetensors_header("f", header + "}", 0, limits).tensors.size() == 4);
  limits.tensors = 3;
  CHECK_THROWS_WITH(ls::detail::parse_safetensors_header("f", header + "}", 0, limits),
                    ContainsSubstring("f: in its header: there are more than 3 tensors"));
}

TEST_CASE("the number of values has a limit, which real headers do not reach") {
  ls::detail::SafetensorsLimits limits;
  limits.tensors = 1;
  const auto read = [&](int extents) {
    std::string shape = "0";
    for (int i = 1; i < extents; ++i) shape += ",0";
    const std::string header =
        R"({"t":{"dtype":"U8","shape":[)" + shape + R"(],"data_offsets":[0,0]}})";
    return ls::detail::parse_safetensors_header("f", header, 0, limits).tensors[0].shape.size();
  };
  CHECK(read(9) == 9);
  CHECK_THROWS_WITH(read(10), ContainsSubstring("f: its header has more than 20 values at byte") &&
                                  ContainsSubstring("write the file again"));
}

TEST_CASE("a smaller header limit can be set") {
  const Folder folder;
  const std::string path = put(folder / "a", file("{}      ", 0));
  CHECK_NOTHROW(ls::SafetensorsFile::read(path, 8));
  CHECK_THROWS_WITH(ls::SafetensorsFile::read(path, 7), ContainsSubstring("the limit of 7"));
}

TEST_CASE("the writer's output is identical to the reference writer's") {
  // safetensors 0.8.0: safetensors.torch.save of these tensors, in another order.
  const std::string header =
      R"({"__metadata__":{"k\"":"v"},"U":{"dtype":"U64","shape":[1],"data_offsets":[0,8]},)"
      R"("a":{"dtype":"I64","shape":[1],"data_offsets":[8,16]},)"
      R"("z":{"dtype":"F64","shape":[],"data_offsets":[16,24]},)"
      R"("b/a":{"dtype":"F32","shape":[1,0],"data_offsets":[24,24]},)"
      R"("b/bias":{"dtype":"F32","shape":[2],"data_offsets":[24,32]},)"
      R"("v":{"dtype":"U32","shape":[1],"data_offsets":[32,36]},)"
      R"("i":{"dtype":"I32","shape":[1],"data_offsets":[36,40]},)"
      R"("h":{"dtype":"BF16","shape":[1],"data_offsets":[40,42]},)"
      R"("u":{"dtype":"U8","shape":[1],"data_offsets":[42,43]},)"
      R"("flag":{"dtype":"BOOL","shape":[3],"data_offsets":[43,46]}}     )";
  const std::string body =
      "\x05\0\0\0\0\0\0\0\xfd\xff\xff\xff\xff\xff\xff\xff\0\0\0\0\0\0\xd0\x3f\0\0\xc0\x3f\0\0\0\xc0"
      "\x06\0\0\0\x09\0\0\0\x80\x3f\x07\x01\0\x01"s;
  const std::vector<float> bias{1.5f, -2};
  const std::vector<std::int64_t> a{-3};
  const std::vector<double> z{0.25};
  const std::vector<std::uint16_t> h{0x3f80};
  const std::vector<std::uint8_t> u{7}, flag{1, 0, 1};
  const std::vector<std::int32_t> i{9};
  const std::vector<std::uint64_t> big{5};
  const std::vector<std::uint32_t> v{6};
  const Folder folder;
  const std::string path = folder / "a.safetensors";
  using ls::DType;
  ls::write_safetensors(path,
                        {{"u", DType::uint8, {1}, bytes(u)},
                         {"b/bias", DType::float32, {2}, bytes(bias)},
                         {"flag", DType::boolean, {3}, bytes(flag)},
                         {"a", DType::int64, {1}, bytes(a)},
                         {"z", DType::float64, {}, bytes(z)},
                         {"b/a", DType::float32, {1, 0}, {}},
                         {"i", DType::int32, {1}, bytes(i)},
                         {"h", DType::bfloat16, {1}, bytes(h)},
                         {"v", DType::uint32, {1}, bytes(v)},
                         {"U", DType::uint64, {1}, bytes(big)}},
                        {{"k\"", "v"}});
  CHECK(content(path) == number(592) + header + body);

  const auto read = ls::SafetensorsFile::read(path);
  CHECK(read.tensors().size() == 10);
  CHECK(read.tensors().front().name == "U");
  CHECK(read.metadata() == std::map<std::string, std::string>{{"k\"", "v"}});
  CHECK(read.values<float>("b/bias") == bias);
  CHECK(read.values<float>("b/a").empty());
  CHECK(read.values<double>("z") == z);
  CHECK(read.values<std::int64_t>("a") == a);
  CHECK(read.values<std::uint8_t>("u") == u);
  CHECK(read.at("h").dtype == DType::bfloat16);
  CHECK(read.at("flag").bytes.size() == 3);
}

TEST_CASE("numbers of every type survive a round trip bit for bit") {
  const Folder folder;
  const std::string path = folder / "a.safetensors";
  const std::vector<double> values{std::numeric_limits<double>::quiet_NaN(),
                                   -std::numeric_limits<double>::infinity(), -0.0,
                                   std::numeric_limits<double>::denorm_min(), 0.1};
  const std::vector<float> small{0.1f};
  ls::write_safetensors(path, {{"d", ls::DType::float64, {5}, bytes(values)},
                               {"größe \"x\"\n", ls::DType::float32, {1, 1, 1}, bytes(small)}});
  auto read = ls::SafetensorsFile::read(path);
  const auto moved = std::move(read);  // spans stay valid
  const auto back = moved.values<double>("d");
  REQUIRE(back.size() == values.size());
  CHECK(std::memcmp(back.data(), values.data(), 40) == 0);
  CHECK(moved.values<float>("größe \"x\"\n") == small);
  CHECK(moved.at("größe \"x\"\n").shape == std::vector<std::uint64_t>{1, 1, 1});
}

TEST_CASE("tensors of another or an unsupported type are rejected by name") {
  const Folder folder;
  const auto read = ls::SafetensorsFile::read(
      put(folder / "a", file(R"({"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                             R"("f8":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[4,6]}})",
                             6)));
  CHECK_THROWS_WITH(read.values<double>("t"), ContainsSubstring("tensor 't' is F32, not F64"));
  CHECK_THROWS_WITH(read.values<float>("f8"),
                    ContainsSubstring("tensor 'f8' is F8_E4M3, not F32") &&
                        ContainsSubstring("a type that lockstep does not support"));
  CHECK_FALSE(read.at("f8").dtype.has_value());
  CHECK_THROWS_WITH(read.at("x"), ContainsSubstring("no tensor 'x' among its 2"));
  CHECK_THROWS_AS(read.at("x"), ls::WeightsError);
  CHECK_FALSE(read.contains("x"));
  CHECK(read.find("") == nullptr);
}

TEST_CASE("the writer rejects invalid tensors and leaves no file") {
  const Folder folder;
  const std::string path = folder / "a.safetensors";
  const std::vector<float> one{1};
  const auto entry = [&](const std::string& name) {
    return ls::SafetensorsEntry{name, ls::DType::float32, {1}, bytes(one)};
  };
  const auto fails = [&](std::vector<ls::SafetensorsEntry> tensors, const std::string& cause,
                         const std::map<std::string, std::string>& metadata = {}) {
    CHECK_THROWS_AS(ls::write_safetensors(path, tensors, metadata), ls::UsageError);
    CHECK_THROWS_WITH(ls::write_safetensors(path, std::move(tensors), metadata),
                      ContainsSubstring(path) && ContainsSubstring(cause));
  };
  fails({entry("a"), entry("a")}, "tensor 'a' occurs twice");
  fails({entry("__metadata__")}, "cannot have this name");
  fails({entry("a\0b"s)}, "cannot have this name");
  fails({entry("\xff")}, "cannot have this name");
  fails({entry(std::string(4097, 'n'))}, "cannot have this name");
  fails({{"a", ls::DType::float32, {2}, bytes(one)}}, "'a' has 4 bytes");
  fails({{"a", ls::DType::float64, {1}, bytes(one)}}, "'a' has 4 bytes");
  fails({}, "not UTF-8", {{"a", "\xff"}});
  fails({}, "more than 1 MiB", {{"a", std::string(1 << 20, 'x')}});
  CHECK(fs::is_empty(folder.path));
}

TEST_CASE("an unreadable path is a FileError that names it") {
  const Folder folder;
  CHECK_THROWS_AS(ls::SafetensorsFile::read(folder / "none"), ls::FileError);
  CHECK_THROWS_WITH(
      ls::SafetensorsFile::read(folder / "none"),
      ContainsSubstring(folder / "none") && ContainsSubstring("No such file or directory"));
  CHECK_THROWS_WITH(ls::SafetensorsFile::read(folder.path.string()),
                    ContainsSubstring("not a regular file"));
  CHECK_THROWS_WITH(ls::SafetensorsFile::read("/dev/zero"),
                    ContainsSubstring("not a regular file"));
}

TEST_CASE("the golden files are valid") {
  int files = 0;
  for (const auto& entry : fs::directory_iterator(LOCKSTEP_GOLDEN_DIR)) {
    if (entry.path().extension() != ".safetensors") continue;
    const auto read = ls::SafetensorsFile::read(entry.path().string());
    CHECK(read.metadata().count("case") == 1);
    for (const auto& tensor : read.tensors()) {
      if (tensor.dtype != ls::DType::float64) continue;
      for (const double x : read.values<double>(tensor.name)) REQUIRE(!std::isnan(x));
    }
    ++files;
  }
  CHECK(files >= 41);
}

TEST_CASE("the Python package safetensors reads what lockstep writes") {
  const char* chosen = std::getenv("LOCKSTEP_PYTHON");
  const std::string python = chosen ? chosen : "python3";
  const auto run = [&python](const std::string& script, const std::string& argument) {
    const int status =
        std::system((python + " -c '" + script + "' '" + argument + "' 2>/dev/null").c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  };
  if (run("import safetensors.numpy", "") != 0)
    SKIP(
        "the Python package safetensors (with numpy) is absent; set LOCKSTEP_PYTHON to a Python "
        "that has it");
  const Folder folder;
  const std::string path = folder / "a.safetensors";
  const std::vector<float> kernel{1, 2, 3, 4, 5, 6};
  const std::vector<double> loss{0.25, -1e300};
  ls::write_safetensors(path,
                        {{"dense/kernel", ls::DType::float32, {2, 3}, bytes(kernel)},
                         {"loss", ls::DType::float64, {2}, bytes(loss)}},
                        {{"format", "lockstep"}});
  CHECK(run("import sys, numpy as np\n"
            "from safetensors import safe_open\n"
            "f = safe_open(sys.argv[1], \"np\")\n"
            "assert sorted(f.keys()) == [\"dense/kernel\", \"loss\"]\n"
            "assert f.metadata() == {\"format\": \"lockstep\"}\n"
            "k = f.get_tensor(\"dense/kernel\")\n"
            "assert k.dtype == np.float32 and (k == np.arange(1, 7).reshape(2, 3)).all()\n"
            "assert f.get_tensor(\"loss\").tolist() == [0.25, -1e300]\n",
            path) == 0);
}

TEST_CASE("a FIFO is rejected at once, without waiting for a writer") {
  const Folder folder;
  const std::string path = folder / "fifo";
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  ::alarm(20);  // ends the test if the reader blocks
  CHECK_THROWS_WITH(ls::SafetensorsFile::read(path),
                    ContainsSubstring(path) && ContainsSubstring("not a regular file"));
  ::alarm(0);
}

TEST_CASE("a file can be moved with its tensors, but not copied") {
  const Folder folder;
  static_assert(!std::is_copy_constructible_v<ls::SafetensorsFile> &&
                !std::is_copy_assignable_v<ls::SafetensorsFile>);
  const std::vector<float> numbers{1, 2, 3};
  ls::write_safetensors(folder / "a", {{"t", ls::DType::float32, {3}, bytes(numbers)}});
  ls::write_safetensors(folder / "b", {});
  auto moved = std::make_unique<ls::SafetensorsFile>(ls::SafetensorsFile::read(folder / "a"));
  auto target = ls::SafetensorsFile::read(folder / "b");
  target = std::move(*moved);
  moved.reset();
  CHECK(target.values<float>("t") == numbers);
}
