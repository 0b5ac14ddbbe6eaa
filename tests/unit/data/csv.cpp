#include "lockstep/data/csv.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "unit/data/support.hpp"

namespace ls = lockstep;

namespace {

template <class Element = float, class Target = std::int32_t>
auto parsed(const std::string& text, const ls::CsvOptions& options = {}) {
  return ls::detail::parse_csv<Element, Target>(text, "a.csv", options);
}
template <class T>
std::vector<T> listed(std::span<const T> numbers) {
  return {numbers.begin(), numbers.end()};
}

/// Written by Python's csv.writer with QUOTE_ALL.
const std::string of_python =
    "\"a \"\"quoted\"\", name\",\"b\n"
    "c\",\"d\",\"class\"\r\n"
    "\"-52407074581621.73\",\"-7.391544078297146e+17\",\"-5189292690574687.0\",\"-7\"\r\n"
    "\"2111990602.7865376\",\"-4.812919713439847e-07\",\"-6165117920.094009\",\"8\"\r\n"
    "\"6729229025.487775\",\"-2.057308459420781e-12\",\"-5.361559892466567e-12\",\"7\"\r\n"
    "\"-2.2012655822557425e-21\",\"3.428229507391851e-17\",\"-6.812001204754377e+16\",\"-8\"\r\n"
    "\"-3.9746468096857534e-20\",\"0.0006471410224665288\",\"-545.0182266906634\",\"4\"\r\n"
    "\"-2100731919985121.5\",\"-1.1075788789847873e-13\",\"7.577333206760833e-15\",\"-8\"\r\n";
const std::vector<double> of_python_x{
    -52407074581621.73,      -7.391544078297146e+17,  -5189292690574687.0,   2111990602.7865376,
    -4.812919713439847e-07,  -6165117920.094009,      6729229025.487775,     -2.057308459420781e-12,
    -5.361559892466567e-12,  -2.2012655822557425e-21, 3.428229507391851e-17, -6.812001204754377e+16,
    -3.9746468096857534e-20, 0.0006471410224665288,   -545.0182266906634,    -2100731919985121.5,
    -1.1075788789847873e-13, 7.577333206760833e-15};
const std::vector<std::int32_t> of_python_y{-7, 8, 7, -8, 4, -8};

}  // namespace

TEST_CASE("a table that Python's csv wrote is read, plain and gzip, to the last bit") {
  const support::Folder folder;
  folder.write("a.csv", of_python);
  folder.write("b.csv", support::gzip(of_python));
  for (const char* name : {"a.csv", "b.csv"}) {
    const auto data = ls::read_csv<double, std::int32_t>(folder / name, {.target = "class"});
    CHECK(data.shape() == ls::shape(3));
    CHECK(data.target_shape() == ls::Shape{});
    CHECK(listed(data.features()) == of_python_x);
    CHECK(listed(data.targets()) == of_python_y);
  }
  CHECK_THROWS_AS((ls::read_csv<float, float>(folder / "c.csv")), ls::FileError);
}

TEST_CASE("header, target column, delimiter and line ends are as the options say") {
  const auto by_name = parsed("y, x1 ,x2\n3,1,2\r\n\n6,4,5", {.target = "y"});
  CHECK(listed(by_name.features()) == std::vector{1.f, 2.f, 4.f, 5.f});
  CHECK(listed(by_name.targets()) == std::vector{3, 6});
  CHECK(listed(parsed("a,b,c\n1,2,3\n").targets()) == std::vector{3});
  const auto bare = parsed<double, double>("1;2; 3.5 \r4;5;+6e1\r",
                                           {.delimiter = ';', .header = false, .target = "1"});
  CHECK(listed(bare.features()) == std::vector{1., 3.5, 4., 60.});
  CHECK(listed(bare.targets()) == std::vector{2., 5.});
  CHECK(bare.target_shape() == ls::shape(1));
  CHECK(parsed("a\tb\n", {.delimiter = '\t'}).size() == 0u);
  CHECK(listed(parsed("\xef\xbb\xbfy,x\n1,2\n", {.target = "y"}).targets()) == std::vector{1});
  CHECK(listed(parsed("\"a,\"\"\n\",b\n\"1\",\"2\"", {.target = "a,\"\n"}).targets()) ==
        std::vector{1});
}

