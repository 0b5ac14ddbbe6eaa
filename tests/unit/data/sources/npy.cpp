// Valid files are written by hand after numpy/lib/format.py; numbers are given by their bits.
#include "lockstep/data/sources/npy.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "unit/data/support.hpp"

namespace ls = lockstep;
using support::gather_all;
using std::string_literals::operator""s;

namespace {

/// An NPY file with this header, padded as numpy does, and these bytes.
std::string file(std::string header, const std::string& bytes, int version = 1) {
  const std::size_t start = version == 1 ? 10 : 12;
  header.append(63 - (start + header.size()) % 64, ' ');
  header += '\n';
  std::string out = "\x93NUMPY"s + static_cast<char>(version) + '\0';
  for (std::size_t i = 0; i < start - 8; ++i)
    out += static_cast<char>(header.size() >> 8 * i & 0xff);
  return out + header + bytes;
}
std::string dict(const std::string& type, const std::string& shape, const char* fortran = "False") {
  return "{'descr': '" + type + "', 'fortran_order': " + fortran + ", 'shape': " + shape + ", }";
}
ls::NpyArray parsed(const std::string& bytes) {
  return ls::detail::parse_npy(std::vector<std::uint8_t>(bytes.begin(), bytes.end()), "a.npy");
}
std::string what_of(auto f) {
  try {
    f();
  } catch (const ls::DataError& error) {
    return error.what();
  }
  return "it was taken";
}

}  // namespace

TEST_CASE("each dtype of numbers is read, of either byte order") {
  const auto one = [](const char* type, const std::string& bytes) {
    return parsed(file(dict(type, "(1,)"), bytes)).values<double>().at(0);
  };
  CHECK(one("|b1", "\x01") == 1);
  CHECK(one("|b1", "\0"s) == 0);
  CHECK(one("|u1", "\xff") == 255);
  CHECK(one("|i1", "\xff") == -1);
  CHECK(one("<u2", "\x34\x12") == 0x1234);
  CHECK(one(">u2", "\x34\x12") == 0x3412);
  CHECK(one("<i2", "\xfe\xff") == -2);
  CHECK(one(">i2", "\xff\xfe") == -2);
  CHECK(one("<i4", "\x01\0\0\x80"s) == -2147483647.);
  CHECK(one("<u4", "\x01\0\0\x80"s) == 2147483649.);
  CHECK(one("<i8", "\x00\0\0\0\0\0\0\x80"s) == -9223372036854775808.);
  CHECK(one(">u8", "\x80\0\0\0\0\0\0\0"s) == 9223372036854775808.);
  CHECK(one("<f4", "\0\0\xc0\x3f"s) == 1.5);
  CHECK(one(">f4", "\x3f\xc0\0\0"s) == 1.5);
  CHECK(one("<f8", "\0\0\0\0\0\0\x04\xc0"s) == -2.5);
  CHECK(one(">f8", "\xc0\x04\0\0\0\0\0\0"s) == -2.5);
  // IEEE 754 binary16: largest, smallest normal and smallest subnormal number, -2, infinity, NaN.
  CHECK(one("<f2", "\xff\x7b") == 65504);
  CHECK(one("<f2", "\0\x04"s) == 0x1p-14);
  CHECK(one("<f2", "\x01\0"s) == 0x1p-24);
  CHECK(one(">f2", "\xc0\0"s) == -2);
  CHECK(one("<f2", "\0\xfc"s) == -HUGE_VAL);
  CHECK(std::isnan(one("<f2", "\x01\x7e")));
}

TEST_CASE("versions 1, 2 and 3, keys in any order, and files of Python 2 are read") {
  for (const int version : {1, 2, 3})
    CHECK(parsed(file(dict("|u1", "(2, 3)"), "abcdef", version)).extents ==
          std::vector<std::size_t>{2, 3});
  CHECK(parsed(file("{\"shape\": (2L,), 'descr': '<i2','fortran_order':False}", "abcd")).size() ==
        2);
  CHECK(parsed(file(dict("|u1", "()"), "a")).values<std::int32_t>() == std::vector{97});
  CHECK(parsed(file(dict("|u1", "(0, 7)"), "")).values<float>().empty());
}

TEST_CASE("Fortran order is converted to C order") {
  // numpy.asfortranarray(numpy.arange(24).reshape(2, 3, 4)): element (i, j, k) = 12 i + 4 j + k.
  std::string bytes;
  for (int k = 0; k < 4; ++k)
    for (int j = 0; j < 3; ++j)
      for (int i = 0; i < 2; ++i) bytes += static_cast<char>(12 * i + 4 * j + k);
  const auto array = parsed(file(dict("|u1", "(2, 3, 4)", "True"), bytes));
  std::vector<std::uint8_t> counted(24);
  std::iota(counted.begin(), counted.end(), std::uint8_t{0});
  CHECK(array.values<std::uint8_t>() == counted);
}

TEST_CASE("two files make a data set, plain or gzip, and bytes stay bytes") {
  const support::Folder folder;
  folder.write("x.npy", file(dict("|u1", "(2, 2, 1)"), "\1\2\3\xff"s));
  folder.write("y.npy",
               support::gzip(file(dict("<i8", "(2,)"), "\5\0\0\0\0\0\0\0\6\0\0\0\0\0\0\0"s)));
  const auto data = ls::tensors<std::uint8_t, std::int32_t>(ls::read_npy(folder / "x.npy"),
                                                            ls::read_npy(folder / "y.npy"));
  CHECK(data.shape() == ls::shape(2, 1));
  CHECK(gather_all<float>(data).x == std::vector{1.f, 2.f, 3.f, 255.f});
  CHECK(gather_all<float>(data).y == std::vector<std::int32_t>{5, 6});
  const auto reals =
      ls::tensors<double, double>(ls::read_npy(folder / "y.npy"), ls::read_npy(folder / "y.npy"));
  CHECK(reals.shape() == ls::shape(1));  // Keras adds a last axis to (n)
  CHECK(reals.shape(1) == ls::shape(1));
  CHECK_THROWS_AS(ls::read_npy(folder / "none.npy"), ls::FileError);
}

TEST_CASE("a file longer than any buffer is read completely") {
  const support::Folder folder;
  std::string bytes(200'000, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * i % 251);
  folder.write("long.npy", file(dict("|u1", "(200000,)"), bytes));
  CHECK(ls::read_npy(folder / "long.npy").bytes ==
        std::vector<std::uint8_t>(bytes.begin(), bytes.end()));
}

TEST_CASE("hostile files are refused with file, fact and remedy") {
  struct Case {
    std::string what, bytes, fact;
  };
  const std::string good = file(dict("|u1", "(2, 3)"), "abcdef");
  const auto header = [](const std::string& text) { return file(text, "abcdef"); };
  std::string axes;
  for (int i = 0; i < 33; ++i) axes += "1,";
  const std::string type = "'descr': '|u1'", order = "'fortran_order': False",
                    shape = "'shape': (6,)";
  const std::vector<Case> cases{
      {"empty", "", "does not begin"},
      {"a text", "numpy", "does not begin"},
      {"half the magic", good.substr(0, 4), "does not begin"},
      {"magic alone", good.substr(0, 6), "truncated in its NPY header"},
      {"no length", good.substr(0, 9), "truncated in its NPY header"},
      {"half the length of version 2", file(dict("|u1", "(6,)"), "", 2).substr(0, 11), "truncated"},
      {"half a header", good.substr(0, 40), "truncated in its NPY header"},
      {"version 0", file(dict("|u1", "(6,)"), "abcdef", 0), "version 0.0"},
      {"version 4", file(dict("|u1", "(6,)"), "abcdef", 4), "version 4.0"},
      {"minor version", "\x93NUMPY\1\1"s + good.substr(8), "version 1.1"},
      {"a header of gigabytes", "\x93NUMPY\2\0\xff\xff\xff\xff{}"s, "more than the limit"},
      {"no dictionary", header("(1, 2)"), "no '{'"},
      {"empty dictionary", header("{}"), "lacks"},
      {"no descr", header("{" + order + "," + shape + "}"), "lacks"},
      {"no order", header("{" + type + "," + shape + "}"), "lacks"},
      {"no shape", header("{" + type + "," + order + "}"), "lacks"},
      {"a key twice", header("{" + type + "," + type + "," + order + "," + shape + "}"),
       "duplicate key"},
      {"an unknown key", header("{'evil\n\x01': 1}"), "has an unknown key 'evil\\x0a\\x01'"},
      {"no colon", header("{'descr' '|u1'}"), "no ':'"},
      {"no comma", header("{" + type + " " + order + "}"), "no '}'"},
      {"no end", header("{" + type + "," + order + "," + shape), "no '}'"},
      {"unterminated string", header("{'descr"), "unterminated string"},
      {"no text", header("{descr: 1}"), "no string at byte"},
      {"more after the dictionary", header(dict("|u1", "(6,)") + "; import os"), "continues after"},
      {"objects", header(dict("|O", "(6,)")), "dtype '|O'"},
      {"texts", header(dict("<U5", "(6,)")), "dtype '<U5'"},
      {"complex", header(dict("<c8", "(6,)")), "dtype '<c8'"},
      {"long double", header(dict("<f16", "(6,)")), "dtype '<f16'"},
      {"dates", header(dict("<M8[ns]", "(6,)")), "dtype '<M8[ns]'"},
      {"three bytes", header(dict("<i3", "(6,)")), "dtype '<i3'"},
      {"no byte order", header(dict("|f4", "(6,)")), "dtype '|f4'"},
      {"no dtype", header(dict("", "(6,)")), "dtype ''"},
      {"records", header("{'descr': [('a', '<f4')], " + order + "," + shape + "}"), "of records"},
      {"order of another type", header(dict("|u1", "(6,)", "1")), "neither True nor False"},
      {"shape of another type", header(dict("|u1", "6")), "no '('"},
      {"shape without a comma", header(dict("|u1", "(6)")), "is not a tuple"},
      {"negative extent", header(dict("|u1", "(-6,)")), "an invalid extent"},
      {"two commas", header(dict("|u1", "(6,,)")), "an invalid extent"},
      {"extent beyond 64 bits", header(dict("|u1", "(99999999999999999999999,)")), "2^48"},
      {"product beyond 64 bits",
       header(dict("<f8", "(281474976710655, 281474976710655, 281474976710655)")), "truncated"},
      {"terabytes declared", header(dict("<f8", "(99999999999,)")), "is truncated"},
      {"one element missing", good.substr(0, good.size() - 1), "is truncated"},
      {"trailing byte", good + "x", "1 bytes after the array's data"},
      {"bytes after none", file(dict("|u1", "(0, 3)"), "x"), "1 bytes after the array's data"},
      {"33 axes", header(dict("|u1", "(" + axes + ")")), "32 axes"},
  };
  CHECK(cases.size() >= 40);
  for (const Case& c : cases) {
    INFO(c.what);
    const std::string text = what_of([&] { parsed(c.bytes); });
    INFO(text);
    CHECK(text.find("a.npy: ") == 0);
    CHECK(text.find(c.fact) != std::string::npos);
    CHECK(text.find("; ") != std::string::npos);
    for (const char letter : text) CHECK((letter >= ' ' && letter <= '~'));
  }
}

TEST_CASE("a number that the requested type cannot represent is refused with its index") {
  const auto array = [](const char* type, const std::string& bytes) {
    return parsed(file(dict(type, "(2,)"), bytes));
  };
  CHECK(what_of([&] { array("<i2", "\1\0\0\1"s).values<std::uint8_t>(); }).find("element 1") !=
        std::string::npos);
  CHECK(what_of([&] { array("|i1", "\1\xff").values<std::uint8_t>(); }).find("a byte, 0 to 255") !=
        std::string::npos);
  CHECK(what_of([&] {
          array("<u4", "\1\0\0\0\0\0\0\x80"s).values<std::int32_t>();
        }).find("does not fit in 32 bits") != std::string::npos);
  CHECK(what_of([&] { array("<i4", "\0\0\0\1\1\0\0\1"s).values<float>(); })  // 2^24, 2^24 + 1
            .find("element 1 (dtype <i4) does not fit in a float") != std::string::npos);
  CHECK(what_of([&] {
          array("<f4", "\0\0\0\0\0\0\0\0"s).values<std::int32_t>();
        }).find("real numbers") != std::string::npos);
  CHECK(what_of([&] {  // 1, 1e300
          array("<f8", "\0\0\0\0\0\0\xf0\x3f\x9c\x75\0\x88\x3c\xe4\x37\x7e"s).values<float>();
        })
            .find("element 1 (dtype <f8) does not fit in a float") != std::string::npos);
  // The double 0.1 rounds to the float 0.1f, as with astype.
  CHECK(array("<f8", "\x9a\x99\x99\x99\x99\x99\xb9\x3f\0\0\0\0\0\0\0\0"s).values<float>() ==
        std::vector{0.1f, 0.f});
}

TEST_CASE("arrays that do not hold examples and targets are refused") {
  const auto array = [](const char* shape, std::size_t bytes) {
    return parsed(file(dict("|u1", shape), std::string(bytes, 'a')));
  };
  const auto refused = [](const ls::NpyArray& x, const ls::NpyArray& y) {
    return what_of([&] { ls::tensors<std::uint8_t, std::int32_t>(x, y); });
  };
  CHECK(refused(array("(2,)", 2), array("(3,)", 3)).find("has 3 targets, but a.npy has 2") !=
        std::string::npos);
  CHECK(refused(array("()", 1), array("(1,)", 1)).find("a single number") != std::string::npos);
  CHECK(refused(array("(1,1,1,1,1,1)", 1), array("(1,)", 1)).find("6 axes") != std::string::npos);
  CHECK(refused(array("(2, 0)", 0), array("(2,)", 2)).find("extent of 0") != std::string::npos);
  CHECK(refused(array("(0, 4294967296)", 0), array("(0,)", 0)).find("extent of 4294967296") !=
        std::string::npos);
}

TEST_CASE("labels in a column, as in Keras' files, are labels") {
  const auto labels = parsed(file(dict("|u1", "(3, 1)"), "\x01\x00\x02"s));
  CHECK(ls::detail::npy_shape(labels, true) == ls::Shape{});
  CHECK(ls::detail::npy_shape(labels, false) == ls::shape(1));
  CHECK(ls::detail::npy_shape(parsed(file(dict("|u1", "(1, 3)"), "\x01\x00\x02"s)), true) ==
        ls::shape(3));
}