TEST_CASE("numbers are the nearest of their type, and missing ones as the options say") {
  const auto data = parsed<float, double>("0.1,1e-50,nan,-inf,1e-320", {.header = false});
  CHECK(data.features()[0] == 0.1f);
  CHECK(data.features()[1] == 0.f);  // below the smallest float
  CHECK(std::isnan(data.features()[2]));
  CHECK(data.features()[3] == -HUGE_VALF);
  CHECK(data.targets()[0] == 1e-320);
  const auto filled = parsed("a,b,y\n,2,\n3, ,1\n", {.missing = -1});
  CHECK(listed(filled.features()) == std::vector{-1.f, 2.f, 3.f, -1.f});
  CHECK(listed(filled.targets()) == std::vector{-1, 1});
  CHECK(listed(parsed<std::uint8_t>("0,255,7", {.header = false}).features()) ==
        std::vector<std::uint8_t>{0, 255});
}

TEST_CASE("hostile tables are refused with file, line, column and remedy") {
  struct Case {
    std::string what, bytes, fact;
    ls::CsvOptions options{};
  };
  const ls::CsvOptions bare{.header = false};
  const std::vector<Case> cases{
      {"nothing", "", "has no line"},
      {"blank lines", "\n\r\n\n", "has no line"},
      {"one column", "a\n1\n", "has one column"},
      {"another delimiter", "a;b\n1;2\n", "has one column"},
      {"a text", "a,b\n1,2\n3,four\n", "line 3, column 2: 'four' is no integer"},
      {"a header as data", "a,b\n1,2\n", "line 1, column 1: 'a' is no number", bare},
      {"a real label", "a,b\n1,2.5\n", "line 2, column 2: '2.5' is no integer"},
      {"a label beyond 32 bits", "a,b\n1,2147483648\n", "'2147483648' is no integer"},
      {"a number beyond float", "a,b\n1e39,1\n", "line 2, column 1: '1e39'"},
      {"a decimal comma", "a;b\n1,5;2\n", "'1,5' is no number", {.delimiter = ';'}},
      {"a hexadecimal number", "a,b\n0x10,1\n", "'0x10'"},
      {"two signs", "a,b\n+-1,1\n", "'+-1'"},
      {"a sign alone", "a,b\n+,1\n", "'+'"},
      {"bytes of another file", "a,b\n\x01\xff,1\n", "'?\?' is no number"},
      {"a NUL", std::string("a,b\n1\0,1\n", 9), "'1?'"},
      {"a missing value", "a,b\n1,2\n,3\n", "line 3, column 1: a value is missing"},
      {"a missing label", "a,b\n1,\n", "line 2, column 2: a value is missing"},
      {"no integer for a missing label", "a,b\n1,\n", "is no integer", {.missing = 0.5}},
      {"NaN for a missing label", "a,b\n1,\n", "is no integer", {.missing = std::nan("")}},
      {"too few columns", "a,b,c\n1,2,3\n1,2\n", "line 3, column 3: the line has 2"},
      {"too many columns", "a,b\n1,2,3\n", "line 2, column 3: the line has 3"},
      {"a quote within a field", "a,b\n1\"2,3\n", "line 2, column 1: a quote within"},
      {"a quote without an end", "a,b\n1,\"2\n3,4\n", "line 2, column 2: a quoted field without"},
      {"something after a quote", "a,b\n\"1\"2,3\n", "line 2, column 1: something after"},
      {"lines are counted through quotes", "a,b\n\"\n\n1\",2\n1,x\n", "line 2, column 1"},
      {"lines are counted over blank ones", "a,b\n\n\r\n1,x\n", "line 4, column 2"},
      {"no such target", "a,b\n1,2\n", "no column 'c'; its columns are 'a', 'b'", {.target = "c"}},
      {"two such targets", "a,a\n1,2\n", "has two columns 'a'", {.target = "a"}},
      {"a target beyond", "1,2\n", "from 0 to 1, not '2'", {.header = false, .target = "2"}},
      {"a target's name without header", "1,2\n", "not 'a'", {.header = false, .target = "a"}},
  };
  for (const Case& c : cases) {
    INFO(c.what);
    try {
      parsed(c.bytes, c.options);
      FAIL("it was read");
    } catch (const ls::DataError& error) {
      const std::string text = error.what();
      INFO(text);
      CHECK(text.find("a.csv: ") == 0);
      CHECK(text.find(c.fact) != std::string::npos);
      for (const char letter : text) CHECK((letter >= ' ' && letter <= '~'));
    }
  }
}

TEST_CASE("a delimiter that stands within numbers or quotes is refused") {
  for (const char c : {'"', '\n', '.', '-', '7'})
    CHECK_THROWS_AS(parsed("1,2\n", {.delimiter = c}), ls::UsageError);
}
